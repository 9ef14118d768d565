"""A protocol owns its traits: no code but its own files asks for it by name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

from ticdc_replay.changefeed import protocols
from ticdc_replay.changefeed.protocols import protocol_names

LIBRARY = Path(__file__).resolve().parents[2] / "include" / "ticdc_replay"

NAMES = frozenset(protocol_names())
TRAITS = [resolve_name(dotted) for dotted in protocols._BUILT_IN]
HOMES = {
    folder: {name for traits in TRAITS if f".{folder}." in traits.codec for name in (traits.name, *traits.aliases)}
    for folder in ("avro", "canal", "debezium", "open", "simple")
}
"""The names that the files of each folder in ``codecs`` may say."""
REASONS = {
    ("changefeed/config.py", "avro"): "a value of encoding-format",
    ("codecs/simple/codec.py", "avro"): "a value of encoding-format",
    ("codecs/simple/traits.py", "avro"): "a value of encoding-format",
    ("codecs/simple/avro.py", "default"): "a member of a column's schema",
    ("cli/messages.py", "open-protocol"): "what --protocol is by itself",
}
"""Where a name may stand outside of them."""


def home_of(path: str) -> set[str]:
    """The names that the file *path* may say."""
    room, _, rest = path.partition("/")
    return HOMES.get(rest.partition("/")[0], set()) if room == "codecs" else set()


def said_by(code: str) -> set[str]:
    """The names of protocols among the string literals of *code*."""
    texts = (node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str)} & NAMES


def said_abroad() -> Iterator[tuple[str, str]]:
    """Each file with each name that it says though it is not of that protocol."""
    for file in sorted(LIBRARY.rglob("*.py")):
        path = file.relative_to(LIBRARY).as_posix()
        yield from ((path, name) for name in sorted(said_by(file.read_text(encoding="utf-8")) - home_of(path)))


def test_a_name_is_found_wherever_code_compares_it() -> None:
    assert said_by("if protocol == 'avro': pass") == {"avro"}
    assert said_by("match protocol:\n    case 'debezium' | 'simple': pass") == {"debezium", "simple"}
    assert said_by("RATES = {'canal-json': 1}\n'''As in avro.'''") == {"canal-json"}


def test_the_files_of_a_protocol_are_told_by_their_folder() -> None:
    assert home_of("codecs/debezium/avro_traits.py") == {"debezium", "debezium-avro"}
    assert home_of("codecs/open/rows.py") == {"open-protocol", "default"}
    assert home_of("codecs/base.py") == home_of("decode/avro/codec.py") == set()
    assert set().union(*HOMES.values()) == {name for traits in TRAITS for name in (traits.name, *traits.aliases)}


def test_only_a_protocols_own_files_say_its_name() -> None:
    assert dict.fromkeys(said_abroad()).keys() == REASONS.keys()
