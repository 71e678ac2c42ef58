"""How well a run foretells its end.

Runs benches/specs/nightly.yaml over generated demand again and again, each time anew but for what
Forebay remembers of what earlier runs cost, and notes when it says that it will be done. A forecast is
wrong by the difference of the foretold time of the whole run and the real one, as a share of the real
one. From a quarter of the way on it must stay within 15 % in the second run and all later ones, or the
exit code is 1. A busy machine makes forecasts worse: runs differ in length then.

With `--slow-downs`, nights of benches/specs/late.yaml are slowed down on their way, each by its seed, so that they
cannot keep their deadline as they are. Where one has no whole output of all rows before it, or does not say which
rung of the ladder it took, the exit code is 1 too.

With `--kinds`, ten kinds of run (windows, CSV, SQL, a join, trainings, forecasts, ...) foretell their ends: within 30 %
from a third of the way on. With `--nights`, nights have 1.3 times their time, and none may do less than its spec
says. Both work with a program that is not optimised, and small data: `--forebay target/debug/forebay --runs 0
--kind-series 50`. `--kinds-and-nights` is both, with 200 nights, and nothing else."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eta_kinds import measure_kinds, measure_nights
from late import slow_downs
from measure import REPO, build, kept, table

WRONG_MAX = 0.15


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/eta", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=30_490, help="items times stores [30490]")
    parser.add_argument("--days", type=int, default=2193, help="long enough for some forecasts: they come every second [2193]")
    parser.add_argument("--runs", type=int, default=5, help="the first of them knows nothing; 0 for slow-downs alone [5]")
    parser.add_argument("--slow-downs", type=int, default=0, help="nights that are slowed down, such as 20 [0]")
    parser.add_argument("--late-days", type=int, default=731, help="the days of their history [731]")
    parser.add_argument("--kinds", action="store_true", help="measure ten kinds of run, too")
    parser.add_argument("--kind-runs", type=int, default=4, help="runs of each kind; the first knows nothing [4]")
    parser.add_argument("--kind-series", type=int, default=3000, help="items times stores of kinds and nights [3000]")
    parser.add_argument("--kind-days", type=int, default=365, help="the days of their history [365]")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of their trees [200]")
    parser.add_argument("--nights", type=int, default=0, help="nights with time to spare, such as 200 [0]")
    parser.add_argument(
        "--kinds-and-nights", action="store_true", help="as `--runs 0 --kinds --nights 200`, or with fewer nights by `--nights`"
    )
    parser.add_argument("--seeds", help="only these of them, such as 3 or 5-9 [all]")
    parser.add_argument("--memory", default="2GiB", help="what Forebay may use [2GiB]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    options = parser.parse_args()
    if options.kinds_and_nights:
        options.runs = 0
        options.kinds = True
        options.nights = options.nights or 200
    first, _, last = (options.seeds or f"0-{options.slow_downs - 1}").partition("-")
    options.seeds = range(int(first), int(last or first) + 1)
    return options


def run(options, forebay, data, scratch):
    """The time that a run took, and its forecasts: when, and of how much in all."""
    out, state = scratch / "out", scratch / "state"
    for old in [out, *(path for path in state.glob("*") if path.name != "costs")]:
        shutil.rmtree(old, ignore_errors=True)
    words = [forebay, "run", REPO / "benches" / "specs" / "nightly.yaml", "--json", "--param", f"history={data}"]
    words += ["--param", f"out={out}", "--state", state, "--memory", options.memory, "--threads", options.threads]
    os.sync()  # What others wrote is not this one's to wait for.
    began = time.perf_counter()
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    foretold = []
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == "eta":
            at = time.perf_counter() - began
            foretold.append((at, at + event["seconds_left"]))
    if child.wait() != 0:
        sys.exit(f"the run ended with {child.returncode}")
    return time.perf_counter() - began, foretold


def forecasts(options, forebay):
    """Whether forecasts are right."""
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-eta-", dir=options.work)).resolve()
    what = ["demand", "--days", options.days, "--series", options.series, "--period", "day", "--seed", "1"]
    data = (options.work or scratch) / f"demand-{options.series}-{options.days}"
    lines = [("run", "wall s", "forecasts", "wrong at most %", "median %")]
    too_wrong = False
    try:
        kept(data, " ".join(map(str, what)) + "\n", [forebay, "generate", *what, "--out", data, "--replace"])
        for number in range(1, options.runs + 1):
            took, foretold = run(options, forebay, data, scratch)
            wrong = [abs(whole - took) / took for at, whole in foretold if at >= took / 4]
            worst = max(wrong, default=0.0)
            too_wrong |= number > 1 and (not wrong or worst > WRONG_MAX)
            middle = statistics.median(wrong) if wrong else 0.0
            lines.append((str(number), f"{took:.2f}", str(len(wrong)), f"{100 * worst:.1f}", f"{100 * middle:.1f}"))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("forecasts from a quarter of the way on, beside the time that the run took")
    table(lines)
    return not too_wrong


def main():
    options = arguments()
    forebay = build(options.forebay)
    right = options.runs == 0 or forecasts(options, forebay)
    problems = slow_downs(options, forebay) if options.seeds else []
    if options.kinds:
        problems += measure_kinds(options, forebay)
    if options.nights:
        problems += measure_nights(options, forebay)
    for problem in problems:
        print(f"FAILED  {problem}")
    sys.exit(0 if right and not problems else 1)


if __name__ == "__main__":
    main()
