"""Text from outside, such as names of tables and objects, within the Markdown that Airflow shows."""

import re

from ticdc_replay.domain.visible import visible

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"(://|www\.)", re.IGNORECASE)


def code(text: str) -> str:
    """*text* as code: neither a link nor an image, whatever it holds."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest or not shown.strip() else ""
    return f"{fence}{space}{shown or ' '}{space}{fence}"


def cell(text: str) -> str:
    """``code`` for a cell of a table, where a vertical bar would end it.

    Text with a backslash before a bar is ``plain``: code can't escape the backslash, which would escape that of the bar.
    """
    return plain(text) if "\\|" in text else code(text).replace("|", "\\|")


def plain(text: str) -> str:
    """*text* as text: no markup of it counts, and no address in it becomes a link."""
    parted = _ADDRESS.sub(lambda found: f"{found[0][0]}\u200b{found[0][1:]}", visible(text))
    return _PUNCTUATION.sub(r"\\\1", parted)
