"""What the readers of all protocols raise for bytes that they can't understand."""

from ticdc_replay.domain.events import Undecodable


class MessageError(ValueError):
    """A message, or one event of it, can't be understood.

    ``reason`` is a stable code, the text says where and why. The other attributes are filled as far as they could be read.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        commit_ts: int | None = None,
        schema: str | None = None,
        table: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.commit_ts = commit_ts
        self.schema = schema
        self.table = table

    def as_event(self) -> Undecodable:
        """The one event of the message; without ordinal if nothing is known of it."""
        ordinal = None if self.commit_ts is None and self.schema is None else 0
        return Undecodable(ordinal, self.reason, str(self), self.commit_ts, self.schema, self.table)
