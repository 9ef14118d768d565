"""Scans retained offsets for claim-check references. One argument: the URI of the job spec."""

from ticdc_replay.spark.main import run_scan_job

if __name__ == "__main__":
    run_scan_job()
