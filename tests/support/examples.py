"""How many cases a test tries: a share of what the run's profile asks for.

``HYPOTHESIS_PROFILE=nightly`` (``make test-nightly``) tries many times as many as ``make test`` does, and also the tests that
are marked ``nightly``.
"""

import os

from hypothesis import HealthCheck, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
NIGHTLY = _PROFILE == "nightly"
"""Whether the run has time for all that a test can try."""

_EXAMPLES = {"default": 40, "nightly": 1000}
"""By profile the examples of a test that asks for no other share."""


def load_profile() -> None:
    """Use the profile that ``HYPOTHESIS_PROFILE`` names. Raises KeyError if there is no such profile."""
    # How long an example takes depends on the machine, not on the code.
    settings.register_profile(
        "ticdc-replay",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=_EXAMPLES[_PROFILE],
    )
    settings.load_profile("ticdc-replay")


def examples(share: float = 1.0) -> int:
    """The number of examples of a test that is worth *share* of the others: less for slow ones, more for wide ones."""
    return max(1, round(settings.get_profile("ticdc-replay").max_examples * share))
