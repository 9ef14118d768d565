"""Decodes the pinned range of a manifest into a changelog. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("decode")
