"""Rows of one name of Avro in several topics, which may be of different tables: such a window stops, and says where they are."""

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
    """Raise PermanentError where rows of one name come from several topics and names tell no tables apart.

    The rules send tables of that name to each of these topics (other rows are set aside, see ``placement.ForeignNames``), so
    both may be real: a person decides. The error names the messages of the topics that have the fewest of these rows, as far as
    they are few, for ``set_aside``. *results* are of splits as they were decoded, *root* is the folder of their files.
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
                f"may be rows of different tables, and nothing in them tells.{_listed(by_topic, filesystem, root)}\n"
                "Rows that are not of the upstream: name their messages in set_aside of the pipeline file, and decode the window "
                "anew. Where they are of different tables, replay each topic with a pipeline of its own; where it is one table "
                "that another rule sent elsewhere, end the window before that"
            )


def _listed(by_topic: dict[str, list[DataFile]], filesystem: Any, root: str) -> str:
    counts = {topic: sum(file.rows for file in files) for topic, files in by_topic.items()}
    rarest_first = sorted(counts, key=lambda topic: (counts[topic], topic))
    lines = []
    for topic in rarest_first:
        if topic == rarest_first[-1]:
            told = f"such as {_places(by_topic[topic], 1, filesystem, root)[0]}"
        else:
            places = _places(by_topic[topic], _SHOWN, filesystem, root)
            more = counts[topic] - len(places)
            told = ", ".join(places) + (f" and {more} more" if len(places) == _SHOWN and more else "")
        lines.append(f"\n- {counts[topic]} in {topic}: {told}")
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
