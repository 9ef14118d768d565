"""Documents as trees to be changed: JSON as it is written, Avro by its writer schema."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, NamedTuple

import fastavro

Tree = Any
"""A JSON document: ``Members``, list, str, ``Number``, bool, None."""


class Number(str):
    """A JSON number, or any other text that is to stand in a document as it is."""


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order, duplicates too."""


def parse_json(document: bytes) -> Tree:
    """The tree of *document*; bytes that are not UTF-8 stay what they are."""
    text = document.decode(errors="surrogateescape")
    return json.loads(text, object_pairs_hook=Members, parse_int=Number, parse_float=Number)


def write_json(tree: Tree, spelling: Random | None = None) -> bytes:
    """*tree* as a document; with *spelling*, spaces and escapes that mean nothing are put in at random."""
    return _text(tree, spelling).encode(errors="surrogateescape")


def _text(tree: Tree, spelling: Random | None) -> str:
    space = spelling.choice(("", "", "", " ", "\n\t ")) if spelling else ""
    if isinstance(tree, Members):
        members = (f"{_string(name, spelling)}{space}:{space}{_text(value, spelling)}" for name, value in tree)
        return f"{{{space}{','.join(members)}{space}}}"
    if isinstance(tree, list):
        return f"[{space}{','.join(_text(value, spelling) for value in tree)}{space}]"
    if isinstance(tree, Number):
        return str(tree)
    return _string(tree, spelling) if isinstance(tree, str) else json.dumps(tree)


def _string(text: str, spelling: Random | None) -> str:
    written = json.dumps(text, ensure_ascii=False)
    # Lone surrogates that were escapes are escaped again; those of ``surrogateescape`` are bytes that are not UTF-8.
    written = "".join(f"\\u{ord(char):04x}" if 0xD800 <= ord(char) < 0xDC80 else char for char in written)
    if spelling and spelling.random() < 0.2:
        at = spelling.randrange(len(written))
        before = written[:at]
        if written[at].isalnum() and written[at].isascii() and "\\" not in before[-6:]:
            return f"{before}\\u{ord(written[at]):04x}{written[at + 1 :]}"
    return written


class Place(NamedTuple):
    """A node of a tree: where it hangs and how to put another there."""

    parent: Any
    at: int

    @property
    def value(self) -> Tree:
        found = self.parent[self.at]
        return found[1] if isinstance(self.parent, Members) else found

    @property
    def name(self) -> str:
        return str(self.parent[self.at][0]) if isinstance(self.parent, Members) else ""

    def put(self, value: Tree) -> None:
        self.parent[self.at] = (self.name, value) if isinstance(self.parent, Members) else value


def places(tree: Tree) -> Iterator[Place]:
    """Every node of *tree* but its root."""
    for at, node in enumerate(tree if isinstance(tree, list) else ()):
        yield Place(tree, at)
        yield from places(node[1] if isinstance(tree, Members) else node)


@cache
def _avro_schema(text: str) -> Any:
    return fastavro.parse_schema(_stripped(json.loads(text)))


def _stripped(node: Any) -> Any:
    """*node* without what can't be parsed strictly or would turn bytes into decimals."""
    if isinstance(node, dict):
        return {name: _stripped(value) for name, value in node.items() if name not in ("default", "logicalType")}
    return [_stripped(item) for item in node] if isinstance(node, list) else node


@cache
def _simple_schema() -> str:
    return files("ticdc_replay.codecs.simple").joinpath("simple.avsc").read_text()


class AvroDocument(NamedTuple):
    """A framed Avro datum: frame, schema and content, which may be changed in place."""

    frame: bytes
    schema: Any
    content: Any

    @classmethod
    def parse(cls, unit: bytes, writer_schemas: Mapping[str, str]) -> "AvroDocument":
        """*unit*, an unchanged one, by one of *writer_schemas*, or by Simple's schema where there are none."""
        size = 0
        text = _simple_schema()
        if writer_schemas:
            size = 5 if unit[:1] == b"\x00" else 18
            if size == 5:
                text = writer_schemas[str(int.from_bytes(unit[1:5], "big"))]
            else:
                digits = unit[2:18].hex()
                text = writer_schemas["-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))]
        schema = _avro_schema(text)
        content = fastavro.schemaless_reader(io.BytesIO(unit[size:]), schema, None, return_record_name=True)
        return cls(unit[:size], schema, content)

    def write(self) -> bytes:
        """The unit again. Raises ValueError for content that the schema does not allow."""
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self.schema, self.content)
        except Exception as error:  # fastavro raises all kinds for values that are not of a type
            raise ValueError(str(error)) from None
        return self.frame + out.getvalue()


def avro_places(content: Any) -> Iterator[tuple[Any, Any, Callable[[Any], None]]]:
    """Key and value of every leaf and container below *content*, and what puts another value there."""
    container = content[1] if isinstance(content, tuple) else content
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in list(items):
        yield key, value, lambda new, key=key: container.__setitem__(key, new)  # type: ignore[misc]
        if isinstance(value, dict | list) or (isinstance(value, tuple) and isinstance(value[1], dict)):
            yield from avro_places(value)
