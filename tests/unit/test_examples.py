"""How many examples property tests try."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("profile", "number"), [("default", "20"), ("nightly", "500")])
def test_the_profile_scales_every_property(profile, number):
    code = "from tests.support.examples import *; load_profile(); print(examples(0.5))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HYPOTHESIS_PROFILE": profile},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.strip() == number, done.stderr
