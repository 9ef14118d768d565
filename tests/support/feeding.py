"""A pipeline of three windows, and the mirror that they fill in a database or a lake: rebuilds are tested with it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.integration.snapshot.feed import at
from tests.support.dumpling_files import Table, Variant, write_dump
from tests.support.mirror_rig import TABLE, Rig
from tests.support.target_rigs import LakeRig, MirrorRig, PostgresRig
from ticdc_replay import jobspec
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.rebuild import Rebuilt, rebuild
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import ReplaceableMirror

WINDOWS = [(at(9), at(15)), (at(15), at(20)), (at(20), at(30))]
EXPECTED = [(1, "uno"), (3, "three"), (4, "four")]


class Feeding(msgspec.Struct):
    """A pipeline, and the database that its mirror lies in."""

    rig: Rig
    database: MirrorRig

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.database.rows("SELECT id, v FROM s.t ORDER BY id")

    def shape(self, shape: dict[str, Any] | None) -> None:
        """Give the table this shape in the target, or none."""
        section = self.rig._declared["targets"][0]
        section.pop("shape", None)
        if shape is not None:
            section["shape"] = [{"tables": ["s.t"], **shape}]
        self.rig.context.__exit__()
        self.rig.context = self.rig._context()

    @property
    def is_postgres(self) -> bool:
        return isinstance(self.database, PostgresRig)

    @property
    def is_lake(self) -> bool:
        return isinstance(self.database, LakeRig)

    @property
    def side(self) -> list[tuple[Any, ...]]:
        if isinstance(self.database, LakeRig):
            known = self.database.ledger / "mirrors.json"
            listed = json.loads(known.read_text())["mirrors"] if known.exists() else []
            tables = (self.database.folder / "tables").glob("ticdc_rebuild_*/*/metadata/*.json")
            return [each["target"]["schema"] for each in listed if each["target"]["schema"] != "s"] + list(tables)
        return self.database.rows(
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'ticdc_rebuild%'"
        )

    @property
    def ledger(self) -> list[tuple[Any, ...]]:
        if self.is_lake:
            mirror = opened_target(self.rig.context, "warehouse")
            assert isinstance(mirror, ReplaceableMirror)
            return [("s", "t", run.window.from_ts) for run in mirror.applied(TABLE)]
        return self.database.rows(
            "SELECT target_schema, target_table, from_ts FROM _ticdc_replay.ledger ORDER BY 1, 2, 3"
        )

    def loads(self, uri: str) -> list[str]:
        """The runs that the job at *uri* loads: a lake also has jobs that swap, and such of several windows."""
        job = jobspec.read(self.rig.context.artifacts, uri)
        jobs = job.jobs if isinstance(job, jobspec.Series) else [job]
        return [each.run_hash for each in jobs if isinstance(each, jobspec.LoadJob)]

    def drop(self) -> None:
        """Drop the mirror as a person would."""
        if isinstance(self.database, LakeRig) and self.database.kind == "delta":
            shutil.rmtree(self.database.folder / "tables" / "s" / "t")
        else:
            self.database.execute("DROP TABLE s.t")

    def replay(self, *numbers: int) -> None:
        for number in numbers:
            self.rig.replay(*WINDOWS[number])

    def replay_from(self, first: int, end: int) -> None:
        self.rig.replay(at(first) + 1, at(end))

    def remove_changelog(self, number: int) -> str:
        window = Window(*WINDOWS[number])
        (run,) = (each for each in self.rig.context.state.runs.all("shop") if each.window == window)
        open_store(self.rig.context.artifacts_uri).delete(f"runs/{run.run_hash}/index.json")
        return run.run_hash

    def rebuild(self, submit: Callable[[str], None] | None = None, **options: Any) -> Rebuilt:
        told: list[str] = []
        return rebuild(self.rig.context, "warehouse", TABLE, submit or self.rig._load, told.append, **options)


class KilledError(Exception):
    """The process dies here."""


CREATE = (
    "CREATE TABLE `{}` (\n  `id` bigint NOT NULL,\n  `v` varchar(100) DEFAULT NULL,\n  `w` varchar(10) DEFAULT NULL,\n"
    "  PRIMARY KEY (`id`)\n)"
)


def dumped(folder: Path, taken: int, *rows: tuple[bytes | None, ...], name: str = "t") -> Path:
    table = Table("s", name, CREATE.format(name), ["id", "v", "w"], ["number", "string", "string"], rows)
    return write_dump(folder, [table], taken, Variant())
