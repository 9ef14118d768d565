"""Loads a changelog into one target. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("load")
