"""Targets of one pipeline have places of their own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.errors import ConfigError


def parquet(name: str, uri: str, **options: Any) -> dict[str, Any]:
    connection = {} if uri.startswith("file:") else {"connection": "lake"}
    return {"name": name, "type": "parquet", "uri": uri, **connection, **options}


def postgres(name: str, connection: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "type": "postgres", "connection": connection, **options}


def loaded(folder: Path, *targets: dict[str, Any]) -> Pipeline:
    document = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": "file:///replay",
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": list(targets),
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(document))
    return load_pipeline(folder / "shop.yaml").pipeline


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://lake/x", "s3://lake/x"),
        ("s3://lake/x", "s3://lake/x/"),
        ("s3://lake/x", "s3://lake//x//"),
        ("s3://lake", "s3://lake/"),
        ("file:///lake/x", "file:///lake/./x/"),
        ("file:///lake/x", "file:///lake/y/../x"),
        ("s3://lake/x", "s3://lake/x/shop"),
        ("s3://lake/x/shop/fold", "s3://lake/x"),
        ("file:///", "file:///shop/current"),
    ],
)
def test_two_targets_may_not_write_into_one_folder(tmp_path: Path, one: str, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, parquet("history", one, fold=False), parquet("last", other, changelog=False))
    assert "targets[1].uri: " in str(caught.value)
    assert "history" in str(caught.value)


@pytest.mark.parametrize("schema", [{}, {"schema": "mirror"}])
def test_a_mirror_and_a_history_may_not_share_a_schema_of_a_database(tmp_path: Path, schema: dict[str, str]) -> None:
    mirror, history = postgres("one", "warehouse", **schema), postgres("two", "warehouse", mode="scd2", **schema)
    with pytest.raises(ConfigError, match="its tables would have the names of those of target one"):
        loaded(tmp_path, mirror, history)
    targets = loaded(tmp_path, mirror, {**history, "schema": "versions"}).targets
    assert [(each.is_mirror, each.takes_base, each.can_be_compared) for each in targets] == [(True,) * 3, (False,) * 3]
    assert len({each.place for each in targets}) == 2


@pytest.mark.parametrize("schema", [{}, {"schema": "mirror"}])
def test_two_targets_may_not_mirror_into_one_schema_of_a_database(tmp_path: Path, schema: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, postgres("one", "warehouse", **schema), postgres("two", "warehouse", writers=2, **schema))
    assert "targets[1]: " in str(caught.value)


@pytest.mark.parametrize(
    "targets",
    [
        (parquet("history", "s3://lake/x"), parquet("last", "s3://lake/xy")),
        (parquet("history", "s3://lake/x"), parquet("last", "s3://lake/x/y")),
        (parquet("history", "s3://lake/x"), parquet("last", "s3://pond/x")),
        (parquet("history", "s3://lake/X"), parquet("last", "s3://lake/x")),
        (postgres("one", "warehouse"), postgres("two", "warehouse", schema="two")),
        (postgres("one", "warehouse", schema="one"), postgres("two", "warehouse", schema="two")),
        (postgres("one", "warehouse"), postgres("two", "other")),
    ],
)
def test_targets_with_places_of_their_own_are_taken(tmp_path: Path, targets: tuple[dict[str, Any], ...]) -> None:
    assert len({target.place for target in loaded(tmp_path, *targets).targets}) == 2


def test_a_place_is_what_the_content_depends_on(tmp_path: Path) -> None:
    (lake,) = loaded(tmp_path, parquet("lake", "s3://lake/x/", fold=False)).targets
    (renamed,) = loaded(tmp_path, parquet("files", "s3://lake/x")).targets
    assert lake.place == renamed.place == "parquet s3://lake/x"
    (mirror,) = loaded(tmp_path, postgres("mirror", "warehouse", writers=1)).targets
    assert mirror.place == "postgres warehouse"
    (mirror,) = loaded(tmp_path, postgres("mirror", "warehouse", schema="shop2")).targets
    assert mirror.place == "postgres warehouse, schema shop2"
