"""The mirror in PostgreSQL: what the room ``mirror`` does, over PostgreSQL's sessions, types and COPY."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from ticdc_replay.targets.mirror.beside import BesideMirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons
from ticdc_replay.targets.mirror.followable import FollowableMirror
from ticdc_replay.targets.mirror.load import DatabaseMirror
from ticdc_replay.targets.mirror.staging import StageResult, StageTask
from ticdc_replay.targets.postgres.comparison import PostgresComparisons
from ticdc_replay.targets.postgres.database import PostgresDatabase
from ticdc_replay.targets.postgres.section import PostgresTarget
from ticdc_replay.targets.postgres.stage import stage


class PostgresMirror(
    PostgresDatabase,
    DatabaseMirror[PostgresTarget],
    FollowableMirror[PostgresTarget],
    BesideMirror[PostgresTarget],
    ComparableMirror[PostgresTarget],
):
    """Loads changelogs into PostgreSQL."""

    @contextmanager
    def comparisons(self) -> Iterator[Comparisons]:
        with closing(PostgresComparisons(self.settings)) as session:
            yield session

    @property
    def stage(self) -> Callable[[StageTask], StageResult]:
        return stage
