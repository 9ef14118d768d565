"""Splits that are decoded with the native extension and without it: both have to write the same, byte for byte."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import pytest

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext, SplitResult
from ticdc_replay.decode.read import native, split
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.extension import SWITCH, native_extension
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.schemas.history import SchemaHistory

EVER = Window(1, (1 << 63) - 1)
LIMITS = Limits(
    split_bytes=1 << 30,
    claim_check_max_bytes=1 << 26,
    claim_check_in_flight_bytes=1 << 26,
    claim_check_connections=4,
    decompressed_max_bytes=1 << 22,
    file_rows=1_000_000,
)


class Written(NamedTuple):
    """What a split came to: the result, its files by name, and how many messages and objects the extension took."""

    result: SplitResult
    files: dict[str, bytes]
    taken: int
    objects: int


class Stem:
    hex = "0" * 32


@contextmanager
def writing(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Written]]:
    """Decodes messages with and without the extension, which has met all their forms before."""
    monkeypatch.setattr(split, "uuid4", Stem)
    native_extension.cache_clear()

    def run(
        messages: Sequence[RawMessage],
        changefeed: Changefeed,
        history: SchemaHistory,
        *,
        on: bool,
        window: Window = EVER,
        tables: Sequence[str] = ("*.*",),
        file_rows: int = LIMITS.file_rows,
    ) -> Written:
        folder = tmp_path_factory.mktemp("changelog")
        monkeypatch.setenv(SWITCH, "on" if on else "off")
        native_extension.cache_clear()
        job = DecodeJob(
            library_version="0",
            pipeline="pipeline",
            artifacts=folder.as_uri(),
            artifacts_connection=None,
            kafka_connection="kafka",
            claim_check_connection=None,
            manifest="",
            input_hash="0" * 64,
            changefeed=changefeed,
            tables=tuple(tables),
            limits=msgspec.structs.replace(LIMITS, file_rows=file_rows),
        )
        part = Split(0, (OffsetRange("topic", 0, 0, 1),), {"topic": 3})
        decoder = SplitDecoder(part, SplitContext(Attempt("attempt"), job, window, history, Connections()))
        left: list[int] = []
        objects: list[bool] = []
        if decoder._native is not None:
            for message in messages:
                decoder._native.learn(message, decoder._decode(message))
            read = decoder._native.read

            def watched(some: Sequence[RawMessage]) -> native.Took:
                took = read(some)
                left.extend(took.left)
                return took

            read_object = decoder._native.read_object

            def watched_object(message: RawMessage, small: RowEvent, content: bytes) -> bool:
                objects.append(read_object(message, small, content))
                return objects[-1]

            monkeypatch.setattr(decoder._native, "read", watched)
            monkeypatch.setattr(decoder._native, "read_object", watched_object)
        for _, alike in groupby(messages, key=lambda message: message[:2]):
            decoder.add(list(alike))
        result = decoder.finish()
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }
        return Written(result, files, len(messages) - len(left) if on else 0, sum(objects))

    yield run
    native_extension.cache_clear()


def both(write: Callable[..., Written], *arguments: Any, **options: Any) -> Written:
    """What the extension wrote, which is what Python alone does."""
    alone, fast = write(*arguments, on=False, **options), write(*arguments, on=True, **options)
    assert fast.result == alone.result
    assert fast.files.keys() == alone.files.keys()
    assert [name for name, content in fast.files.items() if content != alone.files[name]] == []
    return fast
