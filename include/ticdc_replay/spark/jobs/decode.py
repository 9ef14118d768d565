"""Decodes the pinned range of a manifest into a changelog."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("decode")
