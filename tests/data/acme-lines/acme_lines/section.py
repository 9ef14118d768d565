"""Lines of JSON as a kind of target: what a pipeline says of it."""

from typing import ClassVar, Literal

from ticdc_replay.config.target_rules import HISTORY, Rules
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.config.types import FolderUri


class LinesTarget(TargetSection):
    """The last version of each row of a window, as lines of JSON in a folder of this machine."""

    is_mirror: ClassVar[bool] = False
    rules: ClassVar[Rules] = HISTORY
    loader: ClassVar[str] = "acme_lines.target:Lines"

    type: Literal["lines"]
    uri: FolderUri

    @property
    def place(self) -> str:
        return f"{self.type} {self.uri}"

    @property
    def description(self) -> str:
        return f"Lines of JSON below {self.uri}"
