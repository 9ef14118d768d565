"""The contract of a codec: bytes of one Kafka message in, events out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, NamedTuple

from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.events import Event, RowEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.versions import MissingVersion


class Carried(NamedTuple):
    """What the messages of a changefeed carry besides rows: which grade a window can have, and where to look for DDL."""

    commit_ts: Literal["rows", "rows but deletes", "nothing"]
    """Which rows have a commitTs."""
    watermarks: bool
    ddl: Literal["every partition", "first partition", "nowhere"]
    """Where DDL, and bootstraps where there are some, are sent: every partition has all, or partition 0 alone."""


class Codec(ABC):
    """Decodes the messages of one protocol. One instance serves one thread and keeps what it learnt of row shapes.

    Codecs read bytes, and the tables' schemas through the ``SchemaLookup`` they are made with; of all that they touch only the
    schema registry behind it is a network. Whatever the bytes, they return; they never raise for bad input, only what the
    lookup of a writer schema raises.
    """

    protocol: ClassVar[str]
    """The name in ``protocol=`` of the sink-uri."""

    def __init__(self, changefeed: Changefeed, decompressed_max_bytes: int, schemas: SchemaLookup) -> None:
        """A codec for the messages of *changefeed*, which refuses events over *decompressed_max_bytes* when decompressed."""
        self.changefeed = changefeed
        self.decompressed_max_bytes = decompressed_max_bytes
        self.schemas = schemas
        self.expanded = 0
        """Bytes that decompression made so far, beyond those that it was given."""
        self.missing_versions: set[MissingVersion] = set()
        """Versions of tables that rows named and *schemas* did not know; each such row became ``schema_unknown``."""

    @classmethod
    @abstractmethod
    def carries(cls, changefeed: Changefeed) -> Carried:
        """What messages of *changefeed* carry."""

    @abstractmethod
    def decode(self, message: RawMessage) -> list[Event]:
        """The events of *message*, in wire order; an ``Undecodable`` for each part that can't be understood.

        A claim-check event comes back as the small message has it: ``partial`` and with its ``reference``.
        """

    @abstractmethod
    def decode_claim_check(self, small: RowEvent, content: bytes) -> Event:
        """The whole row that *content*, the bytes of the claim-check object, holds instead of *small*.

        The result has the ordinal and reference of *small*. An ``Undecodable`` when the object can't be read or is not of the
        same schema, table, commitTs and handle key (reason ``claim_check_mismatch``).
        """

    @abstractmethod
    def is_schema_change(self, message: RawMessage) -> bool:
        """Whether *message* may hold a DDL or bootstrap; cheap, may say yes too often, never no wrongly."""

    def schema_changes(self, messages: Sequence[RawMessage]) -> Iterable[RawMessage]:
        """Those of *messages* that ``is_schema_change``."""
        return filter(self.is_schema_change, messages)

    @abstractmethod
    def is_watermark(self, message: RawMessage) -> bool:
        """Whether *message* may hold a watermark; cheap, may say yes too often, never no wrongly."""

    @abstractmethod
    def may_refer(self, message: RawMessage) -> bool:
        """Whether *message* may hold a claim-check reference; cheap, may say yes too often, never no wrongly.

        Also yes for what can't be decompressed or does not look like the protocol: what is in it only ``decode`` can tell.
        """
