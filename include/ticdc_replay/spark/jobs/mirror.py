"""Changes a mirror of lake tables outside of loads: lets it follow a DDL, or swaps it with a new one."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("mirror")
