"""What is submitted: the job's own script, and the connections that its spec names."""

from pathlib import Path

import pytest

from tests.support.changelogs import Changelog
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.jobspec import DecodedReferences, LoadJob, ReconcileJob, connections_of
from ticdc_replay.storage import open_store
from ticdc_replay.submit.submitter import Submission

PIPELINE = """
name: shop
changefeed: {sink_uri: "kafka://b:9092/shop?protocol=open-protocol", timezone: UTC}
connections: {kafka: kafka}
artifacts: file:///dev/null
schedule: {start: "2026-03-01T00:00:00Z"}
targets: [{name: warehouse, type: postgres, connection: warehouse}]
"""
ALL = Connections({name: Connection(name, "any", password="hunter2") for name in ("kafka", "warehouse", "deleting")})


@pytest.fixture
def pipeline(tmp_path):
    (tmp_path / "shop.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "shop.yaml").pipeline


@pytest.fixture
def uri(tmp_path, pipeline):
    job = Changelog(tmp_path, 0, 100).job(pipeline.targets[0].model_dump(mode="json", by_alias=True))
    return jobspec.put(open_store(tmp_path.as_uri(), None), job)


def test_the_script_of_each_kind_of_job_is_in_the_library(uri, pipeline):
    submission = Submission(uri, ALL, pipeline)
    assert isinstance(submission.job, LoadJob)
    script = Path(submission.script)
    assert script.name == "load.py"
    assert sorted(path.stem for path in script.parent.glob("[a-z]*.py")) == [
        "decode",
        "load",
        "maintain",
        "mirror",
        "reconcile",
        "scan",
        "seed",
        "verify",
    ]
    assert submission.arguments == [uri, submission.attempt]
    assert submission.attempt != Submission(uri, ALL, pipeline).attempt


def test_a_job_gets_the_connections_that_its_spec_names_and_no_more(uri, pipeline):
    assert list(Submission(uri, ALL, pipeline).connections.by_id) == ["warehouse"]
    with pytest.raises(ConfigError, match="connection 'warehouse' is not defined"):
        Submission(uri, Connections(), pipeline)


def test_a_spec_that_is_gone_is_refused_before_anything_is_started(tmp_path, pipeline):
    with pytest.raises(ArtifactNotFoundError):
        Submission(f"{tmp_path.as_uri()}/jobs/no.json", ALL, pipeline)


def test_a_join_needs_the_artefacts_of_all_pipelines_that_it_reads():
    read = DecodedReferences(pipeline="shop", artifacts="s3://a", artifacts_connection="lake", topic_ids={}, names=())
    job = ReconcileJob(
        library_version="0",
        store="claims",
        artifacts="s3://b",
        artifacts_connection="stores",
        survey="surveys/1.json",
        evidence="evidence/1.json",
        inventory=None,
        plan_hash="f" * 64,
        objects=(),
        scanned=(),
        decoded=(read, read),
    )
    assert connections_of(job) == ["lake", "stores"]
