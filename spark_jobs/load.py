"""Loads a changelog into one target. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import run_load_job

if __name__ == "__main__":
    run_load_job()
