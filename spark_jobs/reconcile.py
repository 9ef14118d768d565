"""Joins a claim-check store's objects with all known references to them. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import run_reconcile_job

if __name__ == "__main__":
    run_reconcile_job()
