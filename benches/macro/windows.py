"""Windows over a retailer's series: Forebay and its peers side by side, and Forebay where it is hard.

The job (specs/windows.yaml): lags of 1, 7 and 28 days; mean and deviation of 7 and of 28 days;
the mean of everything so far; and the mean of the same weekday divided by it, all up to the day
before; written as Parquet (snappy) with all columns of the history.

Cases:
  peers        everyone, on a history in time order
  shuffled     everyone but mlforecast, on the same rows in random order
  floor        Forebay: the job, and its output read and written again without any work
  out_of_core  Forebay: far more rows than memory; the peak has to keep the promise of memory,
               1.3 x the limit + 150 MiB
  skew         Forebay: one series with half of all rows, and ten million series of six rows, each
               beside series of equal length with the same days; in time order and shuffled

mlforecast needs all rows in memory: it gets the first tenth of the files where there are ten; its
seconds are scaled up by rows, its memory is not. The page cache is warm; every run starts without
saved state. What contenders wrote must agree (macro/windows_check.py), or the exit code is 1."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import windows_alone
import windows_peers
from measure import build, size

# By case: rows and memory where nothing else is said.
CASES = {
    "peers": (windows_peers.in_time_order, 58_000_000, "8GiB"),
    "shuffled": (windows_peers.shuffled, 58_000_000, "8GiB"),
    "floor": (windows_alone.floor, 58_000_000, "8GiB"),
    "out_of_core": (windows_alone.out_of_core, 400_000_000, "512MiB"),
    "skew": (windows_alone.skew, 60_000_000, "4GiB"),
}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/windows", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="?", default="peers", choices=CASES, help="[peers]")
    parser.add_argument("--rows", type=int, help="rows to generate [58000000; out_of_core 400000000; skew 60000000]")
    parser.add_argument("--forebay", help="the program; else it is built; `none` leaves Forebay out")
    parser.add_argument("--rounds", type=int, default=1, help="all contenders in turn, so many times; the table has medians [1]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", help="limit for those that take one [8GiB; out_of_core 512MiB; skew 4GiB]")
    parser.add_argument("--only", help="contenders, such as forebay,polars [all]")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args()


def main():
    options = arguments()
    run, rows, memory = CASES[options.case]
    options.rows, options.memory = options.rows or rows, options.memory or memory
    size(options.memory)
    if options.rounds < 1 or options.threads < 1 or options.rows < 1:
        sys.exit("`--rounds`, `--threads` and `--rows` must be at least 1")
    options.alone = options.forebay == "none"
    options.forebay = build(None if options.alone else options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-windows-", dir=options.work))
    options.home = (options.work or scratch).resolve()
    try:
        ok = run(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
