"""A claim-check store with pipelines in files, reconciled by the pure rules, for tests of its deletion.

Spark and Kafka are left out: what they would find stands in the test. All else is what runs: artefacts, state, leases, the store.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.reconciliation_rules import ObjectFacts, Protection, classify_object, deletable
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.reconcile.delete import deletion_plan as plans
from ticdc_replay.reconcile.delete.audit import Audit
from ticdc_replay.reconcile.delete.results import Result, all_results
from ticdc_replay.reconcile.judge.classified import ClassifiedFile, ClassifiedIndex, classified_name
from ticdc_replay.reconcile.judge.records import CLASSIFIED_OBJECTS, CLASSIFIED_REFERENCES, OBJECTS
from ticdc_replay.reconcile.judge.rules import Evidence, PartitionBounds, ReplayableRange
from ticdc_replay.reconcile.look.survey import Survey, SurveyedFeed, put_survey
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.state.reconciliations import Reconciliation
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.store_stages import deletion, deletion_guards
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import put_evidence

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GRACE_DAYS = 7

LOW, HIGH = 100, 200
"""What Kafka retains of the one partition, unless a test says something else."""


def name(number: int) -> str:
    """A name as TiCDC gives it."""
    return f"{uuid.UUID(int=number)}.json"


@dataclass
class Clock:
    """What the program takes for now: the real time, and ``ahead_ms`` more."""

    ahead_ms: int = 30 * DAY_MS

    def __call__(self) -> int:
        return int(datetime.now(UTC).timestamp() * 1000) + self.ahead_ms

    def pass_days(self, days: float) -> None:
        self.ahead_ms += int(days * DAY_MS)

    def set_program_clock(self, set_attribute: Callable[[Any, str, Any], None]) -> None:
        """Have the deletion ask this clock."""
        for module in (deletion, deletion_guards):
            set_attribute(module, "now_ms", self)


@dataclass
class Scene:
    """A store below *folder*, whose claim-check objects are at *uri*. Objects are a month old from the beginning."""

    folder: Path
    uri: str
    connection: Connection | None = None
    clock: Clock = field(default_factory=Clock)
    opened: list[StoreContext] = field(default_factory=list)
    _store: tuple[Any, ObjectStore] | None = None

    def __post_init__(self) -> None:
        self.pipelines = self.folder / "pipelines"
        self.pipelines.mkdir(exist_ok=True)
        self.file = self.folder / "claims.yaml"
        self.write_pipeline("shop")
        self.write()

    def write_pipeline(self, pipeline: str) -> None:
        large = f'large-message-handle-option = "claim-check"\nclaim-check-storage-uri = "{self.uri}"'
        document = {
            "name": pipeline,
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{pipeline}?protocol=open-protocol",
                "timezone": "UTC",
                "config": f"[sink.kafka-config.large-message-handle]\n{large}\n",
            },
            "connections": {"kafka": "kafka", **({} if self.connection is None else {"claim_check": "s3"})},
            "artifacts": (self.folder / "lake").as_uri(),
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "targets": [{"name": "lake", "type": "parquet", "uri": (self.folder / "out").as_uri()}],
        }
        (self.pipelines / f"{pipeline}.yaml").write_text(yaml.safe_dump(document))

    def write(self, policy: str = "approval", **changes: Any) -> None:
        """Write the store's file; *changes* replace keys of its top level."""
        ids = {} if self.connection is None else {"store": "s3", "undo": "s3_undo"}
        if self.connection is not None and policy != "never":
            ids["deletion"] = "s3_delete"
        document = {
            "name": "claims",
            "uri": self.uri,
            "pipelines": ["shop"],
            "owners_complete": True,
            "connections": ids,
            "artifacts": (self.folder / "lake").as_uri(),
            "schedule": {"start": "2026-03-01T00:00:00Z"},
            "deletion": {"policy": policy, "grace_hours": GRACE_DAYS * 24},
            "rules": {"clock_skew_seconds": 60},
        }
        self.file.write_text(yaml.safe_dump({**document, **changes}))

    @property
    def context(self) -> StoreContext:
        """The store as its files say now, as another process sees it."""
        known = {} if self.connection is None else dict.fromkeys(("s3", "s3_delete", "s3_undo"), self.connection)
        self.opened.append(StoreContext(load_store(self.file, self.pipelines), Connections(known)))
        return self.opened[-1]

    def close(self) -> None:
        for context in self.opened:
            context.__exit__()

    @property
    def store(self) -> ObjectStore:
        if self._store is None or self._store[0] != (self.uri, self.connection):
            self._store = (self.uri, self.connection), open_store(self.uri, self.connection)
        return self._store[1]

    @property
    def artifacts_folder(self) -> Path:
        return self.folder / "lake" / "claims"

    @property
    def artifacts(self) -> ObjectStore:
        return open_store(self.artifacts_folder.as_uri(), None)

    def put(self, *numbers: int) -> list[str]:
        names = [name(number) for number in numbers]
        for each in names:
            self.store.put(each, f"object {each}".encode())
        return names

    def names(self) -> set[str]:
        return {found.name for found in self.store.list()}

    def evidence(self, **changes: Any) -> Evidence:
        """What a reconciliation finds out now; *changes* replace fields."""
        now = self.clock()
        fields: dict[str, Any] = {
            "bounds_ms": now,
            "listed_ms": now,
            "partitions": (PartitionBounds("shop", "id", 0, LOW, HIGH, now - 60 * DAY_MS),),
            "young_ms": 24 * HOUR_MS,
            "skew_ms": 60_000,
            "grace_ms": GRACE_DAYS * DAY_MS,
            "owners_complete": True,
            "unread_offsets": 0,
        }
        return Evidence(**{**fields, **changes})

    def reconcile(
        self,
        references: Mapping[str, int],
        copies: Sequence[str] = (),
        *,
        totals: Mapping[str, int] = {},
        **changes: Any,
    ) -> str:
        """Reconcile the store, to which the messages at these offsets refer. *copies* hold rows whose own objects are missing."""
        versions = any(found.version_id for found in self.store.deletion().list_versions())
        listing = self.store.deletion().list_versions() if versions else self.store.list()
        objects = [
            (found.name, found.size, found.etag, int(found.last_modified.timestamp() * 1000), found.version_id)
            for found in listing
        ]
        made = self._judge(objects, references, self.evidence(**changes), None, copies)
        self.context.state.reconciliations.record(
            Reconciliation(
                store="claims", reconciliation_id=made, began_at_ms=self.clock(), finished_at_ms=self.clock(),
                report="", totals=dict(totals),
            )
        )  # fmt: skip
        return made

    def plan(self, references: Mapping[str, int] = {}, approve: bool = True, **changes: Any) -> DeletionPlanRecord:
        """Reconcile, plan, have it approved, and wait until it is due."""
        context = self.context
        record = deletion.make_plan(context, self.reconcile(references, **changes))
        assert record is not None
        if approve:
            record = deletion.decide(context, record.plan_hash, True, "Ada", "looked at it")
        self.clock.pass_days(GRACE_DAYS + 1)
        return record

    def recheck(
        self, plan_hash: str, references: Mapping[str, int] = {}, pipelines: Sequence[str] = ("shop",), **changes: Any
    ) -> str:
        """Judge the plan's objects by the references of now."""
        rows = [
            tuple(row[column] for column in OBJECTS.names)
            for file in plans.read_plan(self.artifacts, plan_hash).file_names()
            for row in pq.read_table(pa.BufferReader(self.artifacts.get(file))).to_pylist()
        ]
        return self._judge(rows, references, self.evidence(**changes), plan_hash, (), pipelines)

    def execute(self, plan_hash: str, references: Mapping[str, int] = {}, **changes: Any) -> Audit:
        """Recheck the plan and execute it."""
        return deletion.execute(self.context, plan_hash, self.recheck(plan_hash, references, **changes))

    def results(self, plan_hash: str) -> dict[str, Result]:
        """The result of each object of the plan."""
        return {found: result for part in all_results(self.artifacts, plan_hash) for found, result in part.items()}

    def _judge(
        self,
        objects: Sequence[tuple[Any, ...]],
        references: Mapping[str, int],
        evidence: Evidence,
        plan_hash: str | None,
        copies: Sequence[str],
        pipelines: Sequence[str] = ("shop",),
    ) -> str:
        protection = Protection(evidence)
        rows = []
        for found, size, etag, modified, version in objects:
            offset = references.get(found)
            protecting = offset is not None and protection.protects("shop", "id", 0, offset)
            facts = ObjectFacts(offset is not None, int(protecting), False)
            verdict = classify_object(evidence, found, size, modified, facts)
            may_go = deletable(evidence, verdict.kind, modified)
            known = ("s", "t") if offset is not None else (None, None)
            rows.append(
                (found, size, etag, modified, version, verdict.kind, verdict.reason, int(offset is not None),
                 int(protecting), *known, may_go)
            )  # fmt: skip
        lost = [
            {
                **dict.fromkeys(CLASSIFIED_REFERENCES.names),
                "object_name": name(999),
                "pipeline": "shop",
                "topic": "shop",
                "topic_id": "id",
                "partition": 0,
                "offset": LOW,
                "ordinal": 0,
                "schema": "s",
                "table": "t",
                "status": "seen",
                "source": "scan",
                "class": "missing",
                "protecting": True,
                "other_object": copy,
            }
            for copy in copies
        ]
        return self.write_classified(rows, lost, evidence, plan_hash, pipelines)

    def write_classified(
        self,
        rows: Sequence[tuple[Any, ...]],
        lost: Sequence[dict[str, Any]],
        evidence: Evidence,
        plan_hash: str | None,
        pipelines: Sequence[str] = ("shop",),
    ) -> str:
        """Put what a join leaves of objects (``CLASSIFIED_OBJECTS``) and references (``CLASSIFIED_REFERENCES``); its id."""
        artifacts = self.artifacts
        survey = Survey(
            store="claims",
            uri=self.uri,
            bounds_ms=evidence.bounds_ms,
            feeds=tuple(
                SurveyedFeed(
                    pipeline=each, cluster_id="c", partitions=evidence.partitions, gone_topics=(), unsearched=()
                )
                for each in pipelines
            ),
        )
        made = uuid.uuid4().hex
        folder = f"{'rechecks' if plan_hash else 'reconciliations'}/{made}"
        columns = list(zip(*rows, strict=True)) or [()] * len(CLASSIFIED_OBJECTS)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, CLASSIFIED_OBJECTS, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=CLASSIFIED_OBJECTS)
        write_parquet(artifacts, f"{folder}/objects/0.parquet", table)
        write_parquet(artifacts, f"{folder}/references/0.parquet", pa.Table.from_pylist(lost, CLASSIFIED_REFERENCES))
        classified = ClassifiedIndex(
            store="claims",
            id=made,
            survey=put_survey(artifacts, survey),
            evidence=put_evidence(artifacts, evidence),
            inventory=None,
            plan_hash=plan_hash,
            objects=(ClassifiedFile(f"{folder}/objects/0.parquet", len(rows)),),
            references=() if plan_hash else (ClassifiedFile(f"{folder}/references/0.parquet", len(lost)),),
            summary=None,
        )
        artifacts.put_once(classified_name(folder), canonical.encode(classified))
        return made


def write_parquet(artifacts: ObjectStore, file: str, table: pa.Table) -> None:
    """Put *table*, replacing what is there."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    artifacts.put(file, sink.getvalue().to_pybytes())


def changed(artifacts: ObjectStore, file: str, **columns: Any) -> None:
    """Change columns of the first row of a Parquet file."""
    rows = pq.read_table(pa.BufferReader(artifacts.get(file)))
    first, *rest = rows.to_pylist()
    write_parquet(artifacts, file, pa.Table.from_pylist([{**first, **columns}, *rest], rows.schema))


def with_clock(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """*scene*, whose clock is the program's until it is closed; plans have two objects a file."""
    scene.clock.set_program_clock(monkeypatch.setattr)
    monkeypatch.setattr(plans, "FILE_ROWS", 2)
    yield scene
    scene.close()


def expired(start: int, end: int) -> ReplayableRange:
    """Offsets of messages that Kafka has expired, which somebody reads all the same."""
    return ReplayableRange("shop", "id", 0, start, end)


def replaced(value: Any, **changes: Any) -> Any:
    """*value* with other fields."""
    return msgspec.structs.replace(value, **changes)
