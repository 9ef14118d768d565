"""Reading many objects of a bucket from many threads, through obstore: a quarter of boto3's processor time for each.

It reads only what can be read at the first go. Where anything is wrong it has no content, and the caller asks boto3, which says
what is wrong, or repeats the request at the pace that the store allows.
"""

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from ticdc_replay.storage.s3.bucket import S3Bucket

if TYPE_CHECKING:
    from obstore import GetResult

log = logging.getLogger(__name__)

_FAILURES = 16
"""After so many in a row it is not tried any more: it can't reach this store."""
_ERRORS = (BaseError, OSError, ValueError)
"""ValueError: no credentials, or a name that obstore does not take."""


class Found(NamedTuple):
    """The answer to a request: its body is read by ``content``, in one go."""

    etag: str
    size: int
    result: "GetResult"

    def content(self) -> bytes | None:
        """The body; None where it broke off."""
        try:
            return bytes(self.result.bytes())
        except _ERRORS as error:
            log.info("an object of %d bytes broke off: %s", self.size, _brief(error))
            return None


class Fetcher:
    """Reads objects of *bucket*. Thread-safe. Makes its client with the first request, so that a process may fork before."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._store: S3Store | None = None
        self._failures = 0

    def find(self, key: str) -> Found | None:
        """The object *key*; None if it can't be read, for whatever reason."""
        if self._failures >= _FAILURES:
            return None
        try:
            result = obstore.get(self._client(), key)
        except FileNotFoundError:
            return None
        except _ERRORS as error:
            self._failures += 1
            if self._failures in (1, _FAILURES):
                until = "this time" if self._failures == 1 else "from now on"
                log.warning(
                    "s3://%s can't be read by obstore, by boto3 %s: %s", self._bucket.name, until, _brief(error)
                )
            return None
        self._failures = 0
        return Found((result.meta["e_tag"] or "").strip('"'), result.meta["size"], result)

    def _client(self) -> S3Store:
        with self._lock:
            if self._store is None:
                self._store = self._bucket.obstore(self._bucket.client.meta.region_name or "us-east-1", retries=0)
            return self._store


def _brief(error: Exception) -> str:
    """The first line: below it is the debug form of the error and its sources."""
    return str(error).partition("\n")[0]
