"""All benchmarks of the way from Kafka to a target, one after the other: ``make bench``, or ``make bench ARGS="replay flat"``.

Each has a process and servers of its own and writes its part of ``benchmarks/RESULTS.md``. Those that are not of the main path
are run by name only.
"""

import argparse
import subprocess
import sys

MAIN_PATH = ("replay", "stages", "spark_source", "claim_check", "flat", "load")
OTHERS = ("protocols", "tables", "scan", "reconcile", "lag", "pinning_scale")


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
