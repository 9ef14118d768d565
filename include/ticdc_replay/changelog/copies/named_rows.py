"""Finds the rows of a changelog that came in messages which somebody names."""

from collections.abc import Collection
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.index import ChangelogIndex, DataFile
from ticdc_replay.changelog.files.reading import file_name
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.storage.base import ObjectStore

_PLACE = ["_topic", "_partition", "_offset", "_index"]


def places_with_rows(
    store: ObjectStore,
    index: ChangelogIndex,
    places: Collection[EventPlace],
    tables: Collection[TableName],
    window: Window | None = None,
) -> tuple[EventPlace, ...]:
    """Those of *places*, sorted, for which the changelog of *index* has a row of *tables*, committed in *window* if given.

    Reads narrow columns of the files of these topics; nothing without *places*. Raises ArtifactNotFoundError where one is gone.
    """
    if not places:
        return ()
    topics = {place.topic for place in places}
    filesystem, base = store.arrow_filesystem()
    found: set[EventPlace] = set()
    for version in index.tables:
        if version.schema.name not in tables:
            continue
        for file in version.files:
            if file.topic and file.topic not in topics:
                continue
            wanted = _wanted(file, places, window)
            path = f"{base}/{file_name(index, file)}"
            try:
                rows = pq.read_table(path, columns=_PLACE, filters=wanted, filesystem=filesystem, partitioning=None)
            except FileNotFoundError:
                raise ArtifactNotFoundError(
                    f"{path}, a file of changelog {index.run_hash}, is gone; decode the window again"
                ) from None
            for topic, partition, offset, ordinal in zip(*(rows[name].to_pylist() for name in _PLACE), strict=True):
                place = EventPlace(topic, partition, offset, ordinal)
                found |= {place, place.message}
    return tuple(sorted(found.intersection(places)))


def _wanted(file: DataFile, places: Collection[EventPlace], window: Window | None) -> Any:
    """What narrows the rows of *file* down: statistics of row groups show most groups to have none."""
    wanted = pc.field("_offset").isin(sorted({place.offset for place in places}))
    for part in (file.only, window):
        if part is not None:
            wanted &= (pc.field("_commit_ts") >= part.from_ts) & (pc.field("_commit_ts") < part.to_ts)
    return wanted
