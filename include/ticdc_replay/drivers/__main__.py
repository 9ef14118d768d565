"""A driver without Spark: ``python -m ticdc_replay.drivers <URI of the job spec> [<name of the attempt>]``."""

from ticdc_replay.drivers.local import main

if __name__ == "__main__":
    main()
