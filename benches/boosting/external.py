"""Boosted trees over rows that do not fit into memory, beside XGBoost's external memory: time and peak.

Generates rows of numbers, of which some are missing, in Parquet files; one row in 50 is for validation. All contenders read
the files and train trees of squared error with the same settings.

1  forebay                  with a `--memory` that the rows do not fit into: bins on disk
2  forebay, in memory       with enough of it; the file of the model has to be the same, byte by byte
3  xgboost                  ExtMemQuantileDMatrix: pages on disk, trees level by level, which reads all pages once a level
4  xgboost, leaf by leaf    the same with `grow_policy=lossguide`, which grows trees as Forebay does
5  xgboost, in memory       QuantileDMatrix over the same parts, trees level by level

Level by level, XGBoost grows as many leaves as the depth allows: 32 for 31. The peak is that of the resident memory, with
the pages of mapped files, but without the cache of the system. The exit code is 1 where a model of Forebay's is another
one, where Forebay with bins on disk exceeds its promise (1.3 times `--memory` and 150 MiB), or where its RMSE on the
validation rows is more than 2 % above XGBoost's."""

import argparse
import json
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "macro"))
from measure import build, finish, limits, measured, size, summary, table, tail, warm  # noqa: E402

FILE_ROWS = 500_000
RMSE_ABOVE_MAX = 0.02
XGBOOST = {
    "xgboost": {"external": True, "policy": "depthwise"},
    "xgboost, leaf by leaf": {"external": True, "policy": "lossguide"},
    "xgboost, in memory": {"external": False, "policy": "depthwise"},
}
CONTENDERS = ["forebay", "forebay, in memory", *XGBOOST]


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/boosting/external", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows to generate [10000000]")
    parser.add_argument("--columns", type=int, default=24, help="numbers of a row [24]")
    parser.add_argument("--rounds", type=int, default=50, help="trees [50]")
    parser.add_argument("--leaves", type=int, default=31, help="leaves of a tree [31]")
    parser.add_argument("--memory", default="1GiB", help="what Forebay may use; the rows should not fit [1GiB]")
    parser.add_argument("--large", default="8GiB", help="what it may use in memory [8GiB]")
    parser.add_argument("--only", default="1,2,3,4,5", help="some contenders, by their numbers above [1,2,3,4,5]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the rows for next time [a temporary one, removed]")
    return parser.parse_args()


def generated(options, out):
    """Files of rows, unless they are there from an earlier call."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out / "generated"
    words = f"{options.rows} rows of {options.columns} numbers, seed 1\n"
    if not (mark.exists() and mark.read_text() == words):
        mark.unlink(missing_ok=True)
        for old in out.glob("*.parquet"):
            old.unlink()
        generator = np.random.default_rng(1)
        for number, first in enumerate(range(0, options.rows, FILE_ROWS)):
            rows = drawn(generator, min(FILE_ROWS, options.rows - first), options.columns)
            pq.write_table(rows, out / f"{number:05}.parquet", row_group_size=100_000)
        mark.write_text(words)
    return sorted(out.glob("*.parquet"))


def drawn(generator, rows, columns):
    numbers = generator.standard_normal((columns, rows), dtype=np.float32)
    # A third of the columns have few values, and another third misses some.
    for column in range(0, columns, 3):
        numbers[column] = np.round(numbers[column] * 4)
    weights = np.linspace(2, 0.1, columns, dtype=np.float32)
    label = np.sin(numbers[0]) * 3 + (numbers[1] > 0.3) * numbers[2 % columns] * 2
    label = label + weights @ np.abs(numbers) + generator.standard_normal(rows, dtype=np.float32)
    arrays = [pa.array(np.where(generator.random(rows) < 0.02, 1, 0).astype(np.int32)), pa.array(label.astype(np.float32))]
    for column in range(columns):
        is_missing = generator.random(rows) < 0.05 if column % 3 == 1 else None
        arrays.append(pa.array(numbers[column], mask=is_missing))
    return pa.table(arrays, names=["part", "y", *(f"x{column}" for column in range(columns))])


def ours(options, data, memory, out):
    words = [options.forebay, "run", HERE / "external.yaml", "--json", "--state", out / "state"]
    words += ["--threads", options.threads, "--memory", memory]
    for name, value in {"data": data, "out": out, "rounds": options.rounds, "leaves": options.leaves}.items():
        words += ["--param", f"{name}={value}"]
    log = out / "log"
    cost = measured(words, log)
    if cost.code != 0:
        sys.exit(f"forebay failed with {cost.code}:\n{tail(log)}")
    told = summary(log)
    model = next((out / "trees").rglob("model.safetensors"))
    epoch = told["models"][0]["epochs"][0]
    return cost, epoch["validation"]["rmse"], told["spilled_bytes"], model.read_bytes()


def theirs(options, files, settings, out):
    job = {**settings, "files": [str(file) for file in files], "cache": str(out / "cache"), "columns": options.columns}
    job |= {"rounds": options.rounds, "leaves": options.leaves, "threads": options.threads}
    log = out / "log"
    cost = measured([sys.executable, HERE / "external_xgboost.py", json.dumps(job)], log, limits(options.threads, 1 << 40))
    if cost.code != 0:
        sys.exit(f"xgboost failed with {cost.code}:\n{tail(log)}")
    told = json.loads(log.read_text().splitlines()[-1])
    return cost, told["rmse"], told["cache_bytes"]


def compare(options, work):
    data = work / "rows"
    files = generated(options, data)
    chosen = [CONTENDERS[int(number) - 1] for number in options.only.split(",")]
    lines, problems = [("", "wall s", "CPU s", "peak MiB", "on disk MiB", "RMSE")], []
    errors, models = {}, {}
    for name in chosen:
        warm(files)
        with tempfile.TemporaryDirectory(prefix="forebay-boosting-", dir=work) as scratch:
            out = Path(scratch)
            if name in XGBOOST:
                cost, errors[name], on_disk = theirs(options, files, XGBOOST[name], out)
            else:
                memory = options.memory if name == "forebay" else options.large
                cost, errors[name], on_disk, models[name] = ours(options, data, memory, out)
        figures = [f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{cost.peak:.0f}", f"{on_disk / (1 << 20):.0f}"]
        lines.append((name, *figures, f"{errors[name]:.5f}"))
        if name == "forebay":
            promise = (size(options.memory) * 1.3 + (150 << 20)) / (1 << 20)
            if cost.peak > promise:
                problems.append(f"forebay held {cost.peak:.0f} MiB, more than {promise:.0f}")
            if on_disk == 0:
                problems.append(f"all rows fit into {options.memory}: generate more of them, or lower --memory")
    print(f"\n{options.rows:,} rows of {options.columns} numbers, {options.rounds} trees, {options.threads} threads")
    table(lines)
    if len(set(models.values())) > 1:
        problems.append("the model with bins on disk is another one than that in memory")
    best = min((errors[name] for name in errors if name in XGBOOST), default=math.inf)
    for name in models:
        if errors[name] > best * (1 + RMSE_ABOVE_MAX):
            problems.append(f"{name} has an RMSE of {errors[name]:.5f}, xgboost one of {best:.5f}")
    return problems


def main():
    options = arguments()
    options.forebay = build(options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
        finish(compare(options, options.work))
    with tempfile.TemporaryDirectory(prefix="forebay-boosting-") as work:
        problems = compare(options, Path(work))
    finish(problems)


main()
