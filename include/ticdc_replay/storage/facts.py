"""What a store does by itself with its objects: keep old versions, delete after some days."""

from enum import StrEnum

import msgspec


class Versioning(StrEnum):
    """Whether a store keeps what is deleted or replaced. ``suspended``: it did once, and keeps only what it has from then."""

    NONE = "none"
    ENABLED = "enabled"
    SUSPENDED = "suspended"


class LifecycleRule(msgspec.Struct, frozen=True, order=True):
    """A rule by which the store itself deletes or moves objects, and that reaches into this store's prefix."""

    rule: str
    """The rule's id, as the store gives it; may be empty."""
    prefix: str
    """Of the keys that it is for, within the bucket; empty: all."""
    days: int | None
    """The age at which it reaches an object; None where the rule names a ``date``."""
    date: str | None
    """ISO 8601: from then on the rule reaches every object, new ones too."""
    conditional: bool
    """It is only for objects of some size or with some tag: perhaps none of TiCDC's."""

    @property
    def least_days(self) -> int:
        """The rule leaves an object alone for at least this many days; 0 under a rule with a date."""
        return 0 if self.days is None else self.days


class Expiration(LifecycleRule, frozen=True):
    """A rule by which the store deletes objects."""


class Archival(LifecycleRule, frozen=True):
    """A rule by which the store moves objects where they can't be read before somebody restores them."""

    storage_class: str
    """As the store calls it."""


class StoreFacts(msgspec.Struct, frozen=True):
    """What can be known of a store's own doings. What could not be asked is None, and ``unknown`` says why."""

    versioning: Versioning | None = Versioning.NONE
    expirations: tuple[Expiration, ...] | None = ()
    archivals: tuple[Archival, ...] | None = ()
    noncurrent_days: int | None = None
    """Old versions, and so the way back from a deletion, are kept this many days; None: without end, or not known."""
    unknown: tuple[str, ...] = ()
