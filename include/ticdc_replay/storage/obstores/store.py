"""Objects in Google Cloud Storage and Azure Blob Storage, through obstore."""

import contextlib
import random
import ssl
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    PermanentError,
    TransientError,
)
from ticdc_replay.storage.abilities import TRIED, Ability, is_probe
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.names import check_name
from ticdc_replay.storage.obstores.abilities import Probe, version_of
from ticdc_replay.storage.obstores.arrow import arrow_files
from ticdc_replay.storage.obstores.errors import NOT_FOUND, is_lost_condition, is_missing, translate
from ticdc_replay.storage.obstores.options import tls_context

_UPDATE_ATTEMPTS = 16
_UPDATE_PAUSE_S = 0.2
_PAGE = 1_000
_CLOCK_TIMEOUT_S = 30
RETRIES = 5


class ObstoreStore(ObjectStore):
    """The objects below a prefix of a bucket or container. obstore repeats what is worth repeating before an error shows."""

    bucket_kind: ClassVar[str] = "bucket"

    def __init__(self, root: str, bucket: str, prefix: str, where: str) -> None:
        self.root = root
        self._bucket = bucket
        self._prefix = f"{check_name(prefix)}/" if prefix else ""
        self._where = where
        self._store = self._connect()
        self._place = (root, self._endpoint())

    @abstractmethod
    def _connect(self) -> Any:
        """The obstore of the whole bucket. Raises ConfigError for credentials that can't be read."""

    @abstractmethod
    def _endpoint(self) -> str:
        """The URL of the server, whose clock sets ``last_modified``."""

    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        with self._errors("read", name):
            try:
                found = obstore.get(self._store, self._key(name))
            except NOT_FOUND:
                self._require_bucket()
                raise ArtifactNotFoundError(f"{self.uri(name)} does not exist") from None
            self.require(name, _etag(found.meta), found.meta["size"], etag, max_bytes)
            return bytes(found.bytes())

    def info(self, name: str) -> ObjectInfo | None:
        with self._errors("look up", name):
            try:
                return _info(name, obstore.head(self._store, self._key(name)))
            except NOT_FOUND:
                self._require_bucket()
                return None

    def put(self, name: str, content: bytes) -> None:
        with self._errors("write", name):
            obstore.put(self._store, self._key(name), content, use_multipart=False)

    def put_once(self, name: str, content: bytes) -> bool:
        with self._errors("write", name):
            self._try(Ability.CREATE)
            try:
                obstore.put(self._store, self._key(name), content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError) as error:
                if not is_lost_condition(error):
                    raise
            else:
                return True
        # Also where an attempt of ours succeeded and its answer was lost: then the content is equal.
        if self.get(name) == content:
            return False
        raise ArtifactExistsError(f"{self.uri(name)} exists with other content; it is never replaced")

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        with self._errors("write", name):
            self._try(Ability.CREATE)
            self._try(Ability.REPLACE)
        for _ in range(_UPDATE_ATTEMPTS):
            found, version = self._current(name)
            wanted = change(found)
            # Also where a request of ours succeeded and its answer was lost: the condition fails, and the content is ours.
            if wanted == found:
                return
            with self._errors("write", name):
                try:
                    obstore.put(self._store, self._key(name), wanted, mode=version or "create", use_multipart=False)
                except (AlreadyExistsError, PreconditionError) as error:
                    if not is_lost_condition(error):
                        raise
                except NOT_FOUND:
                    pass
                else:
                    return
            time.sleep(random.uniform(0, _UPDATE_PAUSE_S))
        raise TransientError(f"{self.uri(name)} was changed by others {_UPDATE_ATTEMPTS} times in a row; try again")

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        # obstore takes whole folders for a prefix. What lies before the prefix in its folder is left out by an offset just before
        # it, and the listing ends behind it.
        folder = f"{self._prefix}{prefix}".rpartition("/")[0]
        start = max(prefix[:-1], after)
        offset = f"{self._prefix}{start}" if start else None
        last = ""
        with self._errors("list", prefix):
            try:
                for batch in obstore.list(self._store, folder or None, offset=offset, chunk_size=_PAGE):
                    for meta in batch:
                        name = meta["path"][len(self._prefix) :]
                        if name < last:
                            raise PermanentError(
                                f"{self.root} lists {name} after {last}, out of order; a storage account with a hierarchical "
                                "namespace does so. Use a bucket or account without one"
                            )
                        last = name
                        if name.startswith(prefix):
                            if name > after and not name.endswith("/") and not is_probe(name):
                                yield _info(name, meta)
                        elif name > prefix:
                            return
            except (BaseError, OSError) as error:
                if is_missing(error):
                    raise self._no_bucket() from None
                raise

    def folders(self, prefix: str) -> Iterator[str]:
        with self._errors("list", prefix):
            folder = f"{self._prefix}{prefix}".rstrip("/")
            found = obstore.list_with_delimiter(self._store, folder or None)["common_prefixes"]
        yield from sorted(f"{path.rstrip('/')[len(self._prefix) :]}/" for path in found)

    def delete(self, name: str) -> None:
        with self._errors("delete", name):
            try:
                obstore.delete(self._store, self._key(name))
            except NOT_FOUND:
                self._require_bucket()

    def now(self) -> datetime:
        try:
            # Any answer has the time, also one that refuses the request.
            request = Request(self._endpoint(), method="HEAD")
            with urlopen(request, timeout=_CLOCK_TIMEOUT_S, context=tls_context()) as answer:
                date = answer.headers.get("Date")
        except HTTPError as error:
            date = error.headers.get("Date")
        except (URLError, OSError) as error:
            if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                raise PermanentError(f"{self.root}: the server's certificate is not trusted: {error}") from error
            raise TransientError(f"cannot read the clock of {self.root}: {error}") from error
        if date is None:
            raise PermanentError(f"{self.root}: the server sends no Date header")
        return parsedate_to_datetime(date)

    def arrow_filesystem(self) -> tuple[Any, str]:
        return arrow_files(self._store, self._bucket), f"{self._bucket}/{self._prefix}".rstrip("/")

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _current(self, name: str) -> tuple[bytes | None, Any]:
        """Content of *name* and what names its version; None for both where it does not exist."""
        with self._errors("read", name):
            try:
                found = obstore.get(self._store, self._key(name))
            except NOT_FOUND:
                self._require_bucket()
                return None, None
            return bytes(found.bytes()), version_of(found.meta)

    def _try(self, ability: Ability) -> None:
        probe = Probe(self._store, self._prefix, self.root)
        TRIED.once(self._place, ability, probe.create if ability is Ability.CREATE else probe.replace)

    def _require_bucket(self) -> None:
        """Raise PermanentError if the bucket is missing: it looks as a missing object does, and must not pass for one."""
        try:
            next(iter(obstore.list(self._store, chunk_size=1)), None)
        except (BaseError, OSError) as error:
            if is_missing(error):
                raise self._no_bucket() from None
            raise

    def _no_bucket(self) -> PermanentError:
        return PermanentError(f"{self.root} ({self._where}): the {self.bucket_kind} does not exist")

    @contextlib.contextmanager
    def _errors(self, doing: str, name: str = "") -> Iterator[None]:
        """Raise what obstore raises as one of the library's errors; *doing* is a verb, *name* the object or prefix."""
        try:
            yield
        except (BaseError, OSError) as error:
            # Not `from error`: its text may hold a signature in a URL.
            raise translate(error, f"cannot {doing} {self.uri(name)} ({self._where})") from None


def _etag(meta: Any) -> str:
    return (meta["e_tag"] or "").strip('"')


def _info(name: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(name, meta["size"], _etag(meta), meta["last_modified"])
