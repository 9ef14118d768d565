"""Jobs that change mirrors outside of loads."""

from pathlib import Path

from tests.support.replayed_windows import pipeline_for
from ticdc_replay import jobspec
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.tables import TableName
from ticdc_replay.jobspec import AbandonTask
from ticdc_replay.stages.upkeep.mirror_jobs import run_as_job


def test_a_change_that_is_repeated_is_the_same_job_and_gives_what_the_last_one_gave(tmp_path: Path) -> None:
    """So in cluster mode it takes over the application that a killed command has left."""
    section = read_section(
        {"type": "iceberg", "name": "lake", "catalog": "c", "ledger": (tmp_path / "ledger").as_uri()}
    )
    submitted: list[str] = []

    with pipeline_for(tmp_path, "unused:9092", "topic") as context:

        def submit(uri: str) -> None:
            submitted.append(uri)
            job = jobspec.read(context.artifacts, uri)
            assert isinstance(job, jobspec.MirrorJob)
            context.artifacts.put(job.report, b"true" if len(submitted) == 1 else b"false")

        given = [run_as_job(context, section, TableName("s", "t"), AbandonTask(), bool, submit) for _ in range(2)]
    assert given == [True, False]
    assert submitted[0] == submitted[1]
