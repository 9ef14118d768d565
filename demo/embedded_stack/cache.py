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


def keep(made: Path, to: Path) -> None:
    """Move the folder *made* to *to*, in one step; not where *to* is there already, because another process was faster."""
    try:
        made.rename(to)
    except OSError:  # of a folder that is there and not empty some systems say "exists", others "not empty"
        if not to.exists():
            raise
