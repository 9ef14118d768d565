"""Avro rows with one name in several topics may be of different tables: the decode stops and lists where they are."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.decode.plan.tasks import SplitResult
from ticdc_replay.domain.errors import PermanentError

_SHOWN = 20
_PLACE = ["_topic", "_partition", "_offset"]


def refuse_shared_names(changefeed: Changefeed, results: Sequence[SplitResult], filesystem: Any, root: str) -> None:
    """Raise PermanentError if rows with one Avro name come from several topics.

    The rules send tables with that name to each of these topics (see ``placement.ForeignNames`` for other rows), so a person
    decides. The error lists messages for ``set_aside``, from the topics with the fewest rows. *root* is the folder of the files
    that *results* name.
    """
    if not changefeed.traits.avro_names:
        return
    tables: defaultdict[str, defaultdict[str, list[DataFile]]] = defaultdict(lambda: defaultdict(list))
    for file in (file for result in results for file in result.files):
        tables[str(file.schema.name)][file.file.topic].append(file.file)
    for table, by_topic in sorted(tables.items()):
        if len(by_topic) > 1:
            raise PermanentError(
                f"{table} has rows in topics {', '.join(sorted(by_topic))}: Avro's names have _ for other characters, so these "
                f"may be rows of different tables, and nothing in them shows which.{_listed(by_topic, filesystem, root)}\n"
                "Rows that are not of the upstream: name their messages in set_aside of the pipeline file, and decode the window "
                "again. Where they are of different tables, replay each topic with a pipeline of its own; where it is one table "
                "that another rule sent elsewhere, end the window before that"
            )


def _listed(by_topic: dict[str, list[DataFile]], filesystem: Any, root: str) -> str:
    counts = {topic: sum(file.rows for file in files) for topic, files in by_topic.items()}
    rarest_first = sorted(counts, key=lambda topic: (counts[topic], topic))
    lines = []
    for topic in rarest_first:
        if topic == rarest_first[-1]:
            shown = f"such as {_places(by_topic[topic], 1, filesystem, root)[0]}"
        else:
            places = _places(by_topic[topic], _SHOWN, filesystem, root)
            more = counts[topic] - len(places)
            shown = ", ".join(places) + (f" and {more} more" if len(places) == _SHOWN and more else "")
        lines.append(f"\n- {counts[topic]} in {topic}: {shown}")
    return "".join(lines)


def _places(files: Sequence[DataFile], most: int, filesystem: Any, root: str) -> list[str]:
    """Where the first rows of *files* stand in Kafka, *most* at most; an UPDATE of the key has one place for its two rows."""
    places: dict[str, None] = {}
    for file in sorted(files, key=lambda file: file.name):
        with pq.ParquetFile(f"{root}/{file.name}", filesystem=filesystem) as opened:
            for batch in opened.iter_batches(1_024, columns=_PLACE):
                for topic, partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    places[f"{topic}[{partition}]@{offset}"] = None
                    if len(places) == most:
                        return list(places)
    return list(places)
