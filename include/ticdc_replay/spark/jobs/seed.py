"""Makes the changelog of a dump, with which mirrors begin."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("seed")
