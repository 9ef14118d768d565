"""Compares the mirrors of one target with the upstream."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("verify")
