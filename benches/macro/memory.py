"""Transforms that learn, sort or gather, on data far larger than the memory that Forebay is given.

Each job runs one step over `--times` the memory as Parquet, under `--memory`. The promise is a peak of resident
memory of at most 1.3 x the limit + 150 MiB. A job ends well, or with the fault FB0301 where it is marked as one that
cannot fit; anything else, and a broken promise, gives the exit code 1. Where `--cgroup` names a cgroup of version 2
that may be written, each job runs in a child of it whose `memory.max` is the promise."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import build, finish, generate, measured, size, summary, table, tail

# Bytes of a row as Parquet, measured on generated data.
ROW_BYTES = {"clicks": 69, "demand": 8}

AS_OF = "as_of_join: { with: rows, on: [store_id, item_id], time: date, columns: [qty], suffix: _before, exact: false }"

# The data, the step, and whether the result may be more than memory holds.
JOBS = {
    "vocabulary": ("clicks", "vocabulary: { columns: [c3, c4] }", True),
    "vocabulary_top_k": ("clicks", "vocabulary: { columns: [c3, c4], top_k: 1000 }", False),
    "ordinal": ("clicks", "ordinal: { columns: [c3] }", True),
    "one_hot": ("clicks", 'one_hot: { columns: [c3], top_k: 60000 } }, { filter: "f1 > 200"', False),
    "quantiles": ("clicks", "quantiles: { columns: [f5], exact: true }", True),
    "dedupe": ("clicks", "dedupe: {}", False),
    "aggregate": ("clicks", "aggregate: { by: [c3], compute: { rows: { count: label } } }", True),
    "as_of_join": ("demand", AS_OF, False),
    "rolling": ("demand", "rolling: { columns: [qty], compute: [mean, median], over: [7d, 28d], gap: 1d }", False),
    "pooled": ("demand", "pooled: { columns: [qty], compute: [mean], by: [item_id], over: [7d], gap: 1d }", True),
}

SPEC = """version: 1
name: memory
params: {{ in: {{ type: path }}, out: {{ type: path }} }}
sources: {{ rows: {{ parquet: {{ path: "${{in}}" }}{keys} }} }}
steps: {{ made: {{ from: rows, do: [{{ {step} }}] }} }}
sinks: {{ table: {{ from: made, parquet: {{ path: "${{out}}" }} }} }}
"""


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="256MiB", help="what Forebay may use [256MiB]")
    parser.add_argument("--times", type=float, default=10, help="times the memory, as Parquet [10]")
    parser.add_argument("--jobs", default=",".join(JOBS), help="[all]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--cgroup", type=Path, help="a cgroup below which each job has one of its own")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


def within(cgroup, name, bytes_max, words):
    """The command, run in a cgroup of its own if there is one."""
    if cgroup is None:
        return words
    group = cgroup / f"forebay-{name}"
    group.mkdir(exist_ok=True)
    (group / "memory.max").write_text(str(bytes_max))
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', group, *words]


def main():
    options = arguments()
    memory = size(options.memory)
    jobs = options.jobs.split(",")
    if unknown := set(jobs) - JOBS.keys():
        sys.exit(f"there is no job {', '.join(sorted(unknown))}")
    forebay = build(options.forebay)
    promise = 1.3 * memory + (150 << 20)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-memory-", dir=options.work))
    lines = [("", "rows", "Parquet MiB", "wall s", "CPU s", "spilled MiB", "peak MiB", "promise MiB", "")]
    wrong = []
    try:
        for job in jobs:
            what, step, may_refuse = JOBS[job]
            rows = int(memory * options.times) // ROW_BYTES[what]
            data = generate(forebay, what, rows, (options.work or scratch) / f"{what}-{rows}")
            bytes_read = sum(file.stat().st_size for file in data.glob("*.parquet"))
            out, log, spec = scratch / job, scratch / f"{job}.log", scratch / f"{job}.yaml"
            spec.write_text(SPEC.format(step=step, keys=", time: date, keys: [store_id, item_id]" if what == "demand" else ""))
            words = [forebay, "run", spec, "--allow-empty", "--param", f"in={data.resolve()}", "--param", f"out={out / 'out'}"]
            words += ["--state", out / "state", "--memory", options.memory, "--threads", options.threads, "--json"]
            cost = measured(within(options.cgroup, job, int(promise), words), log)
            refused = may_refuse and "FB0301" in log.read_text()
            if cost.code != 0 and not refused:
                wrong.append(f"{job} ended with {cost.code}:\n{tail(log)}")
            peak, most = cost.peak, promise / (1 << 20)
            if peak > most:
                wrong.append(f"{job}: a peak of {peak:.0f} MiB, promised were {most:.0f} MiB")
            spilled = 0 if cost.code else summary(log).get("spilled_bytes", 0) / (1 << 20)
            said = "BROKEN" if peak > most else "refused" if refused else "kept"
            lines.append((job, f"{rows:,}", f"{bytes_read / (1 << 20):.0f}", f"{cost.wall:.1f}", f"{cost.cpu:.1f}",
                          f"{spilled:.0f}", f"{peak:.0f}", f"{most:.0f}", said))
            shutil.rmtree(out, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n`forebay run` under --memory {options.memory}, {options.threads} threads")
    table(lines)
    finish(wrong)


if __name__ == "__main__":
    main()
