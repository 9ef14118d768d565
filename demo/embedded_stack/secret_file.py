"""Files that hold secrets."""

import os
from pathlib import Path


def write_secret(file: Path, text: str) -> None:
    """Write *text* to *file*, anew, so that only this user can read it at any moment."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
