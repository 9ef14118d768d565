"""The demo's look at its own reconciliation: anything that is not as it must be is told."""

from collections import Counter

import pytest

from demo.reconciliation import Reconciled
from demo.sample import ageing, contents
from demo.sample.ageing import Aged

REFERENCED = sorted({found.name for found in ageing.references()})
AGED = Aged(*REFERENCED[:3])


def reconciled(**changed: tuple[str, int]) -> Reconciled:
    objects = {each.name: ("orphaned" if each.orphan else "referenced", 1) for each in contents.objects()}
    objects |= dict.fromkeys(ageing.FOREIGN, ("foreign", 1))
    objects |= {AGED.expired: ("expired", 1), ageing.EMPTY: ("malformed", 0), ageing.YOUNG: ("too_young", 1)}
    del objects[AGED.removed]
    references = Counter(present=20, duplicate=4, missing=1, altered=1)
    return Reconciled(objects | changed, references, [f"{AGED.removed} is missing"], AGED)


def test_a_store_as_it_must_be_is_right() -> None:
    assert reconciled().differences == []


def test_the_sample_has_orphans_and_every_other_object_has_a_reference() -> None:
    orphans = {each.name for each in contents.objects() if each.orphan}
    assert orphans
    assert set(REFERENCED) == {each.name for each in contents.objects()} - orphans


@pytest.mark.parametrize("name", [AGED.expired, AGED.replaced, ageing.EMPTY, ageing.YOUNG, *ageing.FOREIGN])
def test_an_object_of_another_class_is_named(name: str) -> None:
    (difference,) = reconciled(**{name: ("orphaned", 1)}).differences
    assert difference.startswith(name)


def test_an_object_too_many_is_named() -> None:
    (difference,) = reconciled(**{AGED.removed: ("referenced", 1)}).differences
    assert difference.startswith(AGED.removed)


@pytest.mark.parametrize("kind", ["present", "duplicate", "missing", "altered"])
def test_a_class_of_references_that_is_not_there_is_told(kind: str) -> None:
    found = reconciled()
    del found.references[kind]
    assert any(kind in difference for difference in found.differences)


def test_a_missing_object_without_an_alert_is_told() -> None:
    assert reconciled()._replace(alerts=[]).differences != []
