"""What an attempt's outcome, or the lack of it, comes to."""

import pytest

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    PermanentError,
    TicdcReplayError,
    TopicChangedError,
    TransientError,
)
from ticdc_replay.jobspec import EXIT_PERMANENT, EXIT_TRANSIENT
from ticdc_replay.submit.outcome import JobFile, JobOutcome, settle

SUCCEEDED = JobOutcome("succeeded", counts={"written": 3})
LOST = JobOutcome("permanent", "TopicChangedError", "topic shop was recreated")
AWAY = JobOutcome("transient", "TransientError", "the broker is away")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "jobs").mkdir()
    return JobFile(f"{tmp_path.as_uri()}/jobs/abc.json", Connections())


def failure(file, code, attempt="one"):
    with pytest.raises(TicdcReplayError) as failed:
        settle(file, attempt, "load_lake", code)
    return type(failed.value), str(failed.value)


def test_an_outcome_lies_beside_the_spec_by_the_name_of_the_attempt(file, tmp_path):
    file.put_outcome("one", SUCCEEDED)
    file.put_outcome("two", LOST)
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["abc.one.json", "abc.two.json"]
    assert (file.outcome("one"), file.outcome("two")) == (SUCCEEDED, LOST)


def test_the_outcome_of_another_attempt_says_nothing(file):
    file.put_outcome("two", LOST)
    assert failure(file, EXIT_TRANSIENT)[0] is TransientError


@pytest.mark.parametrize("code", [0, 1, -9, 143])
def test_a_job_that_says_that_it_succeeded_did_however_its_jvm_ended(file, code):
    file.put_outcome("one", SUCCEEDED)
    assert settle(file, "one", "load_lake", code) == SUCCEEDED


def test_an_error_comes_with_its_class_and_message(file):
    file.put_outcome("one", LOST)
    assert failure(file, 1) == (TopicChangedError, "load_lake: TopicChangedError: topic shop was recreated")
    file.put_outcome("one", AWAY)
    assert failure(file, 1) == (TransientError, "load_lake: TransientError: the broker is away")


@pytest.mark.parametrize(
    ("result", "error", "kind"),
    [
        ("permanent", "MessageError", PermanentError),
        ("transient", "TopicChangedError", TransientError),
        ("failed", "TicdcReplayError", TransientError),
        ("failed", "KeyError", TransientError),
        ("failed", "__name__", TransientError),
    ],
)
def test_an_error_of_another_room_is_permanent_or_transient(file, result, error, kind):
    file.put_outcome("one", JobOutcome(result, error, "why"))
    assert failure(file, 1) == (kind, f"load_lake: {error}: why")


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (EXIT_PERMANENT, PermanentError, "the job ended with exit code 3, and its driver left no outcome"),
        (EXIT_TRANSIENT, TransientError, "the job ended with exit code 4, and its driver left no outcome"),
        (1, TransientError, "the job ended with exit code 1, and its driver left no outcome"),
        (137, TransientError, "the job was killed by SIGKILL, and its driver left no outcome"),
        (-9, TransientError, "the job was killed by SIGKILL, and its driver left no outcome"),
        (-15, TransientError, "the job was killed by SIGTERM, and its driver left no outcome"),
    ],
)
def test_without_an_outcome_the_exit_code_decides(file, code, kind, text):
    assert failure(file, code) == (kind, f"load_lake: {text}; the log of the job has more")


def test_without_an_outcome_exit_code_0_is_success(file):
    assert settle(file, "one", "load_lake", 0) == JobOutcome("succeeded")


def test_an_outcome_that_can_not_be_read_is_told(file, monkeypatch):
    def away(attempt):
        raise TransientError("s3://lake is away")

    monkeypatch.setattr(file, "outcome", away)
    kind, text = failure(file, EXIT_PERMANENT)
    assert kind is PermanentError
    assert "exit code 3, and the outcome that its driver left can't be read (s3://lake is away)" in text
    assert ArtifactNotFoundError.__name__ not in text
