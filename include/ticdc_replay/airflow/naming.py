"""What things are called in Airflow."""

AWAIT_WATERMARK = "await_watermark"
SNAPSHOT = "snapshot"
DECODE = "decode"
CHECK = "check"
PUBLISH = "publish"
SELECT = "select"

SURVEY = "survey"
SCAN = "scan"
LIST_OBJECTS = "list_objects"
RECONCILE = "reconcile"
REPORT = "report"
PLAN_DELETION = "plan_deletion"
ALERT = "alert"
CHOOSE_PLAN = "choose_plan"
APPROVE = "approve"
RECHECK = "recheck"
DELETE = "delete"


def dag_id(pipeline: str) -> str:
    """The DAG of *pipeline*."""
    return f"ticdc_replay_{pipeline}"


def quarantine_dag_id(pipeline: str) -> str:
    """The DAG for the quarantine of *pipeline*."""
    return f"{dag_id(pipeline)}_quarantine"


def maintain_dag_id(pipeline: str) -> str:
    """The DAG that maintains the lake tables of *pipeline*."""
    return f"{dag_id(pipeline)}_maintain"


def seed_dag_id(pipeline: str) -> str:
    """The DAG that fills the mirrors of *pipeline* from a dump."""
    return f"{dag_id(pipeline)}_seed"


def maintain_task_id(target: str) -> str:
    """The task that maintains the tables of *target*."""
    return f"maintain_{target}"


def verify_dag_id(pipeline: str) -> str:
    """The DAG that compares the mirrors of *pipeline* with the upstream."""
    return f"{dag_id(pipeline)}_verify"


def verify_task_id(target: str) -> str:
    """The task that compares the mirrors of *target*."""
    return f"verify_{target}"


def window_load_task_id(target: str) -> str:
    """The task of the quarantine DAG that loads a window's run into *target*, where it is not there yet."""
    return f"load_window_{target}"


def load_task_id(target: str) -> str:
    """The task that loads *target*."""
    return f"load_{target}"


def asset_name(pipeline: str, target: str) -> str:
    """The asset that each load of *target* updates, for DAGs that want to run after it."""
    return f"ticdc_replay/{pipeline}/{target}"


def store_dag_id(store: str) -> str:
    """The DAG that reconciles *store*."""
    return f"ticdc_replay_store_{store}"


def deletion_dag_id(store: str) -> str:
    """The DAG that deletes what a plan of *store* names."""
    return f"{store_dag_id(store)}_deletion"


def unusable_dag_id(kind: str, file: str) -> str:
    """The DAG that shows why *file* has none; *kind* is ``pipeline`` or ``store``."""
    return f"ticdc_replay_unusable_{kind}_{file}"


def store_asset_name(store: str) -> str:
    """The asset that each reconciliation of *store* updates, for DAGs that want to run after it."""
    return f"ticdc_replay_store/{store}"
