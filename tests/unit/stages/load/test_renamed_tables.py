"""A load is given the names that its tables had before, by the DDL that is known of the pipeline."""

from pathlib import Path

import pytest

from tests.unit.stages.load.test_replaced_windows import PIPELINE, Lake
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.ddl import KnownDdl


@pytest.mark.parametrize(
    "ddls",
    [
        ["RENAME TABLE people TO orders"],
        ["DROP TABLE people", "FLASHBACK TABLE people TO orders"],
        ["DROP TABLE people", "RECOVER TABLE people", "ALTER TABLE people RENAME TO orders"],
        ["TRUNCATE TABLE people", "flashback table `shop`.`people` to `orders`"],
    ],
    ids=str,
)
def test_a_table_that_has_the_rows_of_a_masked_one_is_not_loaded_plain(tmp_path: Path, ddls: list[str]) -> None:
    shape = ', shape: [{tables: [shop.people], mask: {"*": "null"}}]}]'
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path.as_uri()).replace("}]", shape, 1))
    with ReplayContext(load_pipeline(tmp_path / "pipeline.yaml"), Connections()) as context:
        lake = Lake(context, tmp_path / "pipeline")
        topic = TopicIdentity("cluster", "shop", "topic-id")
        events = [DdlEvent(0, at, "shop", "people", ddl, 3) for at, ddl in enumerate(ddls, 5)]
        events[-1] = DdlEvent(0, events[-1].commit_ts, "shop", "orders", ddls[-1], 3)
        context.state.ddl.record("pipeline", [KnownDdl(topic, event) for event in events])
        job = lake.job(lake.run("proven", 1))
        with pytest.raises(PolicyStopError, match=r"shop\.people: the table was renamed to shop\.orders"):
            lake.load(job)
    assert not (tmp_path / "lake").exists()
