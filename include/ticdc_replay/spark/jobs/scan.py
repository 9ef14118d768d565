"""Scans retained offsets for claim-check references."""

from ticdc_replay.spark.main import main

if __name__ == "__main__":
    main("scan")
