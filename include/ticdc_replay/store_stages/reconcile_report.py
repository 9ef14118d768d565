"""The last step of a reconciliation: its report."""

import time
from contextlib import suppress

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactExistsError
from ticdc_replay.reconcile.judge.classified import read_classified, reconciliation_folder
from ticdc_replay.reconcile.judge.report import Previous, ReconciliationReport, read_report, report_name
from ticdc_replay.reconcile.look.survey import read_survey
from ticdc_replay.state.reconciliations import Reconciliation
from ticdc_replay.store_stages.alerts import look_after
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import read_evidence


def publish_reconciliation(context: StoreContext, reconciliation_id: str) -> ReconciliationReport:
    """Write the report, and keep its totals for the trend. A repeat returns the report that is there.

    Looks once more for each object that is missing. Raises ArtifactNotFoundError where the join did not come to its end, and what
    Kafka and the stores raise.
    """
    name = report_name(reconciliation_id)
    if context.artifacts.info(name) is None:
        content = canonical.encode(_report(context, reconciliation_id))
        with suppress(ArtifactExistsError):  # If another attempt was faster, its report is the one.
            context.artifacts.put_once(name, content)
    report = read_report(context.artifacts, name)
    context.state.reconciliations.record(
        Reconciliation(
            store=report.store,
            reconciliation_id=reconciliation_id,
            began_at_ms=report.evidence.bounds_ms,
            finished_at_ms=report.finished_at_ms,
            report=name,
            totals=report.totals(),
        )
    )
    return report


def _report(context: StoreContext, reconciliation_id: str) -> ReconciliationReport:
    classified = read_classified(context.artifacts, reconciliation_folder(reconciliation_id))
    assert classified.summary is not None  # it is no recheck
    evidence = read_evidence(context.artifacts, classified.evidence)
    files = tuple(file.name for file in classified.references)
    survey = read_survey(context.artifacts, classified.survey)
    watched = look_after(context, survey, evidence, classified.summary, files)
    known = context.state.reconciliations.all(context.store.name)
    before = [
        Previous(reconciliation_id=each.reconciliation_id, began_at_ms=each.began_at_ms, totals=each.totals)
        for each in known
        if each.began_at_ms < evidence.bounds_ms
    ]
    return ReconciliationReport(
        library_version=__version__,
        store=context.store.name,
        uri=context.store.uri,
        reconciliation_id=reconciliation_id,
        finished_at_ms=time.time_ns() // 1_000_000,
        evidence=evidence,
        summary=watched.summary,
        unlisted=watched.unlisted,
        object_files=tuple(file.name for file in classified.objects),
        reference_files=files,
        alerts=watched.alerts,
        notes=watched.notes,
        previous=before[-1] if before else None,
    )
