"""Threads of one process beside worker processes of one thread each, on the same cores.

Runs statistics and their use (benches/specs/clicks_run.yaml), windows (windows.yaml), keyed aggregates
(groups.yaml) and a shuffle join (join.yaml) over generated data: embedded with N threads, and with N local
workers, in turn, several times; then with 1 to 8 workers, to see what the work costs when it is divided: the
CPU time of all processes, how much of it is the system's (memory that is touched for the first time, files),
and what workers say that their tasks took. With more workers than cores they compete for caches, too. The
artifact and the visible rows must be the same in all runs, or the exit code is 1; it is also 1 where the best
of the runs with workers takes more than 1.15 times as long as the best without."""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import polars

from measure import REPO, build, generate, measured, summary, table, tail, warm

SPECS = REPO / "benches" / "specs"
RATIO_MAX = 1.15
JOBS = ("statistics", "windows", "groups", "join")


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/workers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each job [10000000]")
    parser.add_argument("--jobs", default=",".join(JOBS), help=f"[{','.join(JOBS)}]")
    parser.add_argument("--memory", default="4GiB", help="of all processes together [4GiB]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--scale", default="1,2,4,8", help="so many workers for the second table [1,2,4,8]")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each [3]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


def rows_digest(out):
    """A digest of the rows that readers see, in their order, however they are divided into files."""
    digest = hashlib.blake2b(digest_size=16)
    root = out.with_name(f".{out.name}.forebay")
    for shard in json.loads((root / "_manifest.json").read_text())["shards"]:
        for file in shard["files"]:
            rows = polars.read_parquet(root / file["path"], hive_partitioning=False)
            digest.update(rows.hash_rows(seed=1).to_numpy().tobytes())
    return digest.hexdigest()


class Job:
    def __init__(self, options, forebay, name, scratch, work):
        self.options, self.forebay, self.name, self.scratch = options, forebay, name, scratch
        if name == "statistics":
            self.data = generate(forebay, "clicks", options.rows, work / f"clicks-{options.rows}")
            self.spec, self.params = SPECS / "clicks_run.yaml", [f"--param=log={self.data}"]
        else:
            more = ["--period", "day"]
            self.data = generate(forebay, "demand", options.rows, work / f"demand-{options.rows}", *more)
            self.spec, self.params = SPECS / f"{name}.yaml", [f"--param=history={self.data}"]
        warm(sorted(self.data.glob("**/*.parquet")))

    def run(self, threads, workers):
        out, state = self.scratch / "out", self.scratch / "state"
        for old in (out, state):
            shutil.rmtree(old, ignore_errors=True)
        command = [self.forebay, "run", self.spec, *self.params, f"--param=out={out}", f"--state={state}", "--json"]
        command += [f"--threads={threads}", f"--memory={self.options.memory}"]
        command += [f"--local-workers={workers}"] if workers else []
        log = self.scratch / "log"
        cost = measured(command, log)
        if cost.code:
            sys.exit(f"{self.name} with {workers} workers failed:\n{tail(log)}")
        done = summary(log)
        return cost, (done["artifact"], rows_digest(out))

    def tasks_cpu(self):
        """CPU seconds of the tasks of the last run, as workers told of them."""
        events = map(json.loads, (self.scratch / "log").read_text().splitlines())
        return sum(event["cpu_seconds"] for event in events if event["event"] == "worker_moved")


def main():
    options = arguments()
    forebay = build(options.forebay)
    work = options.work or Path(tempfile.mkdtemp(prefix="forebay-bench-"))
    scratch = Path(tempfile.mkdtemp(prefix="forebay-bench-", dir=work))
    failed = False
    try:
        for name in options.jobs.split(","):
            job = Job(options, forebay, name, scratch, work)
            threads = options.threads
            runs = {0: [], threads: []}
            results = set()
            for _ in range(options.repeat):
                for workers, costs in runs.items():
                    cost, result = job.run(threads, workers)
                    costs.append(cost)
                    results.add(json.dumps(result))
            best = {workers: min(costs, key=lambda cost: cost.wall) for workers, costs in runs.items()}
            ratio = best[threads].wall / best[0].wall
            lines = [(f"{name}, {options.rows:,} rows", "wall s", "CPU s", "ratio")]
            for workers, cost in best.items():
                who = f"{workers} workers of one thread" if workers else f"embedded, {threads} threads"
                lines.append((who, f"{cost.wall:.2f}", f"{cost.cpu:.2f}", f"{cost.wall / best[0].wall:.2f}"))
            table(lines)
            failed |= ratio > RATIO_MAX
            lines = [(f"{name}, divided", "wall s", "CPU s", "system s", "tasks s", "CPU µs per row", "to the first")]
            first = None
            for workers in [int(count) for count in options.scale.split(",")]:
                cost, result = job.run(workers, workers)
                results.add(json.dumps(result))
                first = first or cost.cpu
                seconds = (cost.wall, cost.cpu, cost.system, job.tasks_cpu())
                figures = [f"{figure:.2f}" for figure in seconds]
                per_row = f"{cost.cpu / options.rows * 1e6:.3f}"
                lines.append((f"{workers} workers", *figures, per_row, f"{cost.cpu / first:.2f}"))
            table(lines)
            if len(results) > 1:
                print(f"{name}: not the same for everybody: {results}")
                failed = True
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(int(failed))


main()
