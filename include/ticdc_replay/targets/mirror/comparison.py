"""What the comparison of a mirror with its source asks of the mirror's database."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.mirror.planning.tables import FoundTable, Relation, TableState
from ticdc_replay.targets.mirror.upkeep import Config, KeptMirror
from ticdc_replay.targets.sql import Sql
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn, MirrorSide, ScannedSide


class MirrorTable(msgspec.Struct, frozen=True):
    """A mirror as catalogue and ledger have it; ``found`` is None for a table that does not exist."""

    relation: Relation
    found: FoundTable | None
    state: TableState
    version_column: str


class Comparisons(ABC):
    """A session that only reads, for the comparison of one table after the other."""

    @abstractmethod
    def forms(self, type_name: str) -> frozenset[Form]:
        """The forms that cells of a type, as the catalogue has it, can be compared in."""

    @abstractmethod
    def side(
        self, table: MirrorTable, columns: Sequence[ComparedColumn], key: Sequence[int]
    ) -> MirrorSide | ScannedSide:
        """*table* as a side of a comparison of *columns*; *key* are the places of the key's columns among them."""

    def version_of(self, table: MirrorTable) -> str:
        """The snapshot id or version of *table* that its side compares; empty if each statement reads what is there then."""
        return ""


class ComparableMirror(KeptMirror[Config]):
    """A mirror that can be compared with its source."""

    sql: Sql | None = None
    """Spark SQL, in the driver of a job; None elsewhere, where tables that Spark alone can look at are not found."""

    def mirrored(self, pipeline: str) -> list[TableName]:
        """The upstream's tables that *pipeline*, or another one of the same upstream, has loaded here; sorted."""
        with self.session("look up the mirrors") as session:
            found = session.ledger.mirrors()
        own = (pipeline, *self.config.same_upstream_as)
        return sorted(name for name, target, loader in found if loader in own and target == self._target(name))

    def mirror_of(self, table: TableName) -> MirrorTable | None:
        """The mirror of *table* as it is now; None if no load has touched it."""
        target = self._target(table)
        with self.session(f"look up {target}") as session:
            state, found = session.ledger.state_of(target), session.find_table(target)
        if state is None:
            return None
        return MirrorTable(target, found, state, self.dialect.fit(self.config.commit_ts_column))

    @abstractmethod
    def comparisons(self) -> AbstractContextManager[Comparisons]:
        """A session for comparisons. Raises what ``side.Side`` raises, and ConfigError if it needs ``sql`` and there is none."""
