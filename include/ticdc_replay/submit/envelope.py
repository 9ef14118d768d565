"""Connections on their way to a driver on another machine: encrypted, beside the job spec.

The envelope goes by the artefact store, its key by the submitter's own way for secrets. The envelope is of no use without the
key. With the key goes, in clear, the connection of the artefact store, since the envelope is there: who has the key has what
that connection allows, for as long as its credentials last. The key is of one attempt, and the envelope is removed when its
driver has read it.
"""

import time

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, TransientError
from ticdc_replay.submit.outcome import JobFile

MAX_AGE_S = 24 * 3600
"""An older envelope is refused: the application was in a queue for so long that its submitter must be gone."""


class EnvelopeKey(msgspec.Struct, frozen=True):
    """What a driver opens its envelope with."""

    key: str
    artifacts: Connection | None
    """Opens the store that the envelope is in, and travels in clear; None where that needs none."""

    def __repr__(self) -> str:
        return "EnvelopeKey(…)"

    def connections(self) -> Connections:
        """What opens the store."""
        own = self.artifacts
        return Connections() if own is None else Connections({own.conn_id: own}, own.conn_id)

    def encode(self) -> bytes:
        """As it travels."""
        return msgspec.json.encode(self)


def decode_key(content: bytes, where: str) -> EnvelopeKey:
    """What ``EnvelopeKey.encode`` gave. Raises ConfigError, without any of *content*, for anything else."""
    try:
        return msgspec.json.decode(content, type=EnvelopeKey)
    except msgspec.DecodeError:
        raise ConfigError(f"{where} is not the key of an envelope") from None


def put_envelope(file: JobFile, attempt: str, connections: Connections) -> EnvelopeKey:
    """Seal *connections* for the driver of *attempt*, and what opens them: it must travel by another way.

    Raises what the store raises.
    """
    key = Fernet.generate_key()
    file.put_envelope(attempt, Fernet(key).encrypt(msgspec.json.encode(connections)))
    return EnvelopeKey(key.decode("ascii"), connections.get(connections.artifacts))


def take_envelope(file: JobFile, attempt: str, key: EnvelopeKey) -> Connections:
    """The connections that were sealed for *attempt*; they are removed from the store.

    Raises TransientError where they are gone or too old, ConfigError where they were altered or sealed with another key, and what
    the store raises.
    """
    place = f"the envelope of attempt {attempt}"
    try:
        content = file.envelope(attempt)
    except ArtifactNotFoundError:
        raise TransientError(
            f"{place} is gone: a driver has read it before, or the job was cancelled. Submit the job again"
        ) from None
    connections = _opened(content, key, place)
    file.remove_envelope(attempt)
    return connections


def _opened(content: bytes, key: EnvelopeKey, place: str) -> Connections:
    try:
        sealing = Fernet(key.key)
        plain, sealed_at = sealing.decrypt(content), sealing.extract_timestamp(content)
    except (InvalidToken, ValueError):
        raise ConfigError(f"{place} was altered, or sealed with another key: nothing of it is used") from None
    if time.time() - sealed_at > MAX_AGE_S:
        raise TransientError(f"{place} is older than {MAX_AGE_S // 3600} hours. Submit the job again")
    return msgspec.json.decode(plain, type=Connections)
