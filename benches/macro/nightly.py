"""What a night costs: a day more, the oldest day gone, a day in the middle restated.

Runs benches/specs/nightly.yaml over generated demand of so many years, then over the same history
with each change in turn, and after each of them does everything again elsewhere. The artifacts of
both must be the same file by file, and so must the rows, or the exit code is 1. It is also 1 where a
night over two years reads more than 1.5 times the days that its change touches, or one of one more day
takes more than 3 % of the time of the full run (histories of less than two years are not held to that).
Each night is done `--repeat` times from the same state, and shown by the one of median time; a full run
is that of median time among the first and those that do everything again.

`read` is what the process asked of the system, whether a disk or its cache gave it. `touched` are the
bytes of the days that a change makes others: those that are new, those whose windows reach them, and
those that the windows of all of these reach. Nothing is removed between runs: some file systems pass
over inodes that were freed a moment ago, one by one, which makes every new file dear. Sketches of
quantiles are samples of up to 1.2 MB for each run of days, of which a night reads about five:
`--quantiles` adds one. `--far` adds a lag of 364 days: a night then looks at days a year back too, and not
at those in between. `--series 1000` is quick."""

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from measure import REPO, build, finish, kept, summary, table, tail

# Which days back the windows of the spec look at.
NEAR = range(1, 29)
FAR = 364

# Seconds after which what is known of a file is kept.
SETTLED_SECONDS = 3


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=30_490, help="items times stores [30490]")
    parser.add_argument("--years", default="2", help="histories of these lengths, such as 1,2,4,8 [2]")
    parser.add_argument("--memory", default="4GiB", help="what Forebay may use [4GiB]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--only", default="add,drop,restate", help="some of the changes [add,drop,restate]")
    parser.add_argument("--repeat", type=int, default=5, help="how often each night is done [5]")
    parser.add_argument("--quantiles", action="store_true", help="learn quantiles too")
    parser.add_argument("--far", action="store_true", help="look at the same weekday of the year before, too")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


class Night(NamedTuple):
    wall: float  # seconds
    cpu: float  # seconds
    read: int  # bytes, from files and their cache
    summary: dict


class Job:
    """The spec over one history."""

    def __init__(self, options, forebay, scratch, data):
        self.options, self.forebay, self.scratch = options, forebay, scratch
        self.history = scratch / "history"
        self.history.mkdir()
        spec = (REPO / "benches" / "specs" / "nightly.yaml").read_text()
        last = "      - vocabulary:"
        quantiles = "      - bucketize: { columns: [qty_mean_7d], q: 10 }\n" if options.quantiles else ""
        spec = spec.replace(last, quantiles + last)
        if options.far:
            spec = spec.replace("by: [1d, 7d, 28d]", f"by: [1d, 7d, 28d, {FAR}d]")
        (scratch / "nightly.yaml").write_text(spec)
        # The newest day is kept back.
        self.days = sorted(data.glob("*.parquet"))
        for day in self.days[:-1]:
            self.show(day)

    def show(self, day):
        os.link(day, self.history / day.name)

    def run(self, name):
        out, log = self.scratch / name, self.scratch / f"{name}.log"
        words = [self.forebay, "run", self.scratch / "nightly.yaml", "--json"]
        words += ["--param", f"history={self.history}", "--param", f"out={out / 'out'}", "--state", out / "state"]
        words += ["--memory", self.options.memory, "--threads", self.options.threads]
        os.sync()  # What others wrote is not this one's to wait for.
        with open(log, "wb") as said:
            began = time.perf_counter()
            child = subprocess.Popen([str(word) for word in words], stdout=said, stderr=subprocess.STDOUT)
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            wall = time.perf_counter() - began
            io = dict(line.split(": ") for line in Path(f"/proc/{child.pid}/io").read_text().splitlines())
            _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"{name} ended with {child.returncode}:\n{tail(log)}")
        return Night(wall, usage.ru_utime + usage.ru_stime, int(io["rchar"]), summary(log))

    def night(self):
        """Runs several times from the same state; gives the run of median time."""
        (self.scratch / "nightly").rename(self.scratch / "before")
        nights = []
        for turn in range(self.options.repeat):
            if turn > 0:
                self.gone(self.scratch / "nightly")
            # What is written gets another name, and never changes.
            shutil.copytree(self.scratch / "before", self.scratch / "nightly", symlinks=True, copy_function=os.link)
            nights.append(self.run("nightly"))
        self.gone(self.scratch / "before")
        return median(nights)

    def gone(self, directory):
        """Nothing is removed between runs."""
        trash = self.scratch / "trash"
        trash.mkdir(exist_ok=True)
        directory.rename(trash / str(len(list(trash.iterdir()))))

    def change(self, what):
        """Changes the history. Returns the bytes of the days that this touches."""
        days = sorted(self.history.iterdir())
        if what == "add":
            self.show(self.days[-1])
            days.append(self.history / self.days[-1].name)
            changed = len(days) - 1
        elif what == "drop":
            days.pop(0).unlink()
            changed = -1
        else:
            changed = len(days) // 2
            restated = pq.read_table(days[changed])
            days[changed].unlink()
            pq.write_table(restated.slice(0, len(restated) - 1), days[changed], compression="snappy")
        back = [0, *NEAR, *([FAR] if self.options.far else [])]
        others = {changed + days_back for days_back in back} & set(range(len(days)))
        touched = {day - days_back for day in others for days_back in back} & set(range(len(days)))
        return sum(days[day].stat().st_size for day in touched)

    def differences(self, name, other):
        """What two runs do not have in common, if anything."""
        mine, others = self.scratch / name, self.scratch / other
        artifacts = [sorted(p.relative_to(d) for p in d.rglob("*") if p.is_file() and p.name != "lineage.json")
                     for d in (newest(mine), newest(others))]
        if newest(mine).name != newest(others).name or artifacts[0] != artifacts[1]:
            return "another artifact"
        if any(not filecmp.cmp(newest(mine) / p, newest(others) / p, shallow=False) for p in artifacts[0]):
            return "an artifact of other bytes"
        return rows_differ(mine / "out", others / "out")


def median(runs):
    return sorted(runs, key=lambda run: run.wall)[(len(runs) - 1) // 2]


def newest(run):
    pointer = json.loads((run / "state" / "artifacts" / "nightly.json").read_text())
    return run / "state" / "artifacts" / pointer["artifact"]


def rows_differ(mine, others):
    """Compares what two manifests show. Files of equal digests are equal; others are read."""
    files = []
    for out in (mine, others):
        root = out.with_name(f".{out.name}.forebay")
        shards = json.loads((root / "_manifest.json").read_text())["shards"]
        files.append([(root, file) for shard in shards for file in shard["files"]])
    rows = [0, 0]
    apart = [[], []]  # Files since the rows before them were as many on both sides.
    while files[0] or files[1]:
        if rows[0] == rows[1] and not apart[0] and files[0] and files[1] and files[0][0][1]["digest"] == files[1][0][1]["digest"]:
            rows = [rows[side] + files[side].pop(0)[1]["rows"] for side in (0, 1)]
            continue
        side = 0 if files[0] and (rows[0] <= rows[1] or not files[1]) else 1
        apart[side].append(files[side].pop(0))
        rows[side] += apart[side][-1][1]["rows"]
        if rows[0] == rows[1]:
            tables = [pa.concat_tables(pq.read_table(out / file["path"]) for out, file in side) for side in apart]
            if not tables[0].combine_chunks().equals(tables[1].combine_chunks()):
                return f"other rows before row {rows[0]}"
            apart = [[], []]
    return None if rows[0] == rows[1] and not any(apart) else f"{rows[0]} rows, not {rows[1]}"


def history_of(options, forebay, scratch, years, lines, wrong):
    days = round(365 * years) + 1
    what = ["demand", "--days", days, "--series", options.series, "--period", "day", "--seed", "1"]
    data = (options.work or scratch) / f"demand-{options.series}-{days}"
    data = kept(data, " ".join(map(str, what)) + "\n", [forebay, "generate", *what, "--out", data, "--replace"])
    here = scratch / f"years-{years:g}"
    here.mkdir()
    job = Job(options, forebay, here, data)
    # Nothing is noted of files that changed a moment ago: their stamp may lie.
    time.sleep(SETTLED_SECONDS)
    is_held = not options.quantiles and options.series >= 30_000
    fulls, nights = [job.run("nightly")], []
    for change in options.only.split(","):
        touched = job.change(change)
        night = job.night()
        nights.append((f"  {change}", night, (f"{touched / 1e6:,.1f}", f"{night.read / touched:.2f}")))
        fulls.append(job.run(f"again-{change}"))
        if (problem := job.differences("nightly", f"again-{change}")) is not None:
            wrong.append(f"{years:g} years, {change}: {problem}")
        # What is noted of files grows with the history.
        if is_held and years == 2 and night.read > 1.5 * touched:
            wrong.append(f"{years:g} years, {change}: {night.read / touched:.2f} times what it touches was read")
    nights.append(("  nothing new", job.night(), ("", "")))
    full = median(fulls)
    rows = next(its["rows_in"] for its in fulls[0].summary["passes"] if its["work"] == "write")
    for name, night, more in [(f"{years:g} years, {rows:,} rows", full, ("", "")), *nights]:
        share = 100 * night.wall / full.wall
        lines.append((name, f"{night.read / 1e6:,.1f}", *more, f"{night.wall:.3f}", f"{share:.1f}", f"{night.cpu:.2f}"))
        if is_held and years >= 2 and name.strip() == "add" and share > 3:
            wrong.append(f"{years:g} years, add: {share:.1f} % of the full run")


def main():
    options = arguments()
    forebay = build(options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-nightly-", dir=options.work)).resolve()
    lines = [("", "read MB", "touched MB", "times", "wall s", "% of full", "CPU s")]
    wrong = []
    try:
        for years in options.years.split(","):
            history_of(options, forebay, scratch, float(years), lines, wrong)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n`forebay run` over {options.series:,} series, {options.threads} threads")
    table(lines)
    finish(wrong)


if __name__ == "__main__":
    main()
