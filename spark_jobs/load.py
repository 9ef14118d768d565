"""Loads a changelog into one target. One argument: the URI of the job spec."""

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import JobSpec, LoadJob
from ticdc_replay.spark.load import run_load
from ticdc_replay.spark.main import run
from ticdc_replay.spark.session import open_session


def main(job: JobSpec, connections: Connections) -> None:
    if not isinstance(job, LoadJob):
        raise ConfigError("this script runs load jobs; use decode.py for a decode job")
    spark = open_session(f"ticdc-replay load {job.pipeline} {job.target['name']} {job.run_hash[:12]}")
    try:
        run_load(spark, job, connections)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(main)
