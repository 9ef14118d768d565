"""Definitions of tables out of dumps: they hold from the dump's TSO on, until DDL changes them."""

from collections.abc import Iterable, Iterator

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.stages.context import ReplayContext

_FOLDER = "bases/"


class BaseDefinitions(msgspec.Struct, frozen=True):
    """The definitions of the tables of a base, each valid from its TSO."""

    run_hash: str
    definitions: tuple[TableDefinition, ...]


def keep_definitions(context: ReplayContext, run_hash: str, definitions: Iterable[TableDefinition]) -> None:
    """Let later windows type rows by *definitions*, those of the base *run_hash*. Safe to repeat."""
    found = BaseDefinitions(run_hash, tuple(definitions))
    context.artifacts.put(f"{_FOLDER}{run_hash}.json", canonical.encode(found))


def base_epochs(context: ReplayContext) -> Iterator[Epoch]:
    """What the bases of the pipeline say of tables: rows of the dump's TSO are typed by them, and later ones."""
    for entry in context.artifacts.list(_FOLDER):
        kept = msgspec.json.decode(context.artifacts.get(entry.name), type=BaseDefinitions)
        for definition in kept.definitions:
            yield Epoch(definition.name, definition.valid_from, definition)
