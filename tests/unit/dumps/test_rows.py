"""CSV and SQL files in Dumpling's format give back their rows, whatever is in them and however they are cut into blocks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.dumpling_files import Table, Variant, csv_file, sql_file
from tests.support.examples import examples
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.dumps import records
from ticdc_replay.dumps.csv_rows import csv_rows
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.records import Rows, WrongRowError
from ticdc_replay.dumps.sql_rows import sql_rows

DIALECTS = [
    Dialect(),
    Dialect(header=False, line_terminator="\n"),
    Dialect(escape_backslash=False),
    Dialect(escape_backslash=False, header=False, line_terminator="\n", separator="|", delimiter="'"),
    Dialect(delimiter="", separator="\t"),
    Dialect(delimiter="", separator="|+|", line_terminator="\n"),
    Dialect(delimiter="<>", separator="|+|"),
    Dialect(null_value="", separator=";"),
    Dialect(null_value="NULL", escape_backslash=False),
]
PIECES = [
    b'"', b"'", b"\\", b"\n", b"\r", b"\r\n", b"\0", b"\x1a", b",", b"|", b"|+|", b"<", b">", b"<>", b";", b"\t", b"(", b")",
    b"),\n(", b"\\N", b"NULL", b"n", b"0", b"Z", b"x'00'", b"\xff", b"\xef\xbb\xbf", "é😀".encode(), b"a b",
    b"INSERT INTO `t` VALUES\n",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
ANY = st.one_of(st.none(), HOSTILE, st.binary(max_size=12), st.just(bytes(range(256))))
NUMBER = st.one_of(
    st.none(), st.integers(-(10**20), 10**20).map(lambda number: str(number).encode()), st.just(b"1.5e-3")
)
ROW = st.tuples(NUMBER, ANY, ANY)
TABLE = Table("s", "t", "", ["id", "a`b", 'c"\\,'], ["number", "string", "string"], [])


def cut(content: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """*content* in blocks of *sizes*, and the rest."""
    for size in sizes:
        if content:
            yield content[:size]
            content = content[size:]
    if content:
        yield content


def rows_of(found: Iterator[Rows]) -> list[tuple[bytes | None, ...]]:
    rows: list[tuple[bytes | None, ...]] = []
    for part in found:
        assert part.first == len(rows)
        rows += zip(*[column.to_pylist() for column in part.columns], strict=True)
    return rows


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
@settings(max_examples=examples())
@given(rows=st.lists(ROW, min_size=1, max_size=6), sizes=st.lists(st.integers(1, 40), max_size=5))
def test_a_csv_file_gives_back_its_rows(
    dialect: Dialect, rows: list[tuple[bytes | None, ...]], sizes: list[int]
) -> None:
    content = csv_file(TABLE, rows, Variant(dialect=dialect))
    assert rows_of(csv_rows(cut(content, sizes), "file", dialect)) == rows


@pytest.mark.parametrize("escape_backslash", [True, False])
@settings(max_examples=examples())
@given(
    rows=st.lists(ROW, min_size=1, max_size=6), sizes=st.lists(st.integers(1, 60), max_size=5), complete=st.booleans()
)
def test_an_sql_file_gives_back_its_rows(
    rows: list[tuple[bytes | None, ...]], sizes: list[int], *, complete: bool, escape_backslash: bool
) -> None:
    variant = Variant("sql", Dialect(escape_backslash=escape_backslash), complete_insert=complete, statement_rows=2)
    content = sql_file(TABLE, rows, variant)
    found = list(sql_rows(cut(content, sizes), "file", escape_backslash=escape_backslash))
    assert rows_of(iter(found)) == rows
    assert {part.names for part in found} == {tuple(TABLE.columns) if complete else None}


@pytest.mark.parametrize("dialect", DIALECTS[:5], ids=str)
@settings(max_examples=examples())
@given(rows=st.lists(ROW, min_size=1, max_size=6))
def test_both_readers_give_the_same(dialect: Dialect, rows: list[tuple[bytes | None, ...]]) -> None:
    content = csv_file(TABLE, rows, Variant(dialect=dialect))
    fast = rows_of(csv_rows(iter([content]), "file", dialect))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_replay.dumps.csv_rows.split_fast", lambda *_: None)
        assert rows_of(csv_rows(iter([content]), "file", dialect)) == fast


BODY = st.lists(
    st.sampled_from(
        [b'"', b"'", b",", b"\\", b"\\n", b"\n", b"\r", b"\r\n", b"1", b"-", b".", b"e", b"a", b"\xef\xbb\xbf", b"\xff"]
    ),
    max_size=3,
).map(b"".join)
WRITTEN = st.tuples(
    st.sampled_from(["{}", "{}", "number", "NULL", "{quote}{}{quote}", "x{quote}{}{quote}", "x{quote}0F{quote}"]), BODY
)
"""How a value is written, and what stands in it."""


def outcome(read: Callable[[], Iterator[Rows]]) -> object:
    try:
        return rows_of(read())
    except WrongRowError:
        return WrongRowError


def written(value: tuple[str, bytes], null: str, quote: str) -> bytes:
    how, body = value
    text = {"number": "-1.5", "NULL": null}.get(how, how).replace("{quote}", quote)
    return text.encode().replace(b"{}", body)


@pytest.mark.parametrize("dialect", DIALECTS[:5], ids=str)
@settings(max_examples=examples(4))
@given(
    rows=st.lists(st.lists(WRITTEN, min_size=2, max_size=2), min_size=1, max_size=3),
    end=st.sampled_from([None, None, b"\n", b"\r\n"]),
)
def test_whatever_a_file_has_both_readers_give_the_same(
    dialect: Dialect, rows: list[list[tuple[str, bytes]]], end: bytes | None
) -> None:
    separator, last = dialect.separator.encode(), dialect.line_terminator.encode()
    lines = [separator.join(written(value, dialect.null_value, dialect.delimiter) for value in row) for row in rows]
    content = (end or last).join(lines) + last
    tuples = [b"(%s)" % b",".join(written(value, "NULL", "'") for value in row) for row in rows]
    statement = b"INSERT INTO `t` VALUES\n" + b",\n".join(tuples) + b";\n"
    readers = [
        lambda: csv_rows(iter([content]), "file", msgspec.structs.replace(dialect, header=False)),
        lambda: sql_rows(iter([statement]), "file", escape_backslash=dialect.escape_backslash),
    ]
    fast = [outcome(read) for read in readers]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("csv_rows", "sql_rows"):
            patch.setattr(f"ticdc_replay.dumps.{module}.split_fast", lambda *_: None)
        assert [outcome(read) for read in readers] == fast


@pytest.mark.parametrize("delimiter", ["", '"'])
@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf"], ids=["fast", "exact"])
def test_a_file_with_another_end_of_lines_is_an_error(delimiter: str, first: bytes) -> None:
    """The mark of UTF-8 has the exact reader take the first row."""
    for end, read in ((b"\r\n", "\n"), (b"\n", "\r\n")):
        dialect = Dialect(delimiter=delimiter, line_terminator=read, header=False)
        for last in (end, read.encode()):
            with pytest.raises(WrongRowError, match="line"):
                rows_of(csv_rows(iter([first + b"1,2" + end + b"2,3" + last]), "file", dialect))


def test_ordinary_rows_take_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    split = records.split_fast

    def watched(*arguments: object) -> object:
        taken.append(split(*arguments) is not None)  # type: ignore[arg-type]
        return split(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("ticdc_replay.dumps.csv_rows.split_fast", watched)
    monkeypatch.setattr("ticdc_replay.dumps.sql_rows.split_fast", watched)
    rows = [(b"1", 'é "quoted" \\ and\nmore\0'.encode(), None), (b"2", b"", b"\\N")]
    for dialect in (*DIALECTS[:5], *DIALECTS[7:]):
        rows_of(csv_rows(iter([csv_file(TABLE, rows, Variant(dialect=dialect))]), "file", dialect))
    rows_of(sql_rows(iter([sql_file(TABLE, rows, Variant("sql"))]), "file", escape_backslash=True))
    assert taken == [True] * 8


def test_the_names_of_a_file_without_rows_are_given() -> None:
    """If the dump has no header, they are a row, and the only one."""
    for content in (b'1,"x"\r\n', b'"id","a"\r\n'):
        (found,) = csv_rows(iter([content]), "file", Dialect())
        assert (found.names is not None and len(found.names), found.size) == (2, 0)


def test_a_row_with_too_many_values_is_named_by_its_line() -> None:
    content = b'"id","a"\r\n1,"x"\r\n2,"y"\r\n3,"z",4\r\n'
    with pytest.raises(WrongRowError, match=r"^s3://dump/t\.csv, line 4: 3 values, where 2 should be"):
        rows_of(csv_rows(iter([content]), "s3://dump/t.csv", Dialect()))


@pytest.mark.parametrize("escape_backslash", [True, False])
@pytest.mark.parametrize(
    ("written", "read"), [("NULL", "\\N"), ("", "\\N"), ("\\N", "NULL"), ("-", "NULL"), ("NULL", "")]
)
def test_a_file_with_another_null_value_is_an_error(written: str, read: str, escape_backslash: bool) -> None:
    rows = [(b"1", b"NULL", b"\\N"), (b"-2.5e+3", b"", b"two"), (b"3", None, b"x")]
    content = csv_file(TABLE, rows, Variant(dialect=Dialect(null_value=written, escape_backslash=escape_backslash)))
    with pytest.raises(WrongRowError, match=r"^file, line 4: "):
        rows_of(csv_rows(iter([content]), "file", Dialect(null_value=read, escape_backslash=escape_backslash)))


def test_a_row_that_is_cut_off_is_an_error() -> None:
    for content in (b'"id","a"\r\n1,"x"\r\n2,"y', b'"id","a"\r\n1,"x"\r\n2,"y"', b'"id","'):
        with pytest.raises(WrongRowError, match="end"):
            rows_of(csv_rows(iter([content]), "file", Dialect()))
    for content in (b"INSERT INTO `t` VALUES\n(1,'a'),\n", b"INSERT INTO `t` VALUES\n(1,'a'),\n(2", b"INSERT INTO `t"):
        for escape_backslash in (True, False):
            with pytest.raises(WrongRowError):
                rows_of(sql_rows(iter([content]), "file", escape_backslash=escape_backslash))


@pytest.mark.parametrize("text", ['say "yes"', "back\\slash", "line\nbreak"])
def test_a_file_with_other_escapes_is_an_error_or_reads_the_same(text: str) -> None:
    rows = [(b"1", text.encode(), b"plain")]
    for written, read in ((Dialect(), Dialect(escape_backslash=False)), (Dialect(escape_backslash=False), Dialect())):
        content = csv_file(TABLE, rows, Variant(dialect=written))
        try:
            found = rows_of(csv_rows(iter([content]), "file", read))
        except WrongRowError:
            continue
        # A backslash is text to a reader without escapes: nothing in the file shows that it is none.
        assert found == rows or read.escape_backslash is False


def test_a_statement_that_is_no_insert_is_an_error() -> None:
    content = b"INSERT INTO `t` VALUES\n(1,'a');\nDROP TABLE t;\n"
    with pytest.raises(WrongRowError, match=r"file, line 3: Dumpling writes no such line there"):
        rows_of(sql_rows(iter([content]), "file", escape_backslash=True))


@pytest.mark.parametrize("row", [b"(3,'c',4)", b"(3,'\\c')"])
def test_a_row_of_a_statement_that_is_wrong_is_named_by_its_line(row: bytes) -> None:
    content = b"INSERT INTO `t` VALUES\n(1,'a'),\n(2,'b'),\n" + row + b";\n"
    with pytest.raises(WrongRowError, match=r"^file, line 4: "):
        rows_of(sql_rows(iter([content]), "file", escape_backslash=True))


WRONG = ["12abc", "1-2", "1.2.3", "1e", "1e5e5", "1e5.5", "-", "+1", ".5", "1.", "--1", "1 ", "0x10", "NULL1", "x"]
NUMBERS = ["0", "-1", "12", "1.5", "-0.25", "1e5", "1E-5", "-1.25e+20"]


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("bare", [*WRONG, "{0}x{0}y", "{0}x{0}1", "1{0}x{0}", *NUMBERS])
def test_a_bare_value_is_a_number_or_null(bare: str, exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the dump was taken with other options: a text, or another text for NULL, would be taken for a value."""
    if exact:
        for module in ("csv_rows", "sql_rows"):
            monkeypatch.setattr(f"ticdc_replay.dumps.{module}.split_fast", lambda *_: None)
    readers: list[Callable[[], Iterator[Rows]]] = []
    for escapes in (True, False):
        value = bare.format('"')
        content = f'"a","b"\r\n"1","x"\r\n{value},"y"\r\n\\N,{value}\r\n'.encode()
        dialect = Dialect(escape_backslash=escapes)
        readers.append(partial(csv_rows, iter([content]), "file", dialect))
        content = f"INSERT INTO `t` VALUES\n(1,'x'),\n({bare.format(chr(39))},NULL),\n(x'00',2);\n".encode()
        readers.append(partial(sql_rows, iter([content]), "file", escape_backslash=escapes))
    for read in readers:
        if bare in NUMBERS:
            assert bare.encode() in [row[0] for row in rows_of(read())]
        else:
            with pytest.raises(WrongRowError, match=r"file, line "):
                rows_of(read())


def test_a_text_for_null_that_begins_as_a_number_is_read() -> None:
    content = b'"a","b"\r\n1,"x"\r\n0-,"y"\r\n2,0-\r\n'
    rows = rows_of(csv_rows(iter([content]), "file", Dialect(null_value="0-")))
    assert rows == [(b"1", b"x"), (None, b"y"), (b"2", None)]


def test_a_file_without_rows_has_none() -> None:
    assert rows_of(csv_rows(iter([b'"id","a"\r\n']), "file", Dialect())) == []
    assert rows_of(csv_rows(iter([]), "file", Dialect())) == []
    assert rows_of(sql_rows(iter([b"/*!40101 SET NAMES binary*/;\n"]), "file", escape_backslash=True)) == []


@pytest.mark.parametrize(
    ("dialect", "option"),
    [
        (Dialect(separator=""), "--csv-separator"),
        (Dialect(separator="\\"), "--csv-separator"),
        (Dialect(delimiter=","), "--csv-separator"),
        (Dialect(delimiter="", escape_backslash=False), "--csv-delimiter"),
        (Dialect(delimiter="<>", escape_backslash=False), "--csv-delimiter"),
        (Dialect(line_terminator="\r"), "--csv-line-terminator"),
        (Dialect(null_value="0"), "--csv-null-value"),
        (Dialect(null_value='"'), "--csv-null-value"),
        (Dialect(null_value="NULL", delimiter=""), "--csv-null-value"),
    ],
    ids=str,
)
def test_options_that_make_rows_alike_are_refused(dialect: Dialect, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        dialect.check()


def test_the_dialects_of_these_tests_are_allowed() -> None:
    for dialect in DIALECTS:
        dialect.check()
