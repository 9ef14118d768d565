"""Tries what is relied upon of a store behind obstore, with an object that is removed afterwards."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from ticdc_replay.storage.abilities import PROBE_PREFIX, Ability, missing
from ticdc_replay.storage.obstores.errors import NOT_FOUND, is_lost_condition, without_query

log = logging.getLogger(__name__)


class Probe:
    """The probes of a bucket below *prefix*. Raise MissingAbilityError, and obstore's errors as they come."""

    def __init__(self, store: Any, prefix: str, root: str) -> None:
        self._store = store
        self._prefix = prefix
        self._root = root

    def create(self) -> None:
        """Try that a conditional put keeps what is there, and that an object can be read and listed once it was put."""
        with self._object() as key:
            self._put(key, b"first", "create", Ability.CREATE)
            if self._put(key, b"second", "create", Ability.CREATE):
                raise missing(Ability.CREATE, self._root, "it replaced an object in spite of the condition")
            self._require(key, b"first")
            listed = obstore.list(self._store, key.rpartition("/")[0] or None, offset=key[:-1])
            paths = takewhile(lambda path: path <= key, (meta["path"] for batch in listed for meta in batch))
            if key not in paths:
                raise missing(Ability.LIST_AFTER_WRITE, self._root, "an object was not listed after it was put")

    def replace(self) -> None:
        """Try that a conditional put replaces an object only in the version that it names."""
        with self._object() as key:
            self._put(key, b"first", "overwrite", Ability.REPLACE)
            first = self._version(key)
            self._put(key, b"second", first, Ability.REPLACE)
            self._require(key, b"second")
            if self._put(key, b"third", first, Ability.REPLACE):
                raise missing(Ability.REPLACE, self._root, "it replaced a version that the condition did not name")
            self._require(key, b"second")

    @contextmanager
    def _object(self) -> Iterator[str]:
        key = f"{self._prefix}{PROBE_PREFIX}{uuid.uuid4().hex}"
        try:
            yield key
        finally:
            try:
                obstore.delete(self._store, key)
            except NOT_FOUND:
                pass
            except (BaseError, OSError) as error:  # what the probe found counts, and an account may not delete
                log.warning("the probe %s in %s stays: it can't be deleted: %s", key, self._root, without_query(error))

    def _put(self, key: str, content: bytes, mode: Any, ability: Ability) -> bool:
        try:
            obstore.put(self._store, key, content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            if not is_lost_condition(error):
                raise
            return False
        except NotSupportedError as error:
            raise missing(ability, self._root, f"it refuses the request: {without_query(error)}") from None
        return True

    def _version(self, key: str) -> Any:
        return version_of(obstore.head(self._store, key))

    def _require(self, key: str, content: bytes) -> None:
        try:
            found = bytes(obstore.get(self._store, key).bytes())
        except NOT_FOUND:
            found = None
        if found != content:
            raise missing(Ability.READ_AFTER_WRITE, self._root, f"{found!r} was read where {content!r} was put last")


def version_of(meta: Any) -> Any:
    """What a conditional put is given to replace just this version: Azure compares ETags, Google generations."""
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}
