"""Loads a changelog into one target."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("load")
