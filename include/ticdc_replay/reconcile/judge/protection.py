"""Which references protect their object, as their message can still be read: from Kafka, or as part of a pinned window."""

from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_replay.reconcile.judge.rules import Evidence, PartitionBounds


class Protections:
    """Which rows of ``records.REFERENCES`` protect their object. What is not known to be gone does."""

    def __init__(self, evidence: Evidence) -> None:
        self._bounds: dict[tuple[str, int], list[PartitionBounds]] = {}
        for bounds in evidence.partitions:
            self._bounds.setdefault((bounds.topic, bounds.partition), []).append(bounds)
        self._gone = frozenset(evidence.gone_topics)
        ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
        for part in evidence.protected:
            ranges.setdefault((part.topic, part.topic_id, part.partition), []).append((part.start, part.end))
        self._replayable = {place: np.array(parts, np.int64).T for place, parts in ranges.items()}

    def of(self, references: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """One bool a row of *references*, which has topic, topic_id, partition and offset."""
        topics, topic_ids = (references.column(name).dictionary_encode() for name in ("topic", "topic_id"))
        partitions, numbers = np.unique(references.column("partition").to_numpy(), return_inverse=True)
        offsets = references.column("offset").to_numpy()
        ids = topics.indices.to_numpy() * np.int64(len(topic_ids.dictionary)) + topic_ids.indices.to_numpy()
        places = ids * len(partitions) + numbers
        order = np.argsort(places, kind="stable")
        found, begins = np.unique(places[order], return_index=True)
        result = np.empty(len(offsets), bool)
        for place, rows in zip(found, np.split(order, begins)[1:], strict=True):
            id_, number = divmod(int(place), len(partitions))
            topic, topic_id = divmod(id_, len(topic_ids.dictionary))
            result[rows] = self._protects(
                topics.dictionary[topic].as_py(),
                topic_ids.dictionary[topic_id].as_py(),
                int(partitions[number]),
                offsets[rows],
            )
        return result

    def _protects(
        self, topic: str, topic_id: str, partition: int, offsets: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        known = self._bounds.get((topic, partition))
        protects = np.full(len(offsets), known is None and topic not in self._gone)
        if known is not None and topic not in self._gone:
            for bounds in known:
                if bounds.topic_id == topic_id:
                    protects |= offsets >= bounds.low
        if (ranges := self._replayable.get((topic, topic_id, partition))) is not None:
            starts, ends = ranges
            at = np.searchsorted(starts, offsets, side="right") - 1
            protects |= (at >= 0) & (offsets < ends[at])
        return protects
