"""Scans retained offsets for claim-check references. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("scan")
