"""Files of claim-check references."""

from ticdc_replay.state import StateStore
from ticdc_replay.state.references import ReferenceFile


def test_reference_files_are_noted_once(state: StateStore) -> None:
    files = [
        ReferenceFile("shop", "r", "runs/r/references/1.parquet"),
        ReferenceFile("shop", "r", "runs/r/references/2.parquet"),
    ]
    state.references.record_files(files)
    state.references.record_files(files)
    assert state.references.files("shop") == files
