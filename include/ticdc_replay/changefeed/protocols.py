"""What the library has to know of a protocol besides its bytes, and where protocols are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal, NamedTuple

from ticdc_replay.domain.errors import ConfigError

if TYPE_CHECKING:
    from ticdc_replay.changefeed.config import Changefeed, LargeMessageOption

GROUP = "ticdc_replay.protocols"
"""Entry points of this group are the protocols of other packages. Each has a name in ``protocol=`` and leads to its traits."""
_BUILT_IN = (
    "ticdc_replay.codecs.open.traits:TRAITS",
    "ticdc_replay.codecs.canal.traits:TRAITS",
    "ticdc_replay.codecs.avro.traits:TRAITS",
    "ticdc_replay.codecs.simple.traits:TRAITS",
    "ticdc_replay.codecs.debezium.traits:TRAITS",
    "ticdc_replay.codecs.debezium.avro_traits:TRAITS",
)
"""By name, as codecs import the configuration and not the other way; and no entry points, which a plain source path lacks."""


class Carried(NamedTuple):
    """What the messages of a changefeed carry besides rows: which grade a window can have, and where to look for DDL."""

    commit_ts: Literal["rows", "rows but deletes", "nothing"]
    """Which rows have a commitTs. With "rows" windows go by it, and no codec hands on a row without."""
    watermarks: bool
    ddl: Literal["every partition", "first partition", "nowhere"]
    """Where DDL, and bootstraps where there are some, are sent: every partition has all, or partition 0 alone."""
    old_keys: bool = False
    """Whether an UPDATE that changes a row's key shows the old one where TiCDC sends raw change events."""


class Refusal(NamedTuple):
    """A setting that TiCDC refuses with a protocol."""

    key: str
    """Its name in the TOML, such as ``sink.kafka-config.partition-num``."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolTraits:
    """One protocol. Everything that depends on it asks here; a trait that is left out is something that it lacks.

    Importing the traits must not import the codec: DAG files and ``--help`` load them.
    """

    name: str
    """In ``protocol=`` of the sink-uri, in artefacts, and in all that people read."""
    aliases: tuple[str, ...] = ()
    """Other names in ``protocol=``."""
    codec: str
    """The class that reads its messages, a ``codecs.base.Codec``: ``module:class``. Imported with the first message."""
    carries: Callable[[Changefeed], Carried]
    """What messages carry with the options of a changefeed."""
    rows_per_core: int
    """Row events a second and core, from Kafka to the changelog, that ``plan`` expects where no run has shown it. Less than
    benchmarks have."""
    rows_per_core_by_encoding: Mapping[str, int] = field(default_factory=dict)
    """The same for a value of ``encoding-format``, where that makes a difference."""
    places_rows: bool = False
    """Whether the partition of a row can be computed from its event: names and key cells are as the upstream has them."""
    native: str | None = None
    """What makes the ``codecs.native.NativeReader``: ``module:function``. None where only Python reads the protocol."""
    needs_registry: bool = False
    """Whether messages can't be read without the schemas in a schema registry."""
    avro_names: bool = False
    """Whether events name tables and columns with ``_`` for characters that Avro's names can't have."""
    large_messages: tuple[LargeMessageOption, ...] = ()
    """What TiCDC can do with large messages, besides nothing."""
    refuses: Callable[[Changefeed], Iterable[Refusal]] = lambda changefeed: ()
    """What else TiCDC refuses: with such settings there is no changefeed."""
    has_encodings: bool = False
    """Whether ``encoding-format`` decides how messages are written."""
    has_enable_old_value: bool = False
    """Whether ``enable-old-value`` of TiCDC up to 7.1 counts."""

    @property
    def has_claim_checks(self) -> bool:
        """Whether TiCDC writes claim-check objects with it. What an earlier protocol of the changefeed sent to the topic may
        refer to some all the same."""
        return "claim-check" in self.large_messages


def protocol_names() -> list[str]:
    """The values of ``protocol=`` that can be read."""
    return list(dict.fromkeys([*_built_in(), *(found.name for found in entry_points(group=GROUP))]))


@lru_cache
def find_protocol(name: str) -> ProtocolTraits | None:
    """The protocol that is called *name* in ``protocol=``, None where no package has it. No package replaces a built-in one.

    Raises ConfigError for a package's protocol that can't be loaded, and for two packages with one name.
    """
    built_in = _built_in().get(name)
    if built_in is not None:
        return built_in
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        return None
    where = f"protocol {name} of {' and '.join(sorted(each.value for each in found))} (entry points {GROUP})"
    if len(found) > 1:
        raise ConfigError(f"{where}: two packages have it; uninstall one")
    try:
        traits = found[0].load()
    except Exception as error:
        raise ConfigError(f"{where} can't be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(traits, ProtocolTraits) or name not in (traits.name, *traits.aliases):
        raise ConfigError(f"{where}: expected the ProtocolTraits of {name}, found {traits!r:.200}")
    return traits


@lru_cache
def _built_in() -> dict[str, ProtocolTraits]:
    found: list[ProtocolTraits] = [resolve_name(each) for each in _BUILT_IN]
    return {name: traits for traits in found for name in (*traits.aliases, traits.name)}
