"""Windows as Parquet files as a kind of target: what a pipeline says of it."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ticdc_replay.config.target_rules import HISTORY, Rules
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.config.types import ConnectionId, FolderUri, check_place
from ticdc_replay.storage.names import may_be_same_folder, may_be_within, tidy_folder


class ParquetTarget(TargetSection):
    """The window's changelog and its fold (last version per key) as Parquet below a URI."""

    is_mirror: ClassVar[bool] = False
    takes_base: ClassVar[bool] = True
    rules: ClassVar[Rules] = HISTORY
    loader: ClassVar[str] = "ticdc_replay.targets.parquet.target:ParquetFiles"

    type: Literal["parquet"]
    uri: FolderUri = Field(description="s3://…, gs://…, az://…, abfss://… or file:///… folder")
    connection: ConnectionId | None = Field(None, description="Airflow connection id (type aws); none for file:")
    fold: bool = Field(True, description="Write the last version per key of the window")
    changelog: bool = Field(True, description="Write every change of the window")

    @property
    def place(self) -> str:
        return f"{self.type} {tidy_folder(self.uri)}"

    @property
    def description(self) -> str:
        return f"Parquet below {self.uri}"

    def check(self, key: str, pipeline: str, tables: Sequence[str], others: Sequence[TargetSection]) -> None:
        check_place(f"{key}.uri", self.uri, f"{key}.connection", self.connection)
        for other in others:
            if isinstance(other, ParquetTarget) and self._may_share_files(other, pipeline):
                raise ValueError(
                    f"{key}.uri: {self.uri} may share files with {other.uri} of target {other.name}, and each of them "
                    "would replace the lists of the other; give each target a folder of its own"
                )

    def _may_share_files(self, other: "ParquetTarget", pipeline: str) -> bool:
        """Each writes below a folder that is called as the *pipeline*."""
        return (
            may_be_same_folder(self.uri, other.uri)
            or may_be_within(self.uri, f"{other.uri}/{pipeline}")
            or may_be_within(other.uri, f"{self.uri}/{pipeline}")
        )
