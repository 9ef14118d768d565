"""The native extension, where it is installed and wanted (docs/decisions.md, "The native decoder")."""

import logging
import os
from functools import lru_cache
from typing import Any

SWITCH = "TICDC_REPLAY_NATIVE"
"""Environment variable of executors: ``off`` leaves the extension alone."""
INTERFACE = 7
"""The interface that this library asks of the extension; ``native/src/lib.rs`` has the same number."""
_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def native_extension() -> Any | None:
    """The module ``ticdc_replay_native``, None where only Python decodes. Says once in the log of a process which it is."""
    why = f"{SWITCH}=off" if os.environ.get(SWITCH, "").lower() == "off" else ""
    if not why:
        try:
            import ticdc_replay_native
        except ImportError as error:
            why = f"the wheel ticdc-replay-native is not installed ({error})"
        else:
            found = getattr(ticdc_replay_native, "INTERFACE", 0)
            if found == INTERFACE:
                _log.info("rows of known forms are decoded natively")
                return ticdc_replay_native
            why = (
                f"the wheel ticdc-replay-native has interface {found}, and this library asks for {INTERFACE}: install both from "
                "one version (make package)"
            )
    _log.info("rows are decoded in Python alone: %s", why)
    return None
