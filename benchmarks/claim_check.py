"""A fifth of all events by reference: Kafka → changelog against fetching the same objects, and nothing else, in the fastest way.

``python -m benchmarks.claim_check`` runs it and writes its part of ``benchmarks/RESULTS.md``; with another number of objects it
only prints. Objects have 2 KB to 1 MB, log-uniform; their rows are inserts of the Canal-JSON workload with a longer JSON cell,
wrapped as TiCDC wraps them. The server is versitygw where Go is there, else moto, on the same cores. All clients fetch with as
many connections: two processes with 16 threads each, as two tasks of the replay do. The inventory is pinned, so the replay, too,
takes one request an object.
"""

import argparse
import base64
import math
import os
import platform
import random
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import msgspec
import obstore
from botocore.config import Config
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from obstore.store import S3Store as ObstoreS3

from benchmarks import plain
from benchmarks.jobs import DECODERS, connections, decode_job, native_is_there, prepare_environment, session
from benchmarks.measure import Stage, measure
from benchmarks.pinning import manifest_name, pin_everything
from benchmarks.results import replace_part
from benchmarks.workload import CANAL, PARTITIONS, Part, templates
from demo.embedded_stack.errors import MissingToolError
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.s3 import MotoServer, S3Server, VersityGateway
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.inventory import pin_inventory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.storage import open_store

OBJECTS = 8_000
EVERY = 5
SMALLEST, LARGEST = 2_000, 1_000_000
CONNECTIONS = 16
GOAL = 1.3
TOPIC = "workload"
BUCKET = "claims"
PREFIX = "changefeed"


class Server(NamedTuple):
    """Where the objects are; what crosses to the processes that fetch."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str

    def connection(self) -> Connection:
        """As the replay has it."""
        extra = {"endpoint_url": self.endpoint, "region_name": self.region}
        return Connection("claims", "aws", login=self.access_key, password=self.secret_key, extra=extra)

    def boto3(self) -> Any:
        """boto3's client, set up as compatible servers need it."""
        config = Config(
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=config,
        )


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, default=OBJECTS)
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        gateway = _server(Path(folder))
        try:
            text = compare(gateway, kafka.bootstrap, Path(folder), options.objects, options.runs)
        finally:
            gateway.stop()
    print(text)
    if options.objects == OBJECTS and native_is_there():
        replace_part("claim_check", text)


def _server(folder: Path) -> S3Server:
    server: S3Server = VersityGateway(folder / "versitygw")
    try:
        server.start()
    except MissingToolError:
        server = MotoServer(folder / "moto")
        server.start()
    return server


def compare(gateway: S3Server, bootstrap: str, folder: Path, objects: int, runs: int) -> str:
    """Fetch and replay the same *objects*; the results as Markdown."""
    server = Server(gateway.endpoint, gateway.access_key, gateway.secret_key, gateway.region)
    server.boto3().create_bucket(Bucket=BUCKET)
    names, size, events = _publish(bootstrap, server, objects)
    print(f"{events:,} events, {objects:,} objects, {size / 1e6:,.0f} MB", flush=True)
    stages = []
    with plain.Readers() as readers:
        for name, fetch in (("boto3, threads", fetch_boto3), ("obstore, threads", fetch_obstore)):
            stage = Stage(name)
            for run in range(runs + 1):
                work = partial(readers.share, partial(fetch, server), names)
                found = measure(stage if run else Stage("first"), work)
                assert found == size, f"{found} of {size} bytes"
            stages.append(stage)
            print(f"{name}: {stage.median:.2f} s", flush=True)
    artifacts = f"file://{folder}/artifacts/bench"
    manifest = _with_inventory(pin_everything(bootstrap, TOPIC, artifacts), server, artifacts)
    changefeed = msgspec.structs.replace(
        CANAL.changefeed, large_message="claim-check", claim_check_uri=f"s3://{BUCKET}/{PREFIX}"
    )
    job = decode_job(manifest, changefeed, artifacts, "replay", claim_check_connection="claims")
    for decoder, conf in DECODERS.items():
        if decoder == "native" and not native_is_there():
            continue
        stage = Stage(f"Kafka → changelog, {decoder}")
        with session("bench", conf) as spark:
            for run in range(runs + 1):
                decode = partial(run_decode, SparkRunner(spark), job, connections(bootstrap, server.connection()))
                index = measure(stage if run else Stage("first"), decode)
                counts = index.report.events
                assert (counts.written, counts.claim_checks_resolved) == (events, objects), counts
                # What a run used is recorded, and the next would look it up there, too.
                shutil.rmtree(f"{folder}/artifacts/bench/{job.changelog_root}")
                shutil.rmtree(f"{folder}/artifacts/bench/used")
        stages.append(stage)
        print(f"{stage.name}: {stage.median:.2f} s", flush=True)
    return table(stages, gateway.name, events, objects, size)


def fetch_boto3(server: Server, names: Sequence[str]) -> int:
    """Bytes of the objects *names*, which are dropped."""
    client = server.boto3()

    def get(name: str) -> int:
        return len(client.get_object(Bucket=BUCKET, Key=name)["Body"].read())

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        return sum(threads.map(get, names))


def fetch_obstore(server: Server, names: Sequence[str]) -> int:
    """As ``fetch_boto3``."""
    store = ObstoreS3(
        BUCKET,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    def get(name: str) -> int:
        return len(bytes(obstore.get(store, name).bytes()))

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        return sum(threads.map(get, names))


def _publish(bootstrap: str, server: Server, objects: int) -> tuple[list[str], int, int]:
    """Send events, one in ``EVERY`` by reference; the keys of the objects, their bytes, and the number of events."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 20})
    client = server.boto3()
    chosen = random.Random(1)
    filling = base64.b64encode(chosen.randbytes(LARGEST)).decode()
    names: list[str] = []
    waiting: list[tuple[str, bytes]] = []
    events = due = 0
    for rows, (_, value) in _messages():
        for partition in [events % PARTITIONS] if rows else range(PARTITIONS):
            sent = value
            if rows:
                events += 1
                due += events % EVERY == 0
            if rows and due and CANAL.kind_of((b"", value)) == "insert":
                due -= 1
                name = f"{PREFIX}/{uuid.UUID(int=chosen.getrandbits(128), version=4)}.json"
                wanted = math.exp(chosen.uniform(math.log(SMALLEST), math.log(LARGEST)))
                content, sent = _by_reference(value, f"s3://{BUCKET}/{name}", filling, round(wanted))
                names.append(name)
                waiting.append((name, content))
            producer.produce(TOPIC, sent, None, partition, timestamp=1_795_223_228_800)
        producer.poll(0)
        if len(names) == objects:
            break
    if producer.flush(120):
        raise RuntimeError("Kafka did not take all messages within 120 s")
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(lambda each: client.put_object(Bucket=BUCKET, Key=each[0], Body=each[1]), waiting))
    return names, sum(len(content) for _, content in waiting), events


def _messages() -> Iterator[tuple[int, Part]]:
    """Messages without end, each with the number of its rows."""
    parts, _ = templates(CANAL)
    for repeat in count():
        for part in parts:
            if part.rows or not repeat:
                yield part.rows, part.repeat(repeat)


def _by_reference(value: bytes, location: str, filling: str, size: int) -> tuple[bytes, bytes]:
    """The object of the event *value*, about *size* bytes, and the message that refers to it, which has only the key."""
    event = msgspec.json.decode(value)
    length = max(0, size * 3 // 4 - len(value) - 40)
    event["data"][0]["attrs"] = f'{{"filling": "{filling[:length]}"}}'
    whole = msgspec.json.encode(event)
    content = msgspec.json.encode({"key": None, "value": base64.b64encode(whole).decode()})
    for member in ("sqlType", "mysqlType"):
        event[member] = {"o_id": event[member]["o_id"]}
    event["data"] = [{"o_id": event["data"][0]["o_id"]}]
    event["_tidb"]["claimCheckLocation"] = location
    return content, msgspec.json.encode(event)


def _with_inventory(manifest: Manifest, server: Server, artifacts: str) -> Manifest:
    request = PinRequest(
        pipeline="bench",
        changefeed=CANAL.changefeed,
        window=manifest.window,
        tables=("*.*",),
        start_ts=None,
        pre_roll_ms=0,
        clock_skew_ms=0,
        lag_ms=0,
        claim_check_margin_ms=0,
        list_store=True,
        unproven="allow",
        decompressed_max_bytes=1,
        schemas=SchemaHistory(),
    )
    store = open_store(f"s3://{BUCKET}/{PREFIX}", server.connection())
    inventory = pin_inventory(request, store, open_store(artifacts))
    pinned = msgspec.structs.replace(manifest, inventory=inventory)
    open_store(artifacts).put_once(manifest_name(pinned), canonical.encode(pinned))
    return pinned


def table(stages: Sequence[Stage], server: str, events: int, objects: int, size: int) -> str:
    """The results as Markdown. The first stages are the clients'."""
    fastest = min(stage.median for stage in stages if "changelog" not in stage.name)
    lines = [
        f"`python -m benchmarks.claim_check`: {events:,} events, {objects:,} of them by reference, {size / 1e6:,.0f} MB of "
        f"objects in {server}, {len(stages[0].seconds)} runs, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, medians; {plain.PROCESSES} × {CONNECTIONS} connections.",
        "",
        "| | s | objects/s | MB/s | of the fastest client | goal | min – max s | peak MB of a worker |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stage in stages:
        goal = f"≤ {GOAL}" if "changelog" in stage.name else ""
        lines.append(
            f"| {stage.name} | {stage.median:.2f} | {objects / stage.median:,.0f} | {size / stage.median / 1e6:,.0f} | "
            f"{stage.median / fastest:.2f} | {goal} | {min(stage.seconds):.2f} – {max(stage.seconds):.2f} | {stage.peak:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
