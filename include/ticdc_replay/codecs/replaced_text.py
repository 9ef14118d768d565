"""Text whose bytes TiCDC's JSON encoders replaced because they are not UTF-8.

Go's ``encoding/json`` (classic Open Protocol) and easyjson (rows of Canal-JSON) write the escape ``\\ufffd`` in the place of
such a byte, and the character U+FFFD, where the upstream really has it, as it is. So the escape shows that bytes were lost.

Hot: to look for the escape in a document of 770 bytes takes 0.5 µs, to look for the character in a cell of a row that was read
takes 0.03. So readers of known forms ask ``holds_replaced`` first, and hardly any document is searched.
"""

import re
from collections.abc import Iterable

from ticdc_replay.domain.column_types import BINARY_TYPES, CHARACTER_TYPES
from ticdc_replay.domain.events import Image

REPLACED = b"\\ufffd"
"""To be looked for first: hardly any document has it."""
TEXTS = CHARACTER_TYPES | {"json"}
"""Types whose cells may have lost bytes."""
holds_escape = re.compile(rb"(?<!\\)(?:\\\\)*\\ufffd").search


def lossy_cells(document: bytes, after: Image | None, before: Image | None) -> tuple[str, ...]:
    """The cells, as ``<side>.<column>``, that may have lost bytes in *document*: those with U+FFFD, if it is escaped there."""
    if holds_escape(document) is None:
        return ()
    return tuple(
        f"{side}.{column.name}"
        for side, image in (("after", after), ("before", before))
        if image is not None
        for column, value in zip(image.shape.columns, image.values, strict=True)
        if isinstance(value, str) and "\ufffd" in value and column.type.base not in BINARY_TYPES
    )


def holds_replaced(texts: Iterable[int]) -> str:
    """An expression of Python for whether one of the ``cells`` at the positions *texts*, text or None, has U+FFFD."""
    return " or ".join(f"'\\ufffd' in (cells[{at}] or '')" for at in texts) or "False"
