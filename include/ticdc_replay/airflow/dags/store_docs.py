"""The texts that Airflow shows beside a store's DAGs and their tasks: what a person on call wants to know."""

from ticdc_replay.airflow.markdown import cell
from ticdc_replay.config.load_store import LoadedStore

SURVEY = """
Reads which offsets **Kafka retains** of every topic of all changefeeds of the store, and which of them a decode or a scan has
searched for references. Everything that follows is judged as of this moment.
"""

SCAN = """
A Spark job: searches the retained offsets that nobody has searched, for references only; no row is decoded. Skipped where
there are none. What was scanned once is not scanned again.
"""

LIST_OBJECTS = """
Takes the **inventory**: every object of the store, by listing it or from S3's own inventory reports. No object is read.

*It fails with a message about the report's age:* S3 has not delivered a report for `inventory.max_age_hours`.
"""

RECONCILE = """
A Spark job: joins the inventory with every known reference. Each object and each reference gets its class; the lists lie beside
the report, as Parquet. It changes nothing in the store.
"""

REPORT = """
Writes the **report**: counts and bytes per class, day and table, and alerts. The tab *Store* shows it, and the trend. Its
lineage carries the metrics and the checks of the store's data quality. Updates the store's asset.
"""

ALERT = """
Fails where the report has alerts, and names the first of them. Everything before it has worked; do not clear the run, read the
alert. A **missing** object is a row that a replay lacks: the alert shows where the row is still available.
"""

PLAN_DELETION = """
Puts what may be deleted on a **plan**: immutable, named by its hash, each object with reason and ETag. Nothing is deleted by
this. Skipped where nothing may be deleted, or the form does not ask for it.
"""

CHOOSE_PLAN = """
Finds the plan: the one that the form names, or the oldest one whose grace period is over and that nobody rejected. The rest of
the run is skipped where there is none.
"""

APPROVE = """
Waits, without a worker slot, for **a person's answer** under *Required actions*. It is recorded with the name. *Reject* ends
the run, and the plan: the next reconciliation makes another. Passes at once where the plan was approved on the command line.
"""

RECHECK = """
A Spark job: judges the plan's objects once more, against every reference that is known **now**, and what may be replayed now.
"""

DELETE = """
Deletes the objects that are on the plan *and* were found deletable again, each only while it has the ETag of the plan. Stops
before the next object when a replay begins that needs expired messages, or when its lease is lost. **Clear this task** to go
on: what has a result is not done again.

The **audit record** and the result of each object lie below the store's artefacts, in `deletions`. On a bucket with versions
`ticdc-replay deletion undo` brings objects back.

*It fails because the check is too old:* clear the run from `survey` on.
"""

DELETION_ALERT = """
Fails where the store refused to delete objects of the plan, or denied it, and names the first of them. Everything else was
deleted; these objects are planned again by a later reconciliation. Check the rights of `connections.deletion`.
"""

_STORE = """
### Store {name}

{description}

| | |
|---|---|
| objects | {uri} |
| pipelines | {pipelines} |
| all owners known | {owners} |
| artefacts | {artifacts} |
| deletion | {deletion} |
| file | {file} |

Finds for each claim-check object whether a message needs it, and for each message whether its object is there. **It deletes
nothing.** See the tab *Store* for what was found.
"""

_DELETION = """
### Deletion in store {name}

Deletes what a plan of `ticdc_replay_store_{name}` names: {deletion}. Each object is checked again before.
"""

_POLICIES = {
    "never": "never: nothing is planned",
    "approval": "after {grace} hours, when a person has approved the plan",
    "automatic": "after {grace} hours, without asking",
}


def store(loaded: LoadedStore) -> str:
    """The page of the DAG that reconciles."""
    store = loaded.store
    return _STORE.format(
        name=store.name,
        description=store.description,
        uri=cell(store.uri),
        pipelines=", ".join(cell(name) for name in store.pipelines),
        owners="yes" if loaded.owners_complete else "no: nothing may be deleted",
        artifacts=cell(store.artifacts),
        deletion=_policy(loaded),
        file=cell(str(loaded.path)),
    )


def deletion(loaded: LoadedStore) -> str:
    """The page of the DAG that deletes."""
    return _DELETION.format(name=loaded.store.name, deletion=_policy(loaded))


def _policy(loaded: LoadedStore) -> str:
    section = loaded.store.deletion
    return _POLICIES[section.policy].format(grace=section.grace_hours)
