"""Which errors of Iceberg say that another commit came first: a load repeats its commit after these alone."""

import pytest

from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.targets.iceberg.table_format import Iceberg

VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
TEXTS = {
    "org.apache.iceberg.exceptions.CommitFailedException: Version 4 already exists": True,
    f"{VALIDATION}: Found conflicting files that can contain records matching true: [a.parquet]": True,
    f"{VALIDATION}: Found new conflicting delete files that can apply to records matching true: [a]": True,
    f"{VALIDATION}: Found concurrently added DV for a.parquet: DV{{}}": True,
    f"{VALIDATION}: Cannot commit, missing data files: [a.parquet]": True,
    f"{VALIDATION}: Cannot commit, found new position delete for replaced data file: a.parquet": True,
    f"{VALIDATION}: Missing required files to delete: a.parquet": True,
    "java.lang.IllegalArgumentException: Cannot fast-forward: main is not an ancestor of ticdc_replay_a": True,
    f"{VALIDATION}: Cannot find field 'created_at' in struct": False,
    f"{VALIDATION}: Cannot find source column for partition field: 1000: p: identity(3)": False,
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `lake`.`shop`.`concurrently` cannot be found.": False,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_conflict_is_told_by_its_message(text: str) -> None:
    section = read_section({"type": "iceberg", "name": "mirror", "ledger": "file:///ledger", "catalog": "lake"})
    assert Iceberg(section).is_conflict(text) is TEXTS[text]
