"""Hadoop's file of credentials: how a secret travels with an application of YARN.

The client of YARN reads the file that ``HADOOP_TOKEN_FILE_LOCATION`` names, and sends what is in it with the application. The
node
gives it to the containers of that application, as a file that it removes with them.

The format is that of ``org.apache.hadoop.security.Credentials.writeTokenStorageToStream``.
"""

from collections.abc import Iterator

from ticdc_replay.domain.errors import ConfigError

FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
ALIAS = "ticdc-replay.envelope-key"
_MAGIC = b"HDTS\0"
"""With the version of the format (``SerializedFormat.WRITABLE``), which every version of Hadoop writes for its containers."""
_ONE_BYTE = range(-112, 128)


def credentials_file(secret: bytes) -> bytes:
    """A file that holds *secret* under ``ALIAS``, and no token."""
    alias = ALIAS.encode()
    return b"".join((_MAGIC, _number(0), _number(1), _number(len(alias)), alias, _number(len(secret)), secret))


def secret_in(content: bytes, where: str) -> bytes:
    """The secret under ``ALIAS`` in the file *content*. Raises ConfigError where there is none."""
    if not content.startswith(_MAGIC):
        raise ConfigError(f"{where} is not a file of Hadoop's credentials, or of another version of their format")
    try:
        for alias, secret in _secrets(_Reader(content, len(_MAGIC))):
            if alias == ALIAS.encode():
                return secret
    except IndexError:
        raise ConfigError(f"{where} ends too early") from None
    raise ConfigError(f"{where} has no secret {ALIAS}: the application was not submitted by ticdc-replay")


def _secrets(reader: "_Reader") -> Iterator[tuple[bytes, bytes]]:
    for _ in range(reader.number()):  # tokens: alias, identifier, password, kind, service
        for _ in range(5):
            reader.text()
    for _ in range(reader.number()):
        yield reader.text(), reader.text()


class _Reader:
    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self._at = at

    def text(self) -> bytes:
        return self._take(self.number())

    def number(self) -> int:
        """``WritableUtils.readVInt``, of a number that is not negative."""
        first = int.from_bytes(self._take(1), signed=True)
        return first if first in _ONE_BYTE else int.from_bytes(self._take(-112 - first))

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._content):
            raise IndexError
        taken, self._at = self._content[self._at : end], end
        return taken


def _number(value: int) -> bytes:
    """``WritableUtils.writeVInt``."""
    if value in _ONE_BYTE:
        return value.to_bytes(1, signed=True)
    size = (value.bit_length() + 7) // 8
    return (-112 - size).to_bytes(1, signed=True) + value.to_bytes(size)
