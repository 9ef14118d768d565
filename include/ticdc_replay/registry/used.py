"""Schemas that were asked for once stay in memory, and what was really used can be pinned."""

from hashlib import sha256

from ticdc_replay.schemas.lookup import WriterSchemas

MAX_SCHEMA_BYTES = 8 * 1024 * 1024
"""Of a registry's answer: that of a table with MySQL's most columns, 4,096, has less than 2 MiB."""
_MAX_BYTES = 64 * 1024 * 1024


class UsedSchemas:
    """The schemas of *source*, each fetched once: a registry never changes what an id means.

    Texts of at most ``max_bytes`` in all are kept, the latest ones. An id that is not there is asked for again: it may be new.
    """

    def __init__(self, source: WriterSchemas, max_bytes: int = _MAX_BYTES) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._texts: dict[str, str] = {}
        self._bytes = 0
        self.hashes: dict[str, str] = {}
        """SHA-256 (hex) of the UTF-8 text of every schema that was given out, by id."""

    def text(self, schema_id: str) -> str | None:
        """See ``WriterSchemas.text``."""
        text = self._texts.get(schema_id)
        if text is None:
            text = self._source.text(schema_id)
            if text is not None:
                self._remember(schema_id, text)
        return text

    def _remember(self, schema_id: str, text: str) -> None:
        self.hashes[schema_id] = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._texts[schema_id] = text
        self._bytes += len(text)
        while self._bytes > self._max_bytes and len(self._texts) > 1:
            oldest = next(iter(self._texts))
            self._bytes -= len(self._texts.pop(oldest))
