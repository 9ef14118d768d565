"""Decodes the pinned range of a manifest into a changelog. One argument: the URI of the job spec."""

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import DecodeJob, JobSpec
from ticdc_replay.spark.decode import run_decode
from ticdc_replay.spark.main import run
from ticdc_replay.spark.session import open_session


def main(job: JobSpec, connections: Connections) -> None:
    if not isinstance(job, DecodeJob):
        raise ConfigError("this script runs decode jobs; use load.py for a load job")
    spark = open_session(f"ticdc-replay decode {job.pipeline} {job.run_hash[:12]}")
    try:
        run_decode(spark, job, connections)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(main)
