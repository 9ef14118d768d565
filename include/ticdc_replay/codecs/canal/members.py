"""The complete reading of a Canal-JSON document, member by member.

It refuses repeated columns and says exactly what is wrong. It takes some 50 µs a row, so rows whose form is known go through
``compiled`` instead; both read a row alike.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.members import Object, as_object, pairs_decoder
from ticdc_replay.domain.limits import is_unicode
from ticdc_replay.domain.tso import MAX_MS, MAX_TSO, physical_ms

WATERMARK = "TIDB_WATERMARK"
"""The type of a document that is one."""


class DocumentHead(NamedTuple):
    """What a document says besides its rows."""

    schema: str
    table: str
    type: str
    is_ddl: bool
    es: int
    commit_ts: int | None
    only_handle_key: bool
    claim_check: str | UnsetType
    """UNSET where the member is absent: an empty location is one that names no object."""


class RowMembers(NamedTuple):
    """The members of a row. ``types`` are the ``mysqlType`` texts of exactly the columns of ``data``, in its order."""

    pk_names: tuple[str, ...]
    types: dict[str, str]
    data: dict[str, str | None]
    old: dict[str, str | None] | None


def documents(value: bytes) -> Iterator[tuple[bytes, Object]]:
    """The JSON objects in *value*, one after the other or with blanks between them, each with its bytes.

    Raises MessageError at the first place that is none, and when there is no object at all.
    """
    # Bytes that are not UTF-8 become lone surrogates, which are looked for where text is used.
    text = value.decode(errors="surrogateescape")
    at = _blanks(text, 0)
    while True:
        try:
            found, end = _DECODER.raw_decode(text, at)
        except ValueError as error:
            raise MessageError("bad_json", str(error)) from None
        except RecursionError:
            raise MessageError("bad_json", "nested too deeply") from None
        if not isinstance(found, tuple):
            raise MessageError("bad_json", f"no object at character {at}")
        yield text[at:end].encode(errors="surrogateescape"), found
        at = _blanks(text, end)
        if at == len(text):
            return


def _blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


_DECODER = pairs_decoder()


def read_head(document: Object) -> DocumentHead:
    """What *document* says besides its rows. Raises MessageError.

    A repeated member counts as it stands last, but for a claim-check location: it must stand once.
    """
    members = dict(document)
    _refuse_hidden_location(document)
    schema, table, type_ = (_text(members, name) for name in ("database", "table", "type"))
    es = _number(members, "es")
    if es > MAX_MS:
        raise MessageError("bad_value", f"es {es} is not the time of a commit in ms")
    is_ddl = members.get("isDdl")
    if type(is_ddl) is not bool:
        raise MessageError("bad_value", "isDdl must be true or false")
    extension = _extension(members)
    commit_ts = _tso(extension, "commitTs", es) if "commitTs" in extension else None
    only_handle_key = extension.get("onlyHandleKey", False)
    if type(only_handle_key) is not bool:
        raise MessageError("bad_value", "onlyHandleKey must be true or false")
    claim_check: str | UnsetType = UNSET
    if "claimCheckLocation" in extension:
        if [name for name, _ in members["_tidb"]].count("claimCheckLocation") > 1:
            raise MessageError("bad_value", "claimCheckLocation occurs more than once")
        claim_check = _text(extension, "claimCheckLocation")
        if is_ddl or type_ == WATERMARK:
            raise MessageError("bad_value", "claimCheckLocation in an event that is not a row")
    return DocumentHead(schema, table, type_, is_ddl, es, commit_ts, only_handle_key, claim_check)


def read_row(document: Object) -> RowMembers:
    """The members of a row. Raises MessageError."""
    members = dict(document)
    pk_names = [] if members.get("pkNames") is None else members["pkNames"]
    if not isinstance(pk_names, list) or not all(isinstance(name, str) and is_unicode(name) for name in pk_names):
        raise MessageError("bad_value", "pkNames must be an array of names in UTF-8")
    types = {} if members.get("mysqlType") is None else dict(as_object(members["mysqlType"], "mysqlType"))
    data = _image(members, "data")
    old = _image(members, "old")
    if data is None:
        raise MessageError("bad_value", "data is null")
    if types.keys() != data.keys():
        names = ", ".join(sorted(repr(name) for name in types.keys() ^ data.keys()))
        raise MessageError("bad_value", f"mysqlType and data have other columns: {names}")
    for name, type_ in types.items():
        if not isinstance(type_, str) or not is_unicode(name) or not is_unicode(type_):
            raise MessageError("bad_value", f"mysqlType of {name!r} is not a text")
    return RowMembers(tuple(pk_names), {name: types[name] for name in data}, data, old)


def read_query(document: Object) -> str:
    """The SQL text of a DDL. Raises MessageError."""
    return _text(dict(document), "sql")


def read_watermark(document: Object) -> int:
    """The TSO of a watermark. Raises MessageError."""
    members = dict(document)
    return _tso(_extension(members), "watermarkTs", _number(members, "es"))


def _refuse_hidden_location(document: Object) -> None:
    """Raise MessageError where a ``_tidb`` that does not count has a claim-check location."""
    extensions = [value for name, value in document if name == "_tidb"]
    for extension in extensions[:-1]:
        if isinstance(extension, tuple) and any(
            name == "claimCheckLocation" and isinstance(value, str) for name, value in extension
        ):
            raise MessageError("bad_value", "claimCheckLocation in a _tidb before the one that counts")


def _extension(members: dict[str, Any]) -> dict[str, Any]:
    return dict(as_object(members["_tidb"], "_tidb")) if "_tidb" in members else {}


def _tso(extension: dict[str, Any], name: str, es: int) -> int:
    tso = _number(extension, name)
    if tso > MAX_TSO or physical_ms(tso) != es:
        raise MessageError("bad_value", f"{name} {tso} is not of the time es, {es}")
    return tso


def _image(members: dict[str, Any], member: str) -> dict[str, str | None] | None:
    rows = members.get(member)
    if rows is None:
        return None
    if not isinstance(rows, list) or len(rows) != 1:
        raise MessageError("bad_value", f"{member} must be an array of one row")
    pairs = as_object(rows[0], member)
    image = dict(pairs)
    if len(image) != len(pairs):
        names = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in names.items() if count > 1)
        raise MessageError("bad_value", f"{member} has the column {repeated!r} more than once")
    for name, cell in pairs:
        if cell is None:
            continue
        if not isinstance(cell, str):
            raise MessageError("bad_cell", f"column {name!r} of {member} is neither text nor null")
        if not is_unicode(cell):
            raise MessageError("bad_cell", f"column {name!r} of {member} is not UTF-8, or has a lone surrogate")
    return image


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not is_unicode(value):
        raise MessageError("bad_value", f"{name} must be text in UTF-8")
    return value


def _number(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if type(value) is not int or value < 0:
        raise MessageError("bad_value", f"{name} must be a number of 0 or more")
    return value
