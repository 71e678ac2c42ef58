"""Forebay and its peers on an advertiser's log, side by side.

Two jobs, each contender a process of its own that leaves what it learned on disk:
  fit  count, nulls, mean, variance, min, max and median of 13 numbers; 26 vocabularies with
       exact counts, min_count 2, ordered by count.
  run  learn medians and vocabularies; learn mean and variance of log1p after imputation; write
       all rows as Parquet (snappy): numbers standardized, tokens as int32 ids, 1 id for unknown.
Medians: Polars exact; Forebay (rank error 1 %) and DuckDB from samples; scikit-learn none.
scikit-learn fits only, on the first tenth of the files where there are ten; its seconds are scaled
up by rows, its memory is not. The page cache is warm; every run starts without saved state.
What contenders learned and wrote must agree (macro/check.py), or the exit code is 1."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import build, generate, limits, measured, show, size, summary, tail, warm

HERE = Path(__file__).resolve().parent
PEERS = {"fit": ["polars", "duckdb", "scikit-learn"], "run": ["polars", "duckdb"]}
SCRIPTS = {"polars": "polars_clicks.py", "duckdb": "duckdb_clicks.py", "scikit-learn": "sklearn_clicks.py"}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/clicks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate [20000000]")
    parser.add_argument("--data", type=Path, help="a directory of clicks to use instead of generating")
    parser.add_argument("--forebay", help="the program; else it is built; `none` leaves Forebay out")
    parser.add_argument("--rounds", type=int, default=1, help="all contenders in turn, so many times; the table has medians [1]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", default="4GiB", help="limit for those that take one [4GiB]")
    parser.add_argument("--jobs", default="fit,run", help="fit, run, or both [fit,run]")
    parser.add_argument("--only", help="contenders, such as forebay,polars [all]")
    parser.add_argument("--work", type=Path, help="a directory for data and outputs [a temporary one, removed]")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args()


def command(contender, job, options, files, out):
    """The command line and environment of one contender."""
    if contender == "forebay":
        spec = HERE.parent / "specs" / f"clicks_{job}.yaml"
        words = [options.forebay, job, spec, "--param", f"log={options.data}", "--param", f"out={out / 'out'}"]
        words += ["--state", out / "state", "--memory", options.memory, "--threads", options.threads, "--json"]
        return words, {}
    budget = size(options.memory)
    words = [sys.executable, HERE / SCRIPTS[contender], job, json.dumps(files), out, options.threads, budget]
    return words, limits(options.threads, budget)


def checker(*words):
    """Everything that needs the peers' libraries happens elsewhere: see measure.py."""
    return subprocess.run([sys.executable, HERE / "check.py", *map(str, words)])


def main():
    options = arguments()
    jobs = options.jobs.split(",")
    if unknown := set(jobs) - PEERS.keys():
        sys.exit(f"there is no job {', '.join(unknown)}")
    everyone = ["forebay", *SCRIPTS]
    wanted = options.only.split(",") if options.only else everyone
    if unknown := set(wanted) - set(everyone):
        sys.exit(f"there is no contender {', '.join(unknown)}")
    if options.forebay == "none":
        wanted = [name for name in wanted if name != "forebay"]
    if options.rounds < 1 or options.threads < 1:
        sys.exit("`--rounds` and `--threads` must be at least 1")
    size(options.memory)
    if "forebay" in wanted or not options.data:
        options.forebay = build(None if options.forebay == "none" else options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-clicks-", dir=options.work))
    try:
        ok = compete(options, jobs, wanted, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if ok else 1)


def compete(options, jobs, wanted, scratch):
    if not options.data:
        home = options.work or scratch
        options.data = generate(options.forebay, "clicks", options.rows, home / f"clicks-{options.rows}")
    options.data = options.data.resolve()
    files = sorted(str(path) for path in options.data.glob("*.parquet"))
    if not files:
        sys.exit(f"{options.data} has no Parquet files")
    tenth = files[: len(files) // 10] if len(files) >= 10 else files
    counted = subprocess.run([sys.executable, HERE / "check.py", "rows", json.dumps(files), json.dumps(tenth)],
                             check=True, capture_output=True, text=True)
    rows, tenth_rows = map(int, counted.stdout.split())
    scales = {"scikit-learn": rows / tenth_rows}

    ok, record = True, {"rows": rows, "threads": options.threads, "memory": options.memory, "jobs": {}}
    for job in jobs:
        contenders = [name for name in ["forebay", *PEERS[job]] if name in wanted]
        costs, results = {name: [] for name in contenders}, {}
        for number in range(options.rounds):
            for name in contenders:
                out = scratch / f"{job}-{name}"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                read = tenth if name == "scikit-learn" else files
                warm(read)
                words, env = command(name, job, options, read, out)
                cost = measured(words, out / "log", env)
                figures = f"{cost.wall:.1f} s wall, {cost.cpu:.1f} s CPU, {cost.peak:.0f} MiB"
                print(f"{job} {name} {number + 1}/{options.rounds}: {figures}", flush=True)
                if cost.code != 0:
                    print(f"{name} failed with {cost.code}:\n{tail(out / 'log')}")
                    ok = False
                    continue
                costs[name].append(cost)
                if name in results:
                    continue  # Checked once.
                learned, data = out, out / "data"
                if name == "forebay":
                    said = summary(out / "log")
                    learned = said["artifact_path"]
                    data = said["outputs"][0]["data"] if said["outputs"] else data
                results[name] = scratch / f"{job}-{name}.json"
                ok &= checker("digest", job, name, json.dumps(read), learned, data, results[name]).returncode == 0
                shutil.rmtree(out)
        costs = {name: runs for name, runs in costs.items() if runs}
        show(job, costs, rows, scales)
        found = [f"{name}={path}" for name, path in results.items() if path.exists()]
        ok &= checker("compare", job, json.dumps(files), *found).returncode == 0
        record["jobs"][job] = {name: [run._asdict() for run in runs] for name, runs in costs.items()}
    if options.json:
        record["scales"] = scales
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return ok


if __name__ == "__main__":
    main()
