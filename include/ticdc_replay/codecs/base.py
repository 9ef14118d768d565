"""The contract of a codec: bytes of one Kafka message in, events out."""

from abc import ABC, abstractmethod
from typing import ClassVar

from ticdc_replay.domain.events import Event, RowEvent
from ticdc_replay.domain.messages import RawMessage


class Codec(ABC):
    """Decodes the messages of one protocol. One instance serves one thread and keeps what it learnt of row shapes.

    Codecs read bytes and nothing else: they never touch the network or a file. Whatever the bytes, they return; they
    never raise for bad input.
    """

    protocol: ClassVar[str]
    """The name in ``protocol=`` of the sink-uri."""

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

    @abstractmethod
    def is_watermark(self, message: RawMessage) -> bool:
        """Whether *message* may hold a watermark; cheap, may say yes too often, never no wrongly."""
