"""Which lifecycle rules of a bucket delete what is below a prefix."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ticdc_replay.storage.facts import Archival, Expiration
from ticdc_replay.storage.s3.facts import archivals, expirations, noncurrent_days

PREFIX = "cdc/claims/"


def rule(condition: dict[str, Any] | None = None, **more: Any) -> Any:
    return (
        {"ID": "r", "Status": "Enabled", "Expiration": {"Days": 3}}
        | ({} if condition is None else {"Filter": condition})
        | more
    )


@pytest.mark.parametrize(
    ("given", "prefix", "conditional"),
    [
        (rule({}), "", False),
        (rule({"Prefix": ""}), "", False),
        (rule({"Prefix": "cdc/"}), "cdc/", False),
        (rule({"Prefix": "cdc/claims/0"}), "cdc/claims/0", False),
        (rule(Prefix="cdc"), "cdc", False),
        (rule({"Tag": {"Key": "k", "Value": "v"}}), "", True),
        (rule({"ObjectSizeGreaterThan": 1}), "", True),
        (rule({"And": {"Prefix": "cdc/", "ObjectSizeLessThan": 9}}), "cdc/", True),
    ],
)
def test_a_rule_whose_keys_may_be_below_the_prefix_counts(given: Any, prefix: str, conditional: bool) -> None:
    assert expirations([given], PREFIX) == [Expiration("r", prefix, 3, None, conditional)]


@pytest.mark.parametrize(
    "given",
    [
        rule({"Prefix": "other/"}),
        rule({"And": {"Prefix": "other/", "ObjectSizeLessThan": 9}}),
        rule({"Prefix": ""}, Status="Disabled"),
        rule({"Prefix": ""}, Expiration={"ExpiredObjectDeleteMarker": True}),
        {"ID": "r", "Status": "Enabled", "Filter": {}, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]},
    ],
)
def test_a_rule_that_deletes_none_of_its_objects_does_not(given: Any) -> None:
    assert expirations([given], PREFIX) == []


def test_only_archives_that_must_be_restored_from_count() -> None:
    moves = [
        {"Days": days, "StorageClass": name} for days, name in ((9, "DEEP_ARCHIVE"), (1, "GLACIER_IR"), (4, "GLACIER"))
    ]
    rules = [{"ID": "r", "Status": "Enabled", "Filter": {}, "Transitions": moves}]
    found = [Archival("r", "", 4, None, False, "GLACIER"), Archival("r", "", 9, None, False, "DEEP_ARCHIVE")]
    assert archivals(rules, PREFIX) == found
    assert archivals([{**rules[0], "Filter": {"Prefix": "other/"}}], PREFIX) == []


def test_the_soonest_rule_comes_first() -> None:
    rules = [rule({}, ID="month", Expiration={"Days": 30}), rule({}, ID="week", Expiration={"Days": 7})]
    assert [found.least_days for found in expirations(rules, PREFIX)] == [7, 30]


def test_a_rule_with_a_date_lets_no_object_live_for_sure() -> None:
    (found,) = expirations([rule({}, Expiration={"Date": datetime(2026, 5, 1, tzinfo=UTC)})], PREFIX)
    assert (found.days, found.date, found.least_days) == (None, "2026-05-01T00:00:00+00:00", 0)


def test_old_versions_are_kept_as_long_as_the_shortest_rule_says() -> None:
    rules = [rule({}, NoncurrentVersionExpiration={"NoncurrentDays": days}) for days in (9, 4)]
    elsewhere = rule({"Prefix": "other/"}, NoncurrentVersionExpiration={"NoncurrentDays": 1})
    assert noncurrent_days([*rules, elsewhere], PREFIX) == 4
    assert noncurrent_days([rule({})], PREFIX) is None
