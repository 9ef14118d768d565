"""Joins a claim-check store's objects with all known references to them."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("reconcile")
