"""Compacts the lake tables of one target, and removes what nothing needs."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("maintain")
