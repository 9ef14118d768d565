"""The composed system, held against the compose schema and against the files, programs and settings it names.

It can't be started without a Docker daemon, so what can be known without one is checked here.
"""

import importlib
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from demo.embedded_stack.jars import KAFKA_VERSION, LAKE
from demo.embedded_stack.s3 import VERSITYGW_VERSION
from ticdc_replay import __version__
from ticdc_replay.changefeed.secrets import is_secret_name
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.load_store import load_store
from ticdc_replay.stages.context import connection_ids
from ticdc_replay.store_stages.context import store_connection_ids

CHECKOUT = Path(__file__).resolve().parents[2]
COMPOSE_TEXT = (CHECKOUT / "docker-compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")
SCHEMA = json.loads((CHECKOUT / "tests/data/compose-spec/compose-spec.json").read_text(encoding="utf-8"))
DEMO = sorted((CHECKOUT / "demo").rglob("*.py"))
PIPELINES = sorted((CHECKOUT / "include/pipelines").glob("*.yaml"))
STORES = sorted((CHECKOUT / "include/stores").glob("*.yaml"))
CONFIGURATION = [*sorted((CHECKOUT / "docker").glob("*.*")), *PIPELINES, *STORES]
IN_IMAGE = "/opt/ticdc-replay/"

VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z0-9_]+)")
SECRET_READ = re.compile(r"\b(?:secret|read)\(\"(\w+)\"\)|/run/secrets/(\w+)")
ADDRESS = re.compile(r"(?<![\w.-])([a-z][a-z0-9-]*|\d+\.\d+\.\d+\.\d+):(\d{2,5})(?![\w.])")
HERE = {"127.0.0.1", "0.0.0.0", "localhost"}


def words(service: dict[str, Any]) -> list[str]:
    return [str(word) for word in service.get("command", [])]


def option(service: dict[str, Any], name: str) -> str:
    command = words(service)
    return command[command.index(name) + 1]


def listening_ports() -> dict[str, set[int]]:
    """The ports that each service says it listens on; PostgreSQL's and the scheduler's are the programs' own."""
    ports: dict[str, set[int]] = {name: set() for name in SERVICES}
    for name, service in SERVICES.items():
        command, environment = words(service), service.get("environment", {})
        if service["image"].startswith("postgres:"):
            ports[name].add(5432)
        if "KAFKA_LISTENERS" in environment:
            ports[name] |= {int(port) for port in re.findall(r":(\d+)", environment["KAFKA_LISTENERS"])}
        if command[:2] == ["airflow", "scheduler"] and environment["AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"] == "True":
            ports[name].add(8974)
        for flag in ("--port", "--webui-port"):
            if flag in command:
                ports[name].add(int(option(service, flag).rpartition(":")[2]))
        ports[name] |= {
            int(port) for port in re.findall(r"spark\.connect\.grpc\.binding\.port=(\d+)", " ".join(command))
        }
    return ports


def addresses(text: str) -> set[tuple[str, int]]:
    return {(host, int(port)) for host, port in ADDRESS.findall(text)}


def copied() -> list[str]:
    """The sources of the image's own files."""
    copies = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    return [source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]]


def bind_mounts() -> list[tuple[str, str, str]]:
    found = []
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, _, target = volume.partition(":")
            if source.startswith("."):
                found.append((name, source, target.partition(":")[0]))
    return found


def buckets(file: Path) -> set[str]:
    return set(re.findall(r"s3://([^/\s\"]+)", file.read_text(encoding="utf-8")))


def settings_of_airflow() -> dict[tuple[str, str], dict[str, Any]]:
    """Every option that Airflow and its OpenLineage provider know, by section and name."""
    spec = importlib.util.find_spec("airflow")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    known = yaml.safe_load((root / "config_templates/config.yml").read_text(encoding="utf-8"))
    known |= runpy.run_path(str(root / "providers/openlineage/get_provider_info.py"))["get_provider_info"]()["config"]
    return {
        (section.upper(), name.upper()): detail
        for section, content in known.items()
        for name, detail in content["options"].items()
    }


@pytest.fixture
def common(tmp_path, monkeypatch) -> ModuleType:
    """docker/common.py, with a secret of every name that compose defines."""
    monkeypatch.syspath_prepend(CHECKOUT / "docker")
    module = importlib.import_module("common")
    for name in COMPOSE["secrets"]:
        (tmp_path / name).write_text(f"value of {name}\n")
    monkeypatch.setattr(module, "SECRETS", tmp_path)
    return module


@pytest.fixture
def connections(common) -> dict[str, dict[str, Any]]:
    """What the init job puts into Airflow."""
    return importlib.import_module("init").connections()


def test_the_file_is_valid_by_the_compose_schema():
    errors = jsonschema.Draft202012Validator(SCHEMA).iter_errors(COMPOSE)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_docker_compose_accepts_the_file_once_the_environment_is_filled_in(tmp_path):
    if shutil.which("docker-compose"):
        compose = ["docker-compose"]
    elif (
        shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        compose = ["docker", "compose"]
    else:
        pytest.skip("the docker compose client is not installed here")

    def config(environment: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "env"
        file.write_text(environment)
        command = [*compose, "--file", str(CHECKOUT / "docker-compose.yaml"), "--env-file", str(file)]
        return subprocess.run([*command, "config", "--quiet"], capture_output=True, text=True)

    placeholders = (CHECKOUT / ".env.example").read_text(encoding="utf-8")
    filled = config(re.sub(r"=$", "=value", placeholders, flags=re.MULTILINE))
    assert (filled.returncode, filled.stderr) == (0, "")
    empty = config(placeholders)
    assert empty.returncode != 0
    assert "see .env.example" in empty.stderr


def test_every_variable_is_in_the_example_and_every_line_of_the_example_is_used():
    listed = re.findall(
        r"^([A-Z0-9_]+)=(.*)$", (CHECKOUT / ".env.example").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    used = set(VARIABLE.findall(COMPOSE_TEXT)) | {secret["environment"] for secret in COMPOSE["secrets"].values()}
    assert {name for name, _ in listed} == used
    assert [name for name, value in listed if value] == [], "placeholders hold no values"


def test_compose_refuses_to_start_while_a_variable_is_empty():
    required = {VARIABLE.findall(entry)[0] for entry in COMPOSE["x-required"] if ":?" in entry}
    assert required == {secret["environment"] for secret in COMPOSE["secrets"].values()}


def test_no_service_gets_a_secret_in_plain_text():
    plain = [
        f"{name}: {key}"
        for name, service in SERVICES.items()
        for key, value in service.get("environment", {}).items()
        if is_secret_name(key) and not key.endswith(("_CMD", "_FILE")) and not str(value).startswith("${")
    ]
    assert plain == []


def test_every_secret_is_defined_and_used():
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])


def test_a_service_gets_the_secrets_that_its_settings_read():
    for name, service in SERVICES.items():
        read = set(re.findall(r"/run/secrets/(\w+)", json.dumps(service)))
        command = words(service)
        if (
            any(word.startswith("org.apache.spark") for word in command)
            or command[:1] == ["spark-connect"]
            or command[:2] == ["airflow", "scheduler"]
        ):
            read.add("spark_secret")
        if "/run/ticdc-replay/airflow-database" in json.dumps(service):
            read.add("airflow_db_password")
        if command[:2] == ["airflow", "api-server"]:
            read.add("airflow_admin_password")
        assert read <= set(service.get("secrets", [])), name


def test_the_scripts_read_no_secret_that_is_not_defined():
    manifests = (CHECKOUT / "docker/kubernetes/spark-connect.yaml").read_text(encoding="utf-8")
    defined = {*COMPOSE["secrets"], *re.findall(r"mountPath: /run/secrets/(\w+),", manifests)}
    for script in (CHECKOUT / "docker").iterdir():
        if script.is_file():
            read = {first or second for first, second in SECRET_READ.findall(script.read_text(encoding="utf-8"))}
            assert read <= defined, script.name


def test_every_mounted_path_exists():
    assert bind_mounts()
    for name, source, _ in bind_mounts():
        assert (CHECKOUT / source).exists(), f"{name} mounts {source}"


def test_every_named_volume_is_defined_and_used():
    used = {
        volume.partition(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if ":" in volume and not volume.startswith(".")
    }
    assert used == set(COMPOSE["volumes"])


def test_every_copied_path_exists_and_reaches_the_build():
    allowed = [
        line[1:]
        for line in (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    ]
    assert copied()
    for source in copied():
        found = list(CHECKOUT.glob(source))
        assert [path for path in found if path.is_file() or any(path.iterdir())], source
        assert any(source == entry or source.startswith(f"{entry}/") for entry in allowed), source


def test_no_secret_and_no_environment_reaches_the_build():
    first = next(
        line for line in (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] != "#"
    )
    assert first == "*", "all is left out but what is listed"


def test_every_file_that_a_command_names_is_in_the_image():
    files = {str(path.relative_to(CHECKOUT)) for source in copied() for path in CHECKOUT.glob(source)}
    named = [word for service in SERVICES.values() for word in words(service) if word.endswith(".py")]
    named += [word.removeprefix(IN_IMAGE) for word in re.findall(r'"([^"]+\.py)"', DOCKERFILE)]
    assert {"docker/entrypoint.py", "docker/init.py", "docker/publish_sample.py"} <= set(named)
    assert set(named) <= files


def test_every_address_is_one_of_a_service_that_listens_there():
    ports = listening_ports()
    places = [(str(path.relative_to(CHECKOUT)), path.read_text(encoding="utf-8")) for path in CONFIGURATION]
    places += [(name, json.dumps({**service, "ports": []})) for name, service in SERVICES.items()]
    checked = set()
    for where, text in places:
        for host, port in addresses(text):
            if host in HERE:
                host = where
            assert host in ports, f"{where} names {host}:{port}"
            assert port in ports[host], f"{where} names {host}:{port}; {host} listens on {sorted(ports[host])}"
            checked.add((host, port))
    assert {("kafka", 9092), ("s3", 7070), ("spark-master", 7077), ("airflow-api-server", 8080)} <= checked
    assert "/spark-connect/15002" in SERVICES["spark-connect"]["healthcheck"]["test"][-1]
    assert ports["spark-connect"] == {15002}


def test_published_ports_are_listened_on_and_open_to_this_machine_only():
    ports, published = listening_ports(), []
    for name, service in SERVICES.items():
        for mapping in service.get("ports", []):
            address, outside, inside = mapping.split(":")
            assert address == "127.0.0.1"
            assert int(inside) in ports[name]
            published.append(outside)
    assert len(published) == len(set(published))


def test_a_service_waits_only_for_what_can_come_true():
    for name, service in SERVICES.items():
        for other, detail in service.get("depends_on", {}).items():
            if detail["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], f"{name} waits for the health of {other}"
            else:
                assert SERVICES[other]["restart"] == "no", f"{name} waits for the end of {other}"


def test_every_service_that_stays_has_a_health_check():
    assert [
        name for name, service in SERVICES.items() if service["restart"] != "no" and "healthcheck" not in service
    ] == []


def test_images_are_pinned_to_the_versions_that_the_tests_use():
    images = {name: service["image"].partition("@")[0] for name, service in SERVICES.items()}
    assert images["kafka"] == f"apache/kafka:{KAFKA_VERSION}"
    assert images["s3"] == f"versity/versitygw:{VERSITYGW_VERSION}"
    assert images["airflow-scheduler"] == f"ticdc-replay:{__version__}"
    assert [
        image for image in images.values() if not re.fullmatch(r"[a-z/-]+:v?\d+\.\d+(\.\d+)?(-bookworm)?", image)
    ] == []


def test_every_image_that_others_built_is_named_by_digest():
    composed = [service["image"] for service in SERVICES.values() if "build" not in service]
    stages = re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, flags=re.MULTILINE)
    bases = re.findall(r"^(?:FROM |COPY --from=)(\S+)", DOCKERFILE, flags=re.MULTILINE)
    others = composed + [base for base in bases if base not in stages]
    assert len(set(others)) == 5
    assert [image for image in others if not re.fullmatch(r"[^@:]+:[^@:]+@sha256:[0-9a-f]{64}", image)] == []
    assert len({image.partition("@")[0] for image in others}) == len(set(others)), "one digest for each tag"


def test_the_image_has_the_python_that_the_packages_are_locked_for():
    bases = re.findall(r"^FROM python:([^@\s]+)", DOCKERFILE, flags=re.MULTILINE)
    locked = re.search(r"--python-version (\S+)", (CHECKOUT / "requirements/runtime.txt").read_text(encoding="utf-8"))
    assert locked is not None
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(rf"{re.escape(locked.group(1))}\.\d+-slim-bookworm", bases[0])


def test_the_image_has_the_jars_of_lake_tables_that_the_tests_use():
    fetched = re.findall(r"&& fetch (\S+) (\S+) (\S+)", DOCKERFILE)
    assert fetched == list(LAKE.roots)
    (checksums,) = (source for source in copied() if source.endswith(".sha256"))
    assert list(CHECKOUT.glob(checksums)) == [LAKE.checksums]


def test_the_image_does_not_run_as_root():
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, flags=re.MULTILINE)[-1] != "root"


def test_every_setting_of_airflow_exists_and_commands_stand_only_where_airflow_runs_them():
    known = settings_of_airflow()
    text = COMPOSE_TEXT + DOCKERFILE + "".join(path.read_text(encoding="utf-8") for path in DEMO)
    found = set(re.findall(r"AIRFLOW__([A-Z0-9_]+?)__([A-Z0-9_]+)", text))
    assert found
    for section, name in found:
        plain = name.removesuffix("_CMD")
        assert (section, plain) in known
        if name != plain:
            assert known[section, plain]["sensitive"], f"Airflow ignores {name}"


def test_every_variable_of_this_project_is_one_that_its_code_reads():
    named = set(re.findall(r"TICDC_REPLAY_\w+", COMPOSE_TEXT + DOCKERFILE))
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("include", "dags", "plugins", "demo")
        for path in (CHECKOUT / folder).rglob("*.py")
    )
    assert {name for name in named if name not in code} == set()


def test_connections_point_at_services_that_listen(connections):
    ports = listening_ports()
    for conn_id, connection in connections.items():
        if "host" in connection:
            host = connection["host"].rpartition("/")[2]
            assert connection["port"] in ports[host], conn_id


def test_databases_of_connections_are_made_by_their_servers(connections):
    created = (CHECKOUT / "docker/create-state-database.sh").read_text(encoding="utf-8")
    for connection in connections.values():
        if connection["conn_type"] == "postgres":
            server = SERVICES[connection["host"]]["environment"]
            own = server["POSTGRES_DB"] == connection["schema"] and server["POSTGRES_USER"] == connection["login"]
            extra = f"CREATE DATABASE {connection['schema']} OWNER {connection['login']};" in created
            assert own or extra


def test_drivers_and_executors_have_the_folder_of_iceberg_s_catalog(connections):
    settings = connections["lakehouse"]["extra"]
    folder = settings["warehouse"].removeprefix("file://")
    assert settings["uri"] == f"jdbc:sqlite:{folder}/catalog.db"
    with_folder = {name for name, service in SERVICES.items() if f"lakehouse:{folder}" in service.get("volumes", [])}
    assert with_folder == {"airflow-scheduler", "spark-worker"}
    assert re.search(rf"--owner=replay .*{folder}$", DOCKERFILE, flags=re.MULTILINE), "a volume gets the folder's owner"


@pytest.mark.parametrize("file", PIPELINES, ids=lambda path: path.name)
def test_a_pipeline_names_connections_and_buckets_that_exist(file, connections, common):
    loaded = load_pipeline(file)
    assert loaded.warnings == ()
    assert {*connection_ids(loaded.pipeline), loaded.pipeline.connections.spark} <= set(connections)
    assert buckets(file) <= {common.ARTIFACTS_BUCKET, common.SAMPLE_BUCKET}


@pytest.mark.parametrize("file", STORES, ids=lambda path: path.name)
def test_a_store_is_that_of_its_pipelines_and_names_connections_and_buckets_that_exist(file, connections, common):
    loaded = load_store(file, CHECKOUT / "include/pipelines")
    assert loaded.owners_complete
    assert {*store_connection_ids(loaded), loaded.store.connections.spark} <= set(connections)
    assert buckets(file) <= {common.ARTIFACTS_BUCKET, common.SAMPLE_BUCKET}


def test_every_claim_check_store_of_the_pipelines_is_reconciled():
    reconciled = {load_store(file, CHECKOUT / "include/pipelines").store.uri for file in STORES}
    assert {load_pipeline(file).changefeed.claim_check_uri for file in PIPELINES} == reconciled


def test_the_sample_is_published_where_its_pipeline_reads(common):
    changefeed = load_pipeline(CHECKOUT / "include/pipelines/shop.yaml").changefeed
    publish_sample = importlib.import_module("publish_sample")
    meta = json.loads((CHECKOUT / "demo/sample/data/meta.json").read_text(encoding="utf-8"))
    large = meta["replica_config"]["large-message-handle"]
    assert changefeed.topic == publish_sample.TOPIC
    assert changefeed.claim_check_uri == large["claim-check-storage-uri"]
    assert changefeed.claim_check_uri == f"s3://{common.SAMPLE_BUCKET}/claim-check"
    assert (changefeed.timezone, changefeed.partition_num) == (meta["ticdc_timezone"], meta["partitions"])


@pytest.mark.parametrize("folder", ["pipelines", "stores"])
def test_the_dag_file_finds_what_is_mounted(folder):
    dags = re.search(r"AIRFLOW__CORE__DAGS_FOLDER=(\S+)", DOCKERFILE)
    assert dags is not None
    assert "dags/ticdc_replay.py" in {
        str(path.relative_to(CHECKOUT)) for source in copied() for path in CHECKOUT.glob(source)
    }
    expected = f"{Path(dags.group(1)).parent}/include/{folder}"
    mounts = {name: target for name, _, target in bind_mounts() if target.endswith(folder)}
    assert set(mounts.values()) == {expected}
    assert {name for name, service in SERVICES.items() if words(service)[:1] == ["airflow"]} <= set(mounts)
