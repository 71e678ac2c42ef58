"""Mini-batches of 8192 x 39 as tensors of PyTorch on the CPU, two epochs by everyone in turn.

The rows are the features of generated clicks (13 numbers as float32, 26 ids as int32), in Parquet
files that pyarrow wrote and all read; the label is the row's number, so that what was delivered
tells how well it was shuffled. The page cache is warm, and all use the same cores. Rates and CPU time
are those of the second epoch, as in a training of many: it begins where the first ends. In the first,
memory is used for the first time, and who reads ahead has begun with the next before it ends. Quality
is the smallest mean distance in the files of two rows that are delivered 1, 2, 4, ... 4096 apart, as a
share of that in a true permutation, of the worse epoch.

  floor               pyarrow reads and decodes all columns; no batches are delivered
  forebay             forebay.Loader, shuffled through its default window
  forebay-sequential  forebay.Loader in the order of the files
  pyarrow             a scan of a dataset in its order, columns side by side as tensors
  torch               IterableDataset over row groups in DataLoader's workers: row groups shuffled, and
                      the rows of each
  ray                 Ray Data, files shuffled, iter_torch_batches with a local shuffle of 160,000 rows
  mosaic              StreamingDataset, shuffled; from its own format, of the first --mosaic-rows rows

Contenders that are not installed are skipped. The exit code is 1 where a contender fails, or where Forebay
delivers a row of an epoch other than once."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import build, generate, measured, table, tail, warm

HERE = Path(__file__).resolve().parent
CONTENDERS = ["floor", "forebay", "forebay-sequential", "pyarrow", "torch", "ray", "mosaic"]
NEEDS = {"torch": "torch", "ray": "ray", "mosaic": "streaming"}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/feed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate [20000000]")
    parser.add_argument("--data", type=Path, help="a directory of clicks to use instead of generating")
    parser.add_argument("--rounds", type=int, default=1, help="all in turn, so many times; the table has medians [1]")
    parser.add_argument("--only", help="contenders, such as forebay,ray [all]")
    parser.add_argument("--mosaic-rows", type=int, default=500_000, help="rows for StreamingDataset [500000]")
    parser.add_argument("--work", type=Path, help="a directory for data [a temporary one, removed]")
    parser.add_argument("--built", action="store_true", help="the Python package is installed already")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args()


def main():
    options = arguments()
    wanted = options.only.split(",") if options.only else CONTENDERS
    if unknown := set(wanted) - set(CONTENDERS):
        sys.exit(f"there is no contender {', '.join(unknown)}")
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-feed-", dir=options.work))
    try:
        ok = compete(options, wanted, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if ok else 1)


def features(options, scratch):
    """The directory of the features, made unless it is there from an earlier call."""
    home = options.work or scratch
    if not options.data:
        options.data = generate(build(None), "clicks", options.rows, home / f"clicks-{options.rows}")
    out = home / f"features-of-{options.data.name}"
    # Beside the files: everything in the directory is read.
    done = out.with_name(f"{out.name}.done")
    if not done.exists():
        shutil.rmtree(out, ignore_errors=True)
        child("prepare", options.data.resolve(), out, scratch / "run").check_returncode()
        done.touch()
    return out


def child(*words):
    return subprocess.run([sys.executable, HERE / "feed_contenders.py", *map(str, words)])


def compete(options, wanted, scratch):
    data = features(options, scratch)
    files = sorted(str(path) for path in data.glob("*.parquet"))
    cores = len(os.sched_getaffinity(0))
    ok, told = True, {}
    for number in range(options.rounds):
        for name in wanted:
            if name in NEEDS and child("has", NEEDS[name]).returncode != 0:
                print(f"{name} is skipped: `{NEEDS[name]}` is not installed", flush=True)
                continue
            warm(files)
            log = scratch / f"{name}.log"
            more = [options.mosaic_rows, scratch / "mds"] if name == "mosaic" else []
            words = [sys.executable, HERE / "feed_contenders.py", name, data, scratch / "state", *more]
            cost = measured(words, log, {"OMP_NUM_THREADS": str(cores), "RAY_DEDUP_LOGS": "0"})
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"rows"')]
            if cost.code != 0 or not lines:
                print(f"{name} failed with {cost.code}:\n{tail(log)}")
                ok = False
                continue
            one = json.loads(lines[-1])
            one["peak"] = cost.peak
            ok &= one["once"] or not name.startswith("forebay")
            told.setdefault(name, []).append(one)
            rate = one["rows"] / one["seconds"] / 1e6
            print(f"{name} {number + 1}/{options.rounds}: {rate:.2f} M rows/s in {one['seconds']:.1f} s", flush=True)
    show(told)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return ok


def show(told):
    def rate(name):
        return statistics.median(one["rows"] / one["seconds"] for one in told[name])

    head = ("M rows/s", "first epoch", "MB/s", "quality", "every row once", "CPU ns/row", "peak MiB", "Forebay is")
    lines = [("", *head)]
    for name, runs in told.items():
        one = runs[0]
        per_row = one["bytes"] / one["rows"]
        cpu = min(run["cpu"] / run["rows"] for run in runs) * 1e9
        faster = f"{rate('forebay') / rate(name):.2f} x" if "forebay" in told else ""
        quality = "" if one["quality"] is None else f"{one['quality']:.3f}"
        once = "" if one["quality"] is None else "yes" if one["once"] else "no"
        first = statistics.median(run["rows"] / run["first"] for run in runs)
        rates = [f"{rate(name) / 1e6:.2f}", f"{first / 1e6:.2f}", f"{rate(name) * per_row / 1e6:.0f}"]
        figures = [*rates, quality, once, f"{cpu:.0f}"]
        lines.append((name, *figures, f"{max(run['peak'] for run in runs):.0f}", faster))
    print()
    table(lines)


if __name__ == "__main__":
    main()
