"""Joins a claim-check store's objects with all known references to them. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("reconcile")
