"""Which row versions of a split were written already, and with what content."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ticdc_replay.extension import native_extension


class PythonSeen:
    """The row versions that came so far, each with the fingerprint of its first copy: about 0.35 µs and 170 bytes a row."""

    def __init__(self) -> None:
        self._fingerprints: dict[bytes, bytes] = {}

    def fresh(self, versions: npt.NDArray[np.void], fingerprints: npt.NDArray[np.void]) -> npt.NDArray[np.bool_] | None:
        """Which of the rows with these identities and *fingerprints* say what no row before them said; None: all of them."""
        seen = self._fingerprints
        found, contents = versions.tolist(), fingerprints.tolist()
        if seen.keys().isdisjoint(found) and len(set(found)) == len(found):
            # As nearly always. Built-ins do in 0.2 µs a row what the loop below takes 0.7 for.
            seen.update(zip(found, contents, strict=True))
            return None
        fresh = np.ones(len(found), np.bool_)
        for at, (version, fingerprint) in enumerate(zip(found, contents, strict=True)):
            if version not in seen:
                seen[version] = fingerprint
            elif seen[version] == fingerprint:
                fresh[at] = False
        return fresh


class NativeSeen:
    """As ``PythonSeen``, by *seen* of the native extension: about 0.1 µs and 40 to 75 bytes a row."""

    def __init__(self, seen: Any) -> None:
        self._seen = seen

    def fresh(self, versions: npt.NDArray[np.void], fingerprints: npt.NDArray[np.void]) -> npt.NDArray[np.bool_] | None:
        """See ``PythonSeen``."""
        found = self._seen.fresh(versions.tobytes(), fingerprints.tobytes())
        return None if found is None else np.frombuffer(found, np.bool_)


Seen = PythonSeen | NativeSeen


def nothing_seen() -> Seen:
    """A new one, of whichever kind there is."""
    extension = native_extension()
    return PythonSeen() if extension is None else NativeSeen(extension.Seen())
