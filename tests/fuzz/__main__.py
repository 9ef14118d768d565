"""``python -m tests.fuzz``: the long run. Exit code 1, and a line for each defect that shows it again, when there is one."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.fuzz.campaign import measured, once, summary
from tests.fuzz.oracle import Subject
from tests.support.capture_sets import COMMITTED, CaptureSets
from ticdc_replay.captures import Capture


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="how many messages are changed")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each change takes the next")
    parser.add_argument("--only", default="", help="only captures with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--again", nargs=2, metavar=("CAPTURE", "SEED"), help="one change once more, as a traceback or None"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        captures = CaptureSets(Path(folder))
        if options.again:
            name, seed = options.again
            subject = Subject(Capture(next(captures.of(one) for one in COMMITTED if str(one) == name)))
            print(once(subject, int(seed), Counter()))  # noqa: T201
            subject.convert()
            return 0
        folders = [captures.of(one) for one in COMMITTED if options.only in str(one)]
        return _campaign(folders, options.seed, options.messages, options.jobs)


def _campaign(folders: list[Path], seed: int, messages: int, jobs: int) -> int:
    share = -(-messages // len(folders))
    started = time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        starts = range(seed, seed + share * len(folders), share)
        results = list(pool.map(measured, folders, starts, [share] * len(folders)))
    outcomes = [outcome for outcome, _ in results]
    report = [
        *summary(outcomes),
        "",
        f"seeds {seed} to {seed + share * len(folders) - 1}, {time.monotonic() - started:.0f} s with {jobs} processes, "
        f"largest resident set {max(peak for _, peak in results) >> 20} MiB",
    ]
    reasons = sum((outcome.answers for outcome in outcomes), Counter[str]())
    report += [f"{count:>9} {name}" for name, count in reasons.most_common()]
    defects = [found for outcome in outcomes for found in outcome.defects]
    for found in defects:
        report.append(
            f"DEFECT {found.what}\n    python -m tests.fuzz --again {found.capture} {found.seed}  # {found.mutation}"
        )
    sys.stdout.write("\n".join(report) + "\n")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
