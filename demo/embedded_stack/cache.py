"""Where downloads are kept between runs."""

import os
from pathlib import Path

CACHE_VARIABLE = "TICDC_REPLAY_CACHE"

CHECKOUT = Path(__file__).resolve().parents[2]


def folder(name: str) -> Path:
    """The folder *name* of the cache, made if absent: below ``$TICDC_REPLAY_CACHE``, by default ``.cache`` of the checkout."""
    root = os.environ.get(CACHE_VARIABLE)
    path = (Path(root).expanduser() if root else CHECKOUT / ".cache") / name
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()
