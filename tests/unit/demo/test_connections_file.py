"""The demo's connections as a file for the command line."""

from types import SimpleNamespace

import yaml

from demo import pipeline
from demo.__main__ import example
from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.secret_file import write_secret
from demo.system import System
from ticdc_replay.cli.connections import load_connections

SERVERS = SimpleNamespace(
    postgres=SimpleNamespace(host="127.0.0.1", port=5432, user="replay", password="p"),
    kafka=SimpleNamespace(bootstrap="127.0.0.1:9092"),
    s3=SimpleNamespace(access_key="a", secret_key="s", endpoint="http://127.0.0.1:9000", region="us-east-1"),
)


def test_the_command_line_takes_the_file_that_the_demo_writes(tmp_path):
    file = tmp_path / "connections.yaml"
    file.write_text("of an earlier demo")
    file.chmod(0o644)
    write_secret(file, yaml.safe_dump(pipeline.connections(SERVERS, "warehouse", "replay_state", tmp_path)))
    assert file.stat().st_mode & 0o777 == 0o600
    found = load_connections(file, ["shop_kafka", "shop_s3", "replay_s3", "warehouse", "replay_state", "lakehouse"])
    assert found.get("replay_state").port == 5432


def test_the_example_names_the_files_that_the_demo_runs(tmp_path):
    system = System(tmp_path)
    words = example(system)
    assert words[1:3] == ["reconcile", str(CHECKOUT / "include/stores/shop_claims.yaml")]
    assert words[words.index("--connections") + 1] == str(tmp_path / "connections.yaml")
    assert words[words.index("--pipelines") + 1] == str(CHECKOUT / "include/pipelines")
