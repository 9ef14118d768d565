"""The trigger form, and the window and options that a run's answers mean."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import Window

pytestmark = pytest.mark.airflow

HOUR_0 = tso.from_datetime(datetime(2026, 3, 1, 0, tzinfo=UTC))
HOUR_1 = tso.from_datetime(datetime(2026, 3, 1, 1, tzinfo=UTC))
HOUR_2 = tso.from_datetime(datetime(2026, 3, 1, 2, tzinfo=UTC))


def context(start=None, end=None, interval=(None, None), run_type="manual"):
    return {
        "dag_run": SimpleNamespace(run_type=run_type),
        "params": {"from": start, "to": end},
        "data_interval_start": interval[0],
        "data_interval_end": interval[1],
    }


INTERVAL = (datetime(2026, 3, 1, 0, tzinfo=UTC), datetime(2026, 3, 1, 1, tzinfo=UTC))


def test_the_data_interval_is_the_window():
    from ticdc_replay.airflow.form import run_window

    assert run_window(context(interval=INTERVAL)) == Window(HOUR_0, HOUR_1)


def test_a_run_of_a_backfill_replays_its_own_interval():
    from ticdc_replay.airflow.form import run_window

    assert run_window(context(interval=INTERVAL, run_type="backfill")) == Window(HOUR_0, HOUR_1)


def test_the_form_wins_over_the_data_interval_and_minds_zones():
    from ticdc_replay.airflow.form import run_window

    answers = context("2026-03-01T00:00:00Z", "2026-03-01T10:00:00+08:00", INTERVAL)
    assert run_window(answers) == Window(HOUR_0, HOUR_2)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (context("2026-03-01T00:00:00Z", None, INTERVAL), "only one is given"),
        (context(), "neither From and To nor a data interval"),
        (context("2026-03-01T01:00:00Z", "2026-03-01T00:00:00Z"), "form's From and To .* is not a window"),
        (context("2026-03-01T00:00:00", "2026-03-01T01:00:00"), "has no time zone"),
        (context(interval=(INTERVAL[0], INTERVAL[0])), "data interval .* is not a window"),
        (
            context("2026-03-01T00:00:00Z", "2026-03-01T09:00:00Z", INTERVAL, "backfill"),
            "a backfill replays its own interval",
        ),
    ],
)
def test_a_run_without_a_window_says_what_to_do(answers, message):
    from ticdc_replay.airflow.form import run_window

    with pytest.raises(ConfigError, match=message) as caught:
        run_window(answers)
    assert "backfill" in str(caught.value)


@pytest.fixture
def validated(pipelines):
    """What Airflow makes of a run's answers: the form's defaults, overridden and validated."""

    def validated(**answers):
        from airflow.sdk.definitions.param import ParamsDict

        from ticdc_replay.airflow.form import params
        from ticdc_replay.config.load import load_pipeline

        form = ParamsDict(params(load_pipeline(pipelines.path / "shop.yaml").pipeline))
        form.update(answers)
        return form.validate()

    return validated


def test_an_empty_form_means_the_whole_pipeline(validated):
    from ticdc_replay.airflow.form import RunOptions, run_options

    options = run_options({"params": validated()})
    assert options == RunOptions(("shop.*",), ("warehouse", "lake"), dry_run=False, repin=False, reload=False, pin=None)


@pytest.mark.parametrize(
    "answers",
    [
        {"targets": ["oracle"]},
        {"targets": []},
        {"tables": ["orders"]},
        {"tables": []},
        {"from": "yesterday"},
        {"dry_run": "perhaps"},
        {"pin": "last"},
    ],
)
def test_the_form_refuses_what_the_pipeline_does_not_have(validated, answers):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        validated(**answers)
