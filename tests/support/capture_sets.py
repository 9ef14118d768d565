"""The committed captures: which variants there are, and where they lie once they are unpacked."""

import shutil
import tarfile
from pathlib import Path
from typing import NamedTuple

from ticdc_replay.domain.errors import ConfigError

_ARCHIVES = Path(__file__).parents[1] / "captures"
_GROUND_TRUTH = "expected"
"""The archive of the expected events and known deviations, which those of the protocols do not repeat."""


class Variants(NamedTuple):
    """Variants of one archive, by the architecture whose encoders made them."""

    both: tuple[str, ...]
    classic: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


VARIANTS = {
    "avro": Variants(
        ("avro-default", "avro-ext", "avro-ext-checksum", "avro-ext-string-modes", "avro-ext-watermark", "avro-one-topic"),
        classic=("avro-glue",),
        new=("avro-before-value",),
    ),
    "canal-json": Variants(
        ("canal-json", "canal-json-claim-check", "canal-json-claim-check-raw-snappy", "canal-json-content-compatible",
         "canal-json-ext", "canal-json-ext-2part-index", "canal-json-handle-key-only", "canal-json-lz4",
         "canal-json-updated-columns"),
        new=("canal-json-rowkey",),
    ),
    "debezium": Variants(
        ("debezium", "debezium-ext", "debezium-lz4", "debezium-no-schema"),
        new=("debezium-avro", "debezium-avro-string-modes", "debezium-start-ts"),
    ),
    "open": Variants(
        ("open-2part-index", "open-claim-check", "open-claim-check-lz4", "open-default", "open-delete-handle-key",
         "open-handle-key-only", "open-lz4", "open-no-old-value", "open-raw-change", "open-snappy",
         "open-updated-columns", "open-updated-columns-large"),
    ),
    "simple-avro": Variants(
        ("simple-avro", "simple-avro-2part-index", "simple-avro-checksum", "simple-avro-claim-check",
         "simple-avro-claim-check-raw", "simple-avro-handle-key-only", "simple-avro-lz4"),
    ),
    "simple-json": Variants(
        ("simple-json", "simple-json-2part-index", "simple-json-checksum", "simple-json-claim-check",
         "simple-json-claim-check-raw-lz4", "simple-json-handle-key-only", "simple-json-snappy"),
    ),
}  # fmt: skip
"""By archive, which is the protocol and, for Simple, its encoding."""


class Committed(NamedTuple):
    """One committed capture."""

    archive: str
    architecture: str
    variant: str

    def __str__(self) -> str:
        return f"{self.architecture}/{self.variant}"


COMMITTED = tuple(
    Committed(archive, architecture, variant)
    for archive, variants in VARIANTS.items()
    for architecture, own in (("classic", variants.classic), ("new", variants.new))
    for variant in sorted(variants.both + own)
)


class CaptureSets:
    """Unpacks archives below *folder*, each when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unpacked: set[str] = set()

    def __call__(self, archive: str) -> Path:
        """The folder that holds ``<classic|new>/<variant>`` of *archive*, and ``expected``."""
        for name in (_GROUND_TRUTH, archive):
            if name not in self._unpacked:
                unpack(_ARCHIVES / f"{name}.tar.xz", self._folder)
                self._unpacked.add(name)
        return self._folder

    def of(self, capture: Committed) -> Path:
        """The folder of *capture*."""
        return self(capture.archive) / capture.architecture / capture.variant


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack *archive*, a tar of captures, into *folder*, and return *folder*. Takes files alone, none outside of *folder*.

    Raises ConfigError where the archive has one that lies outside.
    """
    with tarfile.open(archive) as packed:
        # Not extractall(filter="data"): Python has that from 3.11.4 on, and Debian 12 has 3.11.2.
        for member in packed:
            if not member.isfile():
                continue
            path = folder / member.name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise ConfigError(f"{archive}: {member.name} lies outside of the folder that it is unpacked into")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = packed.extractfile(member)
            assert content is not None
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
    return folder
