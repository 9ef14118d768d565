"""Messages as the terminal has them, whatever their producers say."""

import pytest
from rich.console import Console

from ticdc_replay.cli.rendering import message
from ticdc_replay.domain.messages import RawMessage


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (-(1 << 63), "no time"),
        (-1, "no time"),
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms"),
        ((1 << 63) - 1, "9223372036854775807 ms"),
    ],
)
def test_a_message_of_any_record_time_is_shown(timestamp_ms: int, shown: str) -> None:
    console = Console(width=200, record=True)
    console.print(message(RawMessage("t", 0, 0, timestamp_ms, None, b"x"), []))
    assert shown in console.export_text()
