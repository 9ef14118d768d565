"""What a message that may hold DDL, and that nobody could read, makes unknown."""

import msgspec

from tests.support.growth import assert_linear
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl, forgetting

GAP = UnreadDdl("shop", 0, 7, after=20, until=30)


def ddl(ts: int, query: str, table: str = "t") -> DdlEvent:
    return DdlEvent(0, ts, "shop", table, query, 0)


def create(ts: int, table: str = "t") -> DdlEvent:
    return ddl(ts, f"CREATE TABLE `{table}` (`id` INT)", table)


def topic_of(_schema: str, table: str) -> str | None:
    return {"elsewhere": "other", "anywhere": None}.get(table, "shop")


def known(history: SchemaHistory, table: str = "t") -> str:
    """Of rows of each tenth TSO: k where the definition is known, u where it depends on what was not read, else a dot."""
    found = ""
    for ts in (5, 15, 25, 35, 45):
        is_known = history.known_at("shop", table, ts) is not None
        found += "k" if is_known else "u" if history.unread_at("shop", table, ts) else "."
    return found


def test_what_was_known_before_is_unknown_until_the_table_is_created_again() -> None:
    story = [create(10), ddl(32, "ALTER TABLE `t` ADD COLUMN `a` INT"), ddl(39, "DROP TABLE `t`"), create(41)]
    history = forgetting(SchemaHistory().with_ddls(story), [GAP], topic_of)
    assert known(history) == ".kuuk"
    assert known(SchemaHistory.decode(history.encode())) == ".kuuk"
    assert history.unread_at("shop", "T", 25) == "shop[0]@7 may hold DDL of it, and can't be read"


def test_ddl_that_committed_when_it_may_have_committed_does_not_count() -> None:
    history = forgetting(SchemaHistory().with_ddls([create(22), create(31, "late")]), [GAP], topic_of)
    assert known(history) == "..uuu"
    assert known(history, "late") == "...kk"


def test_tables_whose_ddl_is_sent_elsewhere_stay_known() -> None:
    story = [create(10, "elsewhere"), create(10, "anywhere"), create(10)]
    history = forgetting(SchemaHistory().with_ddls(story), [GAP], topic_of)
    assert [known(history, each) for each in ("elsewhere", "anywhere", "t")] == [".kkkk", ".kuuu", ".kuuu"]


def test_where_the_table_could_be_read_others_stay_known() -> None:
    gap = msgspec.structs.replace(GAP, schema="shop", table="T")
    history = forgetting(SchemaHistory().with_ddls([create(10), create(10, "u")]), [gap], topic_of)
    assert [known(history, each) for each in ("t", "u")] == [".kuuu", ".kkkk"]
    renamed = msgspec.structs.replace(GAP, schema="shop", table="elsewhere")
    assert (
        known(forgetting(SchemaHistory().with_ddls([create(10, "elsewhere")]), [renamed], topic_of), "elsewhere")
        == ".kuuu"
    )


def test_what_comes_of_an_unknown_table_is_unknown_for_the_same_reason() -> None:
    story = [
        create(10),
        create(10, "u"),
        ddl(33, "RENAME TABLE `t` TO `renamed`", "renamed"),
        ddl(33, "ALTER TABLE `u` RENAME TO `altered`", "altered"),
        ddl(34, "CREATE TABLE `copy` LIKE `renamed`", "copy"),
        ddl(34, "CREATE TABLE `other` LIKE `never`", "other"),
    ]
    history = forgetting(SchemaHistory().with_ddls(story), [GAP], topic_of)
    found = {table: known(history, table) for table in ("t", "u", "renamed", "altered", "copy", "other")}
    assert found == {
        "t": ".ku..",
        "u": ".ku..",
        "renamed": "...uu",
        "altered": "...uu",
        "copy": "...uu",
        "other": ".....",
    }


def test_a_table_of_which_nothing_was_known_stays_so() -> None:
    assert (
        known(forgetting(SchemaHistory().with_ddls([create(10), ddl(15, "DROP TABLE `t`")]), [GAP], topic_of))
        == ".k..."
    )


def test_a_table_that_was_dropped_may_be_there_again_after_a_message_that_was_not_read() -> None:
    dropped = SchemaHistory().with_ddls([create(10), ddl(15, "DROP TABLE `t`")])
    found = forgetting(dropped, [GAP], topic_of)
    assert [dropped.dropped_at("shop", "t", ts) for ts in (15, 16, 40)] == [None, 15, 15]
    assert [found.dropped_at("shop", "t", ts) for ts in (16, 20, 21, 40)] == [15, 15, None, None]


def test_what_was_accepted_as_lost_leaves_tables_unknown_or_as_they_are_declared() -> None:
    history, declared = SchemaHistory().with_ddls([create(10), create(10, "u")]), SchemaHistory().with_ddls([create(0)])
    history = forgetting(history, [GAP], topic_of, accepted_as=declared)
    assert [known(history, each) for each in ("t", "u")] == [".k.kk", ".k..."]


def test_gaps_that_overlap_are_one() -> None:
    gaps = [UnreadDdl("shop", 0, 7, after=12, until=38), UnreadDdl("shop", 0, 8, after=14, until=17)]
    story = [create(10), create(16, "u"), create(22, "v"), create(39, "w")]
    whole = SchemaHistory().with_ddls(story)
    history = forgetting(whole, gaps, topic_of)
    assert [known(history, each) for each in ("t", "u", "v", "w")] == [".uuuu", "..uuu", "..uuu", "....k"]
    declared = SchemaHistory().with_ddls([create(0)])
    assert known(forgetting(whole, gaps, topic_of, accepted_as=declared)) == "....k"


def test_many_gaps_take_time_as_they_are_many() -> None:
    def work(count: int) -> None:
        tables = SchemaHistory().with_ddls([create(n, f"t{n}") for n in range(count)])
        gaps = [UnreadDdl("shop", 0, n, after=2 * count + n, until=3 * count + n) for n in range(count)]
        assert len(forgetting(tables, gaps, topic_of).epochs) == 2 * count

    assert_linear(work, 250)
