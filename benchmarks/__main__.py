"""``make bench``: run the benchmarks from Kafka to a target, one after another. ``make bench ARGS="replay flat"`` runs these two.

Each has its own process and servers, and writes its part of ``benchmarks/RESULTS.md``. The others run only if they are named.
"""

import argparse
import subprocess
import sys

MAIN_PATH = ("replay", "stages", "spark_source", "claim_check", "flat", "load")
OTHERS = (
    *("protocols", "tables", "scan", "reconcile", "lag", "lake", "pinning_scale"),
    *("small", "backfill", "warm_airflow", "connect", "parse", "verify"),
)


def main() -> None:
    """Run the benchmarks that are named, by default those of the main path; stop at the first that fails."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join((*MAIN_PATH, *OTHERS))}")
    names = arguments.parse_args().names or MAIN_PATH
    for name in names:
        if name not in (*MAIN_PATH, *OTHERS):
            arguments.error(f"no benchmark {name!r}")
    for name in names:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)


if __name__ == "__main__":
    main()
