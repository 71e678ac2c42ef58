"""Data far larger than the memory that Forebay is given, and whether it keeps its promise.

Runs pipelines/specs/demand.yaml over a history that takes `--times` the memory as Arrow, and
pipelines/specs/clicks.yaml over `--clicks` of Parquet, each under `--memory`. The promise is a
peak of resident memory of at most 1.3 x the limit + 150 MiB; when it is broken, a run fails, or
rows are missing (in = out + filtered), the exit code is 1."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import REPO, build, finish, generate, measured, size, summary, table, tail

# Bytes of a row, measured on generated data: with plain strings as Arrow, and as Parquet.
DEMAND_ARROW_BYTES = 69
CLICKS_PARQUET_BYTES = 69


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/out_of_core", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="512MiB", help="what Forebay may use [512MiB]")
    parser.add_argument("--times", type=float, default=20, help="demand: times the memory, as Arrow [20]")
    parser.add_argument("--clicks", default="4GiB", help="clicks: size as Parquet [4GiB]")
    parser.add_argument("--jobs", default="demand,clicks", help="demand, clicks, or both [demand,clicks]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


def main():
    options = arguments()
    memory = size(options.memory)
    rows = {
        "demand": int(memory * options.times) // DEMAND_ARROW_BYTES,
        "clicks": size(options.clicks) // CLICKS_PARQUET_BYTES,
    }
    jobs = options.jobs.split(",")
    if unknown := set(jobs) - rows.keys():
        sys.exit(f"there is no job {', '.join(unknown)}")
    forebay = build(options.forebay)
    promise = 1.3 * memory / (1 << 20) + 150
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-out-of-core-", dir=options.work))
    lines = [("", "rows", "Parquet MiB", "wall s", "CPU s", "spilled MiB", "peak MiB", "promise MiB", "")]
    wrong = []
    try:
        for job in jobs:
            data = generate(forebay, job, rows[job], (options.work or scratch) / f"{job}-{rows[job]}")
            bytes_read = sum(file.stat().st_size for file in data.glob("*.parquet"))
            out, log = scratch / job, scratch / f"{job}.log"
            source = "history" if job == "demand" else "log"
            words = [forebay, "run", REPO / "pipelines" / "specs" / f"{job}.yaml"]
            words += ["--param", f"{source}={data.resolve()}", "--param", f"out={out / 'out'}", "--state", out / "state"]
            words += ["--memory", options.memory, "--threads", options.threads, "--json"]
            cost = measured(words, log)
            said = summary(log)
            kept = cost.peak <= promise
            if cost.code != 0:
                wrong.append(f"{job} ended with {cost.code}:\n{tail(log)}")
            elif (problem := missing(said, rows[job])) is not None:
                wrong.append(f"{job}: {problem}")
            if not kept:
                wrong.append(f"{job}: a peak of {cost.peak:.0f} MiB, promised were {promise:.0f} MiB")
            spilled = said.get("spilled_bytes", 0) / (1 << 20)
            lines.append((job, f"{rows[job]:,}", f"{bytes_read / (1 << 20):.0f}", f"{cost.wall:.1f}", f"{cost.cpu:.1f}",
                          f"{spilled:.0f}", f"{cost.peak:.0f}", f"{promise:.0f}", "kept" if kept else "BROKEN"))
            shutil.rmtree(out, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n`forebay run` under --memory {options.memory}, {options.threads} threads")
    table(lines)
    finish(wrong)


def missing(said, rows):
    """What is wrong with the sums of rows, if anything."""
    writes = [its for its in said.get("passes", []) if its["work"] == "write"]
    if not writes or not said.get("outputs"):
        return "nothing was written"
    for its in writes:
        if its["rows_in"] != rows or its["rows_in"] + its["rows_expanded"] != its["rows_out"] + its["rows_filtered"]:
            return f"{rows} rows were generated; {its['rows_in']} in, {its['rows_out']} out, {its['rows_filtered']} filtered"
    return None


if __name__ == "__main__":
    main()
