"""Renames of tables, one after the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from ticdc_replay.targets.mirror.planning.renames import between, in_order
from ticdc_replay.targets.mirror.planning.tables import Relation

NAMES = [Relation(schema, table) for schema in ("s", "archive") for table in ("a", "b", "c")]


@settings(max_examples=examples(1.0))
@given(st.permutations(NAMES), st.sets(st.sampled_from(NAMES)))
def test_each_table_gets_its_name_and_none_meets_another_one(new: list[Relation], left_out: set[Relation]) -> None:
    names = {old: to for old, to in zip(NAMES, new, strict=True) if old not in left_out and to not in left_out}
    tables = {old: f"rows of {old}" for old in names}
    for old, to in in_order(names):
        assert to not in tables
        assert to in names.values() or to == between(old)
        tables[to] = tables.pop(old)
    assert tables == {to: f"rows of {old}" for old, to in names.items()}


def test_a_table_goes_aside_only_where_names_go_round() -> None:
    a, b, c = (Relation("s", name) for name in "abc")
    assert list(in_order({a: c, b: a})) == [(a, c), (b, a)]
    assert list(in_order({b: a, a: c})) == [(a, c), (b, a)]
    assert list(in_order({a: b, b: a})) == [(a, between(a)), (b, a), (between(a), b)]
