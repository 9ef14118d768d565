"""What a store does by itself with its objects: keep old versions, delete after some days."""

from enum import StrEnum

import msgspec


class Versioning(StrEnum):
    """Whether a store keeps what is deleted or replaced. ``suspended``: it did once, and keeps only what it has from then."""

    NONE = "none"
    ENABLED = "enabled"
    SUSPENDED = "suspended"


class Expiration(msgspec.Struct, frozen=True, order=True):
    """A rule by which the store deletes objects itself, and that reaches into this store's prefix."""

    rule: str
    """The rule's id, as the store gives it; may be empty."""
    prefix: str
    """Of the keys that it deletes, within the bucket; empty: all."""
    days: int | None
    """Days after which an object is deleted; None where the rule names a ``date``."""
    date: str | None
    """ISO 8601: from then on the rule deletes every object, new ones too."""
    conditional: bool
    """It deletes only objects of some size or with some tag: perhaps none of TiCDC's."""

    @property
    def least_days(self) -> int:
        """An object that the rule deletes lives at least this many days; 0 under a rule with a date."""
        return 0 if self.days is None else self.days


class Archival(msgspec.Struct, frozen=True, order=True):
    """A rule by which the store moves objects where they can't be read before somebody restores them. Members as of
    ``Expiration``."""

    rule: str
    prefix: str
    days: int | None
    date: str | None
    conditional: bool
    storage_class: str
    """As the store calls it."""

    @property
    def least_days(self) -> int:
        """An object can be read for at least this many days; 0 under a rule with a date."""
        return 0 if self.days is None else self.days


class StoreFacts(msgspec.Struct, frozen=True):
    """What can be known of a store's own doings. What could not be asked is None, and ``unknown`` says why."""

    versioning: Versioning | None = Versioning.NONE
    expirations: tuple[Expiration, ...] | None = ()
    archivals: tuple[Archival, ...] | None = ()
    noncurrent_days: int | None = None
    """Old versions, and so the way back from a deletion, are kept this many days; None: without end, or not known."""
    unknown: tuple[str, ...] = ()

    @property
    def least_days(self) -> int | None:
        """The store itself may delete an object after this many days; None where no known rule does."""
        return min((found.least_days for found in self.expirations or ()), default=None)
