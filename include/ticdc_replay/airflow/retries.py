"""Which errors a task is tried again for."""

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

_ERRORS = "ticdc_replay.domain.errors"


def retry_policy() -> ExceptionRetryPolicy:
    """Errors that a repeat can't mend fail the task at once, others are tried again as the task's own settings say.

    A watermark that did not come within its time is not waited for once more.
    """
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=f"{_ERRORS}.WatermarkNotReachedError",
                action=RetryAction.FAIL,
                reason="The watermark did not come within window.timeout_minutes",
            ),
            RetryRule(
                exception=f"{_ERRORS}.PermanentError",
                action=RetryAction.FAIL,
                reason="The same attempt would fail again: something has to be changed first",
            ),
            RetryRule(
                exception=f"{_ERRORS}.TransientError",
                action=RetryAction.RETRY,
                reason="The same attempt may succeed later",
            ),
        ],
    )
