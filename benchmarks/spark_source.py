"""Canal-JSON → typed rows without duplicates, as Spark alone does it: its Kafka source, ``from_json`` and ``dropDuplicates``.

``python -m benchmarks.spark_source`` runs it against our Kafka → changelog on the same topic, and writes its part of
``benchmarks/RESULTS.md``; with another number of events it only prints. Both run warm in a session of their own with the same
memory, both leave zstd Parquet files with typed images before and after. Spark parses every message as one structure, with cells
as texts as Canal-JSON has them, and casts them; it takes rows only, and drops repeats of (key, commitTs, type).
"""

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from benchmarks.jobs import DECODERS, native_is_there, prepare_environment, session
from benchmarks.measure import Stage, measure
from benchmarks.pinning import pin_everything
from benchmarks.replay import replay
from benchmarks.results import replace_part, stages_table
from benchmarks.workload import CANAL, Published, publish
from demo.embedded_stack import jars
from demo.embedded_stack.kafka import Kafka

EVENTS = 1_000_000
TOPIC = "workload"
GOAL = "≥ 5"
DRIVER_MEMORY = "3g"
SPARK_KAFKA = jars.JarSet(
    "spark-kafka-4.1.3",
    (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3"),
        # Of this module, which is about tokens of Kerberos alone, no later version is there.
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    Path(__file__).with_name("spark-kafka-4.1.3.sha256"),
    transitive=False,
)
COLUMNS = {
    "o_id": "bigint",
    "cust_id": "bigint",
    "status": "int",
    "amount": "decimal(12,2)",
    "discount": "double",
    "created_at": "timestamp_ntz",
    "updated_at": "timestamp",
    "note": "string",
    "payload": "binary",
    "attrs": "string",
}


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        published = publish(kafka.bootstrap, TOPIC, CANAL, options.events)
        text = compare(published, kafka.bootstrap, Path(folder), options.runs)
    print(text)
    if options.events == EVENTS and native_is_there():
        replace_part("spark_source", text)


def compare(published: Published, bootstrap: str, folder: Path, runs: int) -> str:
    """Both ways *runs* times, after one that does not count; the results as Markdown."""
    conf = {
        "spark.jars": ",".join(str(path) for path in sorted(jars.fetch(SPARK_KAFKA).glob("*.jar"))),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.sql.shuffle.partitions": "4",
    }
    theirs = Stage("Spark's Kafka source, from_json, dropDuplicates → Parquet")
    with session("baseline", conf, light=False) as spark:
        for run in range(runs + 1):
            target = f"{folder}/baseline"
            measure(theirs if run else Stage("first"), partial(baseline, spark, bootstrap, target))
            if not run:
                rows = spark.read.parquet(target).count()
                assert rows == published.rows, f"{rows} of {published.rows} rows"
            shutil.rmtree(target)
    print(f"{theirs.name}: {theirs.median:.2f} s", flush=True)
    artifacts = f"file://{folder}/artifacts/bench"
    manifest = pin_everything(bootstrap, TOPIC, artifacts)
    stages = [theirs]
    ratios: list[tuple[str, float, str]] = []
    for decoder, conf in DECODERS.items():
        if decoder == "native" and not native_is_there():
            continue
        ours = Stage(f"Kafka → changelog, {decoder}")
        with session("bench", conf | {"spark.driver.memory": DRIVER_MEMORY}) as spark:
            for run in range(runs + 1):
                replay(spark, CANAL, manifest, bootstrap, artifacts, ours if run else Stage("first"))
        print(f"{ours.name}: {ours.median:.2f} s", flush=True)
        stages.append(ours)
        goal = GOAL if not ratios else ""
        ratios.append((f"{ours.name}: times as fast as Spark's source", theirs.median / ours.median, goal))
    command = "python -m benchmarks.spark_source"
    return stages_table(stages, published.rows, published.size, ratios, command)


def baseline(spark: SparkSession, bootstrap: str, target: str) -> None:
    """What a Spark user would write."""
    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    (typed(messages).dropDuplicates(["o_id", "commit_ts", "type"]).write.option("compression", "zstd").parquet(target))


def typed(messages: DataFrame) -> DataFrame:
    """Rows with typed images; of an UPDATE and a DELETE the one before."""
    texts = st.StructType([st.StructField(name, st.StringType()) for name in COLUMNS])
    form = st.StructType(
        [
            st.StructField("type", st.StringType()),
            st.StructField("isDdl", st.BooleanType()),
            st.StructField("data", st.ArrayType(texts)),
            st.StructField("old", st.ArrayType(texts)),
            st.StructField("_tidb", st.StructType([st.StructField("commitTs", st.LongType())])),
        ]
    )
    parsed = messages.select(
        sf.from_json(sf.col("value").cast("string"), form).alias("event"), "topic", "partition", "offset"
    )
    rows = parsed.where(sf.col("event.type").isin("INSERT", "UPDATE", "DELETE"))
    deleted = sf.col("event.type") == "DELETE"
    data, old = sf.col("event.data")[0], sf.col("event.old")[0]
    return rows.select(
        sf.col("event.type").alias("type"),
        sf.col("event._tidb.commitTs").alias("commit_ts"),
        "topic",
        "partition",
        "offset",
        data["o_id"].cast("bigint").alias("o_id"),
        sf.when(deleted, _image(data)).otherwise(sf.when(old.isNotNull(), _image(old))).alias("before"),
        sf.when(~deleted, _image(data)).alias("after"),
    )


def _image(texts: Column) -> Column:
    """*texts* with the types of the table. Binary cells are text in ISO 8859-1, a character for each byte."""
    cells = []
    for name, kind in COLUMNS.items():
        cell = texts[name]
        cells.append((sf.encode(cell, "ISO-8859-1") if kind == "binary" else cell.cast(kind)).alias(name))
    return sf.struct(*cells)


if __name__ == "__main__":
    main()
