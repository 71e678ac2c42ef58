"""Forebay and its peers over an object store that answers late, beside the same files on a local disk.

The store is macro/object_server.py, a process of its own on this machine: it takes a part of the processors.

  fit        moments of 13 numbers and counts of 11 columns of tokens (specs/remote_fit.yaml), by everyone
  transform  medians, scalers and vocabularies of 39 columns, and the table that they make (specs/clicks_run.yaml)
  windows    lags and rolling windows over a history of demand (specs/windows.yaml)
  feed       an epoch of shuffled mini-batches (specs/remote_feed.yaml)

Forebay alone does the last three. What everyone learned, and what Forebay made of remote and local files, must agree,
or the exit code is 1. The page cache is warm; every run starts without saved state; outputs lie on the local disk.

`requests` counts all that a contender asked for, `HEADs` those of them that read nothing, `in flight` the most at one
moment. `to local` is the wall beside that of the same contender with local files."""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from measure import build, finish, generate, kept, last_event, limits, measured, size, summary, table, tail, warm

HERE = Path(__file__).resolve().parent
EVERYONE = ["forebay", "polars", "duckdb"]
JOBS = ["fit", "transform", "windows", "feed"]
FILES = 20
DAYS = 400


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/remote", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate, in 20 files [20000000]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts [3]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", default="4GiB", help="limit for those that take one [4GiB]")
    parser.add_argument("--latency", default="50", help="milliseconds before the first byte [50]")
    parser.add_argument("--bandwidth", default="60", help="MB/s of a connection [60]")
    parser.add_argument("--errors", default="0", help="share of requests answered with 503 [0]")
    parser.add_argument("--stragglers", default="0", help="share of requests that begin 2 s later [0]")
    parser.add_argument("--jobs", default=",".join(JOBS), help="jobs [all]")
    parser.add_argument("--only", default=",".join(EVERYONE), help="contenders [all]")
    parser.add_argument("--work", type=Path, help="a directory for data and outputs [a temporary one, removed]")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args()


class Store:
    """The object server over a folder of buckets."""

    def __init__(self, root, options):
        words = [sys.executable, HERE / "object_server.py", root]
        for name in ("latency", "bandwidth", "errors", "stragglers"):
            words += [f"--{name}", getattr(options, name)]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def env(self):
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        return {**keys, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}

    def ask(self, what):
        data = b"" if what == "reset" else None
        with urllib.request.urlopen(f"{self.endpoint}/-/{what}", data) as answer:
            return json.load(answer)

    def end(self):
        self.process.terminate()
        self.process.wait()


def command(contender, job, options, log, names, out):
    if contender == "forebay":
        of = {"fit": ("fit", "remote_fit"), "transform": ("run", "clicks_run"), "windows": ("run", "windows")}
        verb, spec = of.get(job, ("feed", "remote_feed"))
        words = [options.forebay, verb, HERE.parent / "specs" / f"{spec}.yaml"]
        words += ["--param", f"{'history' if job == 'windows' else 'log'}={log}"]
        words += ["--show", "0"] if job == "feed" else ["--param", f"out={out / 'out'}"]
        words += ["--state", out / "state", "--memory", options.memory]
        return [*words, "--threads", options.threads, "--json"], {}
    budget = size(options.memory)
    files = json.dumps([f"{log}/{name}" for name in names])
    words = [sys.executable, HERE / "remote_peers.py", contender, files, out / "learned.json", options.threads, budget]
    return words, limits(options.threads, budget)


def learned(contender, out):
    if contender != "forebay":
        return json.loads((out / "learned.json").read_text())
    found = {"moments": {}, "tokens": {}}
    artifact = Path(summary(out / "log")["artifact_path"])
    for finding in json.loads((artifact / "artifact.json").read_text())["findings"]:
        column, values = finding["columns"][0], {k: v["values"] for k, v in (finding.get("table") or {}).items()}
        if finding["analyzer"] == "moments":
            found["moments"][column] = [float(values[name][0]) for name in ("count", "mean", "var")]
        elif finding["analyzer"] == "vocabulary":
            if finding.get("file"):
                # Not in this process: a child's peak counts what its parent held when it began.
                words = [sys.executable, HERE / "remote_peers.py", "tokens", artifact / finding["file"]]
                told = subprocess.run([str(word) for word in words], check=True, capture_output=True)
                found["tokens"][column] = json.loads(told.stdout)
                continue
            found["tokens"][column] = dict(zip(values["token"], map(int, values["count"])))
    return found


def generate_history(forebay, out, days):
    """A history of demand, unless it is there from an earlier call."""
    command = [forebay, "generate", "demand", *days, "--seed", "1", "--out", out, "--replace"]
    return kept(out, " ".join(map(str, ["demand", *days])) + "\n", command)


def made(job, out):
    """What a job of Forebay alone came to: where the files lay must make no difference."""
    if job == "feed":
        return {"rows": last_event(out / "log")["rows"]}
    told = summary(out / "log")
    # Names and metadata of files tell of the files that were read. Not in this process: see `learned`.
    words = [sys.executable, HERE / "remote_peers.py", "rows", out / "out"]
    rows = subprocess.run([str(word) for word in words], check=True, capture_output=True)
    return {"artifact": told["artifact"], "rows": json.loads(rows.stdout)}


def differences(name, its, reference):
    for column, moments in reference["moments"].items():
        mine = its["moments"].get(column)
        if mine is None or not all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(mine, moments)):
            yield f"{name}: moments of {column} are {mine}, not {moments}"
    for column, counts in reference["tokens"].items():
        if its["tokens"].get(column) != counts:
            yield f"{name}: counts of {column} differ"


def main():
    options = arguments()
    names = options.only.split(",")
    if unknown := set(names) - set(EVERYONE):
        sys.exit(f"there is no contender {', '.join(unknown)}")
    jobs = options.jobs.split(",")
    if unknown := set(jobs) - set(JOBS):
        sys.exit(f"there is no job {', '.join(unknown)}")
    options.forebay = build(options.forebay)
    scratch = Path(options.work or tempfile.mkdtemp(prefix="remote-")).resolve()
    data = {what: scratch / "buckets" / "lake" / what for what in ("clicks", "demand")}
    data["clicks"].parent.mkdir(parents=True, exist_ok=True)
    if set(jobs) - {"windows"}:
        generate(options.forebay, "clicks", options.rows, data["clicks"], "--rows-per-file", -(-options.rows // FILES))
    if "windows" in jobs:
        days = ["--days", DAYS, "--series", max(options.rows // DAYS, 1), "--period", "month"]
        generate_history(options.forebay, data["demand"], days)
    store = Store(scratch / "buckets", options)
    problems, runs, references = [], {}, {}
    each = [(job, name) for job in jobs for name in (names if job == "fit" else ["forebay"]) if name in names]
    try:
        for _ in range(options.rounds):
            for job, name in each:
                what = "demand" if job == "windows" else "clicks"
                files = sorted(file.name for file in data[what].glob("*.parquet"))
                for where, log in (("local", str(data[what])), ("remote", f"s3://lake/{what}")):
                    warm(data[what] / file for file in files)
                    out = scratch / f"{job}-{name}-{where}"
                    shutil.rmtree(out, ignore_errors=True)
                    out.mkdir()
                    words, env = command(name, job, options, log, files, out)
                    store.ask("reset")
                    cost = measured(words, out / "log", {**env, **(store.env() if where == "remote" else {})})
                    label = f"{job}: {name} {where}"
                    if cost.code:
                        problems.append(f"{label} ended with {cost.code}: {tail(out / 'log')}")
                        continue
                    runs.setdefault((f"{job}, {name}", where), []).append((cost, store.ask("counts")))
                    its = learned(name, out) if job == "fit" else made(job, out)
                    reference = references.setdefault(job, its)
                    if job == "fit":
                        problems += differences(label, its, reference)
                    elif its != reference:
                        problems.append(f"{label} came to {its}, not {reference}")
    finally:
        store.end()
    lines = [("", "wall s", "to local", "CPU s", "peak MiB", "requests", "HEADs", "MB read", "in flight")]
    best = {key: min(each, key=lambda run: run[0].wall) for key, each in runs.items()}
    for (name, where), (cost, asked) in best.items():
        local = best.get((name, "local"))
        ratio = f"{cost.wall / local[0].wall:.2f}" if local and where == "remote" else ""
        heads = str(asked["methods"].get("HEAD", 0))
        more = [str(asked["requests"]), heads, f"{asked['bytes_sent'] / 1e6:.0f}", str(asked["in_flight_max"])]
        more = more if where == "remote" else [""] * 4
        lines.append((f"{name}, {where}", f"{cost.wall:.2f}", ratio, f"{cost.cpu:.2f}", f"{cost.peak:.0f}", *more))
    store_is = f"{options.latency} ms, {options.bandwidth} MB/s a connection, {options.errors} of requests refused"
    print(f"\n{options.rows:,} rows; {store_is}; best of {options.rounds}")
    table(lines)
    if options.json:
        shown = [{"contender": n, "files": w, **c._asdict(), "store": s} for (n, w), (c, s) in best.items()]
        options.json.write_text(json.dumps({"rows": options.rows, "runs": shown}, indent=1) + "\n")
    if not options.work:
        shutil.rmtree(scratch)
    finish(list(dict.fromkeys(problems)))


if __name__ == "__main__":
    main()
