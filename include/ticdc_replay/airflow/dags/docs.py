"""The texts that Airflow shows beside a DAG and its tasks: what a person on call wants to know."""

from ticdc_replay.airflow.markdown import cell, plain
from ticdc_replay.airflow.naming import asset_name
from ticdc_replay.config.load import LoadedPipeline
from ticdc_replay.config.target_section import TargetSection

AWAIT_WATERMARK = """
Waits, without a worker slot, until **every live partition has carried a resolved-ts at or after the window's end**: before
that, the window is not complete in Kafka.

*It stays deferred:* TiCDC lags or its changefeed is stopped. The triggerer's log shows which partitions lag.
"""

SNAPSHOT = """
Pins the window: which offsets of which partitions are read, and which claim-check objects exist. The **manifest** is
written once; a repeat of the run reads exactly the same. The XCom names it and its counts.

In a dry run it only shows in its log what the run would read, how long it would take and what would stop it.

*It fails with ExpiredRangeError:* Kafka's retention has removed a part, and no changelogs hold the window; the message has the
oldest time that is left, and the parts of the window that nothing holds.
"""

DECODE = """
A Spark job: reads the pinned offsets, decodes them, fetches large messages and drops duplicates. Its result is a
**changelog** of Parquet files, a report in which every message is accounted for, and a quarantine of what can't be decoded.
Of a window that is taken from other changelogs it reads nothing but these. Skipped in a dry run.

*It waits:* another run decodes what this window shares with it (`window.decode_hours`).
"""

CHECK = """
Compares the report with the pipeline's **policies** before a target is touched.

*It fails with PolicyStopError:* the message lists what is in quarantine, where to look at it, and how to go on.
"""

PUBLISH = """
Records which window is loaded in which target, keeps the run's report beside the changelog, and emits lineage.
"""

SELECT = """
Finds what the form chose in the pipeline's quarantine. To **list**, it shows the groups in its log and skips the other tasks. To
**accept**, it records the loss in your name. To **redrive**, it pins the messages, with their bytes out of the quarantine files.
"""

DECODE_AGAIN = """
A Spark job: decodes the pinned messages with the version and the configuration of now, looks for their claim-check objects
again, and leaves a changelog of its own. Kafka is not asked.
"""

CHECK_REDRIVE = """
Records what came out. What could not be used again stays in quarantine, and stops nothing.

*It fails with PolicyStopError:* the window's own run is not loaded yet, and something else in its quarantine still stops it.
"""

LOAD_WINDOW = """
A Spark job: loads the window's own run first, where its check had stopped it before this target was reached. Otherwise skipped.
"""

PUBLISH_REDRIVE = """
Records the window's new coverage: complete if nothing is left in quarantine, or if what is left was accepted as lost.
"""

_QUARANTINE = """
### Quarantine of {name}

What could not be used of this changefeed, and the ways back: **Trigger** with the form, which begins with listing.
`docs/quarantine.md` explains each reason and each way. `ticdc-replay quarantine` does the same from a shell, and also shows the
bytes of each message.
"""

MAINTAIN = """
A Spark job: compacts the tables of one target, and removes old snapshots, orphan files and replaced deletes. Loads may run
meanwhile. Repeating it is harmless.
"""

PIN_DUMP = """
Looks at the dump: its tables, its files, and the TSO of its snapshot. The list of files is written once; a repeat of the run
reads the same files. Checks that Kafka, or changelogs up to where Kafka begins, hold all that committed after that TSO.

*It fails with ConfigError:* the dump is not of a snapshot of TiDB, or the form lacks what no file of a dump says.
"""

READ_DUMP = """
A Spark job: reads the files of the dump, a task for each, into a **changelog** of that TSO alone. One that is complete is not
read again.

*It fails with WrongRowError:* the message has the file and the row. Often an option of the form is not what Dumpling was given.
"""

CHECK_BASE = """
Records the changelog, and the definitions that the dump's tables have from its TSO on.
"""

_SEED = """
### {name}, base load

Fills empty mirrors of pipeline `{name}` from a dump by Dumpling: **Trigger** with the form. Older windows change nothing in them
afterwards, and newer ones continue from there. `ticdc-replay mirror seed` does the same from a shell. `docs/seed.md` explains
what Dumpling must be given.
"""

_MAINTAIN = """
### {name}, maintenance

Keeps the lake tables of pipeline `{name}` small and fast to read. `maintenance` of a target says what is kept, and when this
DAG runs. `ticdc-replay maintain` does the same from a shell. `docs/operations.md` explains each step.
"""

VERIFY = """
Compares the mirrors of one target with the upstream as of the end of what is loaded, by checksums in both databases. Fails and
names what differs, if anything does. Loads may run meanwhile.
"""

_VERIFY = """
### {name}, comparison with the upstream

Are the mirrors of pipeline `{name}` what the upstream was? **Trigger** with the form. `ticdc-replay verify` does the same from a
shell. `docs/verify.md` explains what is compared, and what a difference means.
"""

_LOAD = """
A Spark job: loads the changelog into target **{target}** ({kind}). Repeating it is harmless: a ledger knows what is loaded,
and no row is replaced by an older version of itself.

The loads of this DAG into it run one at a time. Each updates the asset `{asset}`.
"""

_DAG = """
### {name}

{description}

| | |
|---|---|
| topic | {topic} |
| protocol | {protocol} |
| tables | {tables} |
| targets | {targets} |
| artefacts | {artifacts} |
| file | {file} |

A run replays one **window** of commit time: the schedule's interval, or From and To of the trigger form. To load a stretch of
the past, use **Backfill**. All artefacts of a run are kept; running a window again reads what was pinned the first time.
{warnings}"""


def dag(loaded: LoadedPipeline) -> str:
    """The page of the DAG."""
    pipeline = loaded.pipeline
    warnings = "".join(f"\n* {plain(warning)}" for warning in loaded.warnings)
    return _DAG.format(
        name=pipeline.name,
        description=pipeline.description,
        topic=cell(loaded.changefeed.topic),
        protocol=cell(loaded.changefeed.protocol),
        tables=", ".join(cell(pattern) for pattern in pipeline.tables),
        targets=", ".join(f"{target.name} ({cell(target.description)})" for target in pipeline.targets),
        artifacts=cell(pipeline.artifacts),
        file=cell(str(loaded.path)),
        warnings=f"\n**Notes on the configuration**\n{warnings}\n" if warnings else "",
    )


def quarantine(pipeline: str) -> str:
    """The page of the quarantine DAG."""
    return _QUARANTINE.format(name=pipeline)


def maintain(pipeline: str) -> str:
    """The page of the DAG that maintains lake tables."""
    return _MAINTAIN.format(name=pipeline)


def seed(pipeline: str) -> str:
    """The page of the DAG that fills mirrors from a dump."""
    return _SEED.format(name=pipeline)


def verify(pipeline: str) -> str:
    """The page of the DAG that compares mirrors with the upstream."""
    return _VERIFY.format(name=pipeline)


def load(pipeline: str, target: TargetSection) -> str:
    """The page of the task that loads *target*."""
    return _LOAD.format(
        target=target.name,
        kind=cell(target.description),
        asset=asset_name(pipeline, target.name),
    )
