"""What the demo's reconciliation found, held against what was done to the store."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from rich.console import Console
from rich.table import Table

from demo.sample import ageing, contents
from demo.sample.ageing import Aged

SHOWN = 5


class Reconciled(NamedTuple):
    """The store after a reconciliation: the class of each object, with its bytes, and how many references have which class."""

    objects: dict[str, tuple[str, int]]
    references: Counter[str]
    alerts: Sequence[str]
    aged: Aged

    @property
    def differences(self) -> list[str]:
        """Objects whose class is not the one they must have, and what else is not as it must be; for people."""
        expected = dict(_expected(self.aged))
        found = {name: kind for name, (kind, _) in self.objects.items()}
        wrong = [
            f"{name}: {found.get(name, 'not listed')}, {expected.get(name, 'nothing')} expected"
            for name in sorted(expected.keys() | found.keys())
            if found.get(name) != expected.get(name)
        ]
        kinds = ("present", "duplicate", "missing", "altered")
        wrong += [f"no reference is {kind}" for kind in kinds if not self.references[kind]]
        if not any(self.aged.removed in alert for alert in self.alerts):
            wrong.append(f"no alert says that {self.aged.removed} is missing")
        return wrong

    @property
    def right(self) -> bool:
        """Whether everything has the class that it must have."""
        return not self.differences


def read(filesystem: FileSystem, folder: str, aged: Aged, alerts: Sequence[str]) -> Reconciled:
    """What the reconciliation whose files are in *folder* of *filesystem* says of the store to which *aged* was done."""
    objects = pq.read_table(f"{folder}/objects", columns=["name", "class", "size"], filesystem=filesystem)
    references = pq.read_table(f"{folder}/references", columns=["class"], filesystem=filesystem)
    kinds = zip(objects["class"].to_pylist(), objects["size"].to_pylist(), strict=True)
    return Reconciled(
        dict(zip(objects["name"].to_pylist(), kinds, strict=True)),
        Counter(references["class"].to_pylist()),
        alerts,
        aged,
    )


def show(console: Console, reconciled: Reconciled) -> None:
    """Print it."""
    table = Table(title="Claim-check objects", title_justify="left")
    for heading in ("class", "objects", "bytes"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    kinds = Counter(kind for kind, _ in reconciled.objects.values())
    for kind in sorted(kinds):
        size = sum(size for found, size in reconciled.objects.values() if found == kind)
        table.add_row(kind, f"{kinds[kind]:,}", f"{size:,}")
    console.print(table)
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(reconciled.references.items()))
    console.print(f"References: {counted}")
    for alert in reconciled.alerts:
        console.print(f"Alert raised, as it must be: {alert}", style="yellow", markup=False)
    for difference in reconciled.differences[:SHOWN]:
        console.print(f"  {difference}", style="red", markup=False)
    if reconciled.right:
        console.print("Every object has the class that it must have, and the damage was found.", style="bold green")
    else:
        console.print("The reconciliation differs from what was done to the store.", style="bold red")


def _expected(aged: Aged) -> Iterator[tuple[str, str]]:
    for each in contents.objects():
        if each.name != aged.removed:
            yield each.name, "orphaned" if each.orphan else "expired" if each.name == aged.expired else "referenced"
    yield from ((name, "foreign") for name in ageing.FOREIGN)
    yield ageing.EMPTY, "malformed"
    yield ageing.YOUNG, "too_young"
