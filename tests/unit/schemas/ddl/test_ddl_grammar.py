"""Texts made of the parts of DDL, put together at random: a definition comes out, or a reason, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schema_histories import schema_at
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import changes_of
from ticdc_replay.schemas.ddl.reader import ParsedDdl, Tables, UnparsedDdl, key_of
from ticdc_replay.schemas.history import SchemaHistory

NAMES = st.sampled_from(["t", "`t`", "u", "`s`.`t`", "`a b`", "``", "c", "id", "`C`", "'q'", "9", "_x", "$", "ÿ"])
NUMBERS = st.one_of(
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.integers(1, 6000).map(lambda digits: "9" * digits),
    st.sampled_from(
        ["1e9999999", "-1e-9999999", "0x", "0x1_0", "x'1_0'", "X'1'", "b'2'", "0b1_0", "1_0", "1.", ".5", "1e", "¹"]
    ),
    st.integers(1, 6000).map(lambda digits: f"b'{'1' * digits}'"),
    st.integers(1, 6000).map(lambda digits: f"X'{'f' * digits}'"),
)
TEXTS = st.sampled_from(
    ["''", "'a'", "'\\''", "'''", '"x"', "_utf8mb4'x'", "N'x'", "'\\", "`", "/*", "/*T![", "*/", "/*!5", "--", "#"]
)
SPELLED = """BIGINT UNSIGNED|INT|BIGINT|DECIMAL|FLOAT|DOUBLE|BIT|CHAR|VARCHAR|BINARY|VARBINARY|TEXT|BLOB|ENUM|SET|DATE|TIME|\
DATETIME|TIMESTAMP|YEAR|JSON|VECTOR|SERIAL|NATIONAL CHAR|LONG VARBINARY|BOOL|GEOMETRY"""
TYPES = st.sampled_from(SPELLED.split("|"))
KEYWORDS = """CREATE TABLE ALTER DROP RENAME TO ADD COLUMN MODIFY CHANGE PRIMARY
UNIQUE INDEX KEY DEFAULT NOT NULL COMMENT FIRST AFTER
IF EXISTS LIKE PARTITION BY GENERATED ALWAYS AS VIRTUAL STORED REFERENCES CHECK CHARSET COLLATE binary ON UPDATE SET EXCHANGE
TRUNCATE RECOVER DATABASE ( ) , . ; = - + < > @ {"""
WORDS = st.sampled_from(KEYWORDS.split())
PART = st.one_of(NAMES, NUMBERS, TEXTS, TYPES, WORDS)
COLUMN = st.tuples(
    NAMES,
    TYPES,
    st.lists(st.one_of(NUMBERS, TEXTS).map(lambda part: f"({part})"), max_size=1),
    st.lists(PART, max_size=4),
).map(lambda found: " ".join([found[0], found[1], *found[2], *found[3]]))
DEFAULT = st.tuples(NAMES, TYPES, st.one_of(NUMBERS, TEXTS)).map(
    lambda found: f"{found[0]} {found[1]} DEFAULT {found[2]}"
)
COLUMNS = st.lists(st.one_of(COLUMN, DEFAULT), max_size=4).map(",".join)
STATEMENT = st.one_of(
    COLUMNS.map(lambda columns: f"CREATE TABLE `t` (`id` INT PRIMARY KEY, {columns})"),
    COLUMNS.map(lambda columns: f"ALTER TABLE `t` ADD COLUMN ({columns})"),
    st.one_of(COLUMN, DEFAULT).map(lambda column: f"ALTER TABLE `t` MODIFY COLUMN {column}"),
    st.lists(PART, max_size=12).map(lambda parts: "ALTER TABLE `t` " + " ".join(parts)),
    st.lists(PART, max_size=16).map(" ".join),
    st.text(max_size=60),
)


@settings(deadline=None)
@given(st.lists(STATEMENT, min_size=1, max_size=3))
def test_any_texts_define_tables_or_leave_them_unknown(texts: list[str]) -> None:
    created = DdlEvent(0, 1, "s", "t", "CREATE TABLE `t` (`id` INT PRIMARY KEY, `c` INT)", 3)
    ddls = [DdlEvent(0, at + 2, "s", "t", text, 5) for at, text in enumerate(texts)]
    history = SchemaHistory().with_ddls([created, *ddls])
    for ddl in ddls:
        known = Tables()
        for name in {epoch.name for epoch in history.epochs}:
            definition = history.definition_at(name.schema, name.table, ddl.commit_ts)
            if definition is not None:
                known[key_of(name)] = definition
        outcome = ParsedDdl(ddl).apply(known)
        if isinstance(outcome, UnparsedDdl):
            assert "defect" not in outcome.reason, (ddl.query, outcome.reason)
            assert len(outcome.reason) <= 1000
        assert changes_of([ddl], history) is not None
    encoded = history.encode()
    assert SchemaHistory.decode(encoded).encode() == encoded
    assert len(encoded) < 100_000 + 600 * sum(map(len, texts))
    schema_at(history, TableName("s", "t"), 99)
