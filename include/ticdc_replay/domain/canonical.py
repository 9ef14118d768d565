"""Canonical JSON and the hashes that name artefacts."""

import hashlib
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="sorted")


def encode(value: Any) -> bytes:
    """*value* as canonical JSON: UTF-8, members sorted, no white space. Equal values give equal bytes."""
    return _ENCODER.encode(value)


def digest(content: bytes) -> str:
    """The SHA-256 of *content* in lower-case hex."""
    return hashlib.sha256(content).hexdigest()


def hash_of(value: Any) -> str:
    """The SHA-256, in hex, of *value*'s canonical JSON."""
    return digest(encode(value))
