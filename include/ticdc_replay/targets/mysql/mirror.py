"""The mirror in MySQL, TiDB or MariaDB: what the room ``mirror`` does, over sessions, types and bulk loads of these."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from ticdc_replay.targets.mirror.beside import BesideMirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons
from ticdc_replay.targets.mirror.followable import FollowableMirror
from ticdc_replay.targets.mirror.load import DatabaseMirror
from ticdc_replay.targets.mirror.staging import StageResult, StageTask
from ticdc_replay.targets.mysql.comparison import MysqlComparisons
from ticdc_replay.targets.mysql.database import MysqlDatabase
from ticdc_replay.targets.mysql.section import MysqlTarget
from ticdc_replay.targets.mysql.stage import stage


class MysqlMirror(
    MysqlDatabase,
    DatabaseMirror[MysqlTarget],
    FollowableMirror[MysqlTarget],
    BesideMirror[MysqlTarget],
    ComparableMirror[MysqlTarget],
):
    """Loads changelogs into MySQL, TiDB or MariaDB."""

    @contextmanager
    def comparisons(self) -> Iterator[Comparisons]:
        with closing(MysqlComparisons(self.settings)) as session:
            yield session

    @property
    def stage(self) -> Callable[[StageTask], StageResult]:
        return stage
