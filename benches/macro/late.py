"""Nights that are slowed down on their way, with a deadline that they cannot keep as they are. Each has the state
and the outputs of the night before, and one more day; from some moment on its process is stopped and let go in
turn, so that it gets a part of its time. Before the deadline there must be a whole output, of all rows, and it must
say which rungs of the ladder were taken."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from measure import REPO, kept, table, tail

# Rungs that a spec may declare, mildest first.
RUNGS = ["skip_optional", "reuse_states", "last_model"]

# Seconds between two stops of a slow process.
TURN_SECONDS = 0.2

# How much slower a process gets, at most.
SLOWER_MAX = 4.0

# Seconds in which a run cannot notice a slow-down: it looks at the clock once a second, and twice before it acts.
NOTICE_SECONDS = 3.5

# Of what a way takes when nothing disturbs it, so much more may be needed. A run spares a tenth itself.
SPARE = 1.25

# Nothing is at risk before a night is slowed down.
DEADLINE_LEAST = 1.2

# Part of the time that a night needs as it is, at most.
DEADLINE_MOST = 0.95

# Nights as they are; the best of them tells when a slow-down may begin, so that none is over before it.
UNDISTURBED = 3

# How often a night is run at most, until it lasts as long as to be slowed down.
NIGHTS_MAX = 3

# How often a slow-down is drawn, until there is one that suits a seed.
TRIES = 10_000


class Night(NamedTuple):
    wall: float  # seconds
    code: int
    stops: int  # while it was slow
    events: list  # (seconds since it began, what was said)

    def summary(self):
        return next(said for _, said in reversed(self.events) if said["event"] == "summary")

    def learned_at(self):
        """When the last statistic was known."""
        work = {said["number"]: said["label"] for _, said in self.events if said["event"] == "pass_started"}
        ends = [at for at, said in self.events if said["event"] == "pass_done" and work[said["number"]].startswith("learn")]
        return max(ends)


class Slow(NamedTuple):
    """A seed's slow-down."""

    ladder: list
    since: float  # seconds after its begin
    times: float  # slower
    deadline: float  # seconds after its begin


class Job:
    def __init__(self, options, forebay, scratch, data):
        self.options, self.forebay, self.scratch = options, forebay, scratch
        self.history, self.before, self.now = scratch / "history", scratch / "before", scratch / "now"
        self.history.mkdir()
        days = sorted(data.glob("*.parquet"))
        for day in days[:-1]:
            os.link(day, self.history / day.name)
        self.spec(RUNGS)
        self.run(self.now)
        self.now.rename(self.before)
        os.link(days[-1], self.history / days[-1].name)
        self.rows = sum(pq.read_metadata(day).num_rows for day in days)

    def spec(self, ladder):
        spec = (REPO / "benches" / "specs" / "late.yaml").read_text()
        (self.scratch / "late.yaml").write_text(spec.replace(f"[{', '.join(RUNGS)}]", f"[{', '.join(ladder)}]"))

    def evening(self, costs=None):
        """Everything as it was when the night before was over, but for what later ones cost."""
        shutil.rmtree(self.now, ignore_errors=True)
        subprocess.run(["cp", "-al", self.before, self.now], check=True)
        if costs:
            (self.now / "state" / "costs" / "late.json").unlink()
            (self.now / "state" / "costs" / "late.json").write_bytes(costs)

    def costs(self):
        return (self.now / "state" / "costs" / "late.json").read_bytes()

    def run(self, where, *more, slow=None):
        words = [self.forebay, "run", self.scratch / "late.yaml", "--json", "--param", f"history={self.history}"]
        words += ["--param", f"out={where / 'out'}", "--state", where / "state", "--memory", self.options.memory]
        words += ["--threads", self.options.threads, *more]
        os.sync()  # What others wrote is not this one's to wait for.
        log, began, stops = self.scratch / "log", time.perf_counter(), []
        with open(log, "wb") as errors:
            child = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=errors, text=True)
        over = threading.Event()
        slower = threading.Thread(target=slow_down, args=(child.pid, slow, began, over, stops))
        if slow:
            slower.start()
        events = [(time.perf_counter() - began, json.loads(line)) for line in child.stdout]
        # Until it is waited for, no other process gets its number.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        wall = time.perf_counter() - began
        over.set()
        if slow:
            slower.join()
        if child.wait() != 0 and not slow:
            sys.exit(f"a night ended with {child.returncode}:\n{tail(log)}")
        return Night(wall, child.returncode, len(stops), events)

    def seen(self, sink):
        """What readers see of a sink: its manifest, and the rows and columns of all files."""
        out = self.now / "out" / sink
        root = out.with_name(f".{out.name}.forebay")
        manifest = json.loads((root / "_manifest.json").read_text())
        files = [pq.ParquetFile(root / file["path"]) for shard in manifest["shards"] for file in shard["files"]]
        return manifest, sum(file.metadata.num_rows for file in files), {str(file.schema_arrow) for file in files}


def slow_down(pid, slow, began, over, stops):
    """Lets a process work in turns, from a moment on, and notes when it was stopped."""
    over.wait(max(0.0, began + slow.since - time.perf_counter()))
    while not over.is_set():
        os.kill(pid, signal.SIGSTOP)
        stops.append(time.perf_counter() - began)
        over.wait(TURN_SECONDS * (1 - 1 / slow.times))
        os.kill(pid, signal.SIGCONT)
        over.wait(TURN_SECONDS / slow.times)


def chosen(seed, usual, least):
    """A slow-down after which a night is late as it is, and some rung is not. `usual` is the night as it is, and
    `least` tells what all rungs down to one take, from the beginning."""
    draw = random.Random(seed)
    ladder = RUNGS[: 1 + seed % len(RUNGS)]
    for _ in range(TRIES):
        since, times = draw.uniform(0.05, 0.9) * usual.wall, draw.uniform(1.3, SLOWER_MAX)
        rest = max(0.0, least["skip_optional"] - since)
        # What is learned by now is used: only what is not can be left out.
        if "reuse_states" in ladder and since < usual.learned_at():
            rest = min(rest, least["reuse_states"])
        if "last_model" in ladder:
            rest = min(rest, least["last_model"])
        sooner = max(since + NOTICE_SECONDS + times * SPARE * rest, DEADLINE_LEAST * usual.wall)
        later = DEADLINE_MOST * (since + times * (usual.wall - since))
        if sooner < later:
            return Slow(ladder, since, times, draw.uniform(sooner, later))
    sys.exit(f"a night of {usual.wall:.1f} s is too short to be slowed down on its way: raise --late-days or --series")


def wrong(job, night, slow, before):
    """What a night should have done and has not, if anything."""
    if night.code != 0:
        return f"it ended with {night.code}"
    if night.wall > slow.deadline:
        return "its output was late"
    if not night.stops:
        return "it was done before it was slowed down"
    summary, (manifest, rows, columns) = night.summary(), job.seen("table")
    if (manifest["rows"], rows) != (job.rows, job.rows):
        return f"{rows} rows of {job.rows}"
    if columns != before["table"][2]:
        return "other columns"
    ladder = summary.get("ladder")
    if manifest.get("ladder") != ladder:
        return "the manifest does not say what was left out"
    if ladder and "more" in ladder["skipped"] and job.seen("more") != before["more"]:
        return "what was left out is not as it was"
    if not ladder and job.seen("more")[1] != job.rows:
        return "rows of `more` are missing"
    said = [event["action"] for _, event in night.events if event["event"] == "at_risk"]
    if ladder and not set(said) & set(ladder["rungs"]):
        return "no warning said that the deadline is at risk"
    return None if summary["deadline"]["on_time"] else "it says that it is late"


def slow_downs(options, forebay):
    """Runs all seeds; gives what was wrong."""
    work = options.work or Path(tempfile.gettempdir())
    work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-late-", dir=work)).resolve()
    lines = [("seed", "declared", "slower", "since s", "undisturbed s", "deadline s", "done s", "rungs taken")]
    problems = []
    try:
        what = ["demand", "--days", options.late_days, "--series", options.series, "--period", "day", "--seed", "1"]
        data = (options.work or scratch) / f"demand-{options.series}-{options.late_days}"
        data = kept(data, " ".join(map(str, what)) + "\n", [forebay, "generate", *what, "--out", data, "--replace"])
        job = Job(options, forebay, scratch, data)
        job.evening()
        before = {sink: job.seen(sink) for sink in ("table", "more")}
        usual, costs = undisturbed(job)
        least = {}
        for rung in RUNGS:
            job.spec(RUNGS[: RUNGS.index(rung) + 1])
            job.evening(costs)
            least[rung] = job.run(job.now, "--deadline", "2020-01-01T00:00:00Z").wall
        for seed in options.seeds:
            slow = chosen(seed, usual, least)
            job.spec(slow.ladder)
            # A night that something else disturbed, so that it was over before, is none of ours.
            for _ in range(NIGHTS_MAX):
                job.evening(costs)
                night = job.run(job.now, "--deadline", in_seconds(slow.deadline), slow=slow)
                if night.stops:
                    break
            if (problem := wrong(job, night, slow, before)) is not None:
                problems.append(f"seed {seed}: {problem}")
            ladder = night.code == 0 and night.summary().get("ladder")
            rungs = ladder["rungs"][-1] if ladder else "none"
            numbers = (slow.times, slow.since, usual.wall, slow.deadline, night.wall)
            lines.append((str(seed), slow.ladder[-1], *(f"{number:.1f}" for number in numbers), rungs))
            print(f"seed {seed}: {rungs}, {night.wall:.1f} s of {slow.deadline:.1f} s", file=sys.stderr)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("nights that are slowed down: the last rung that is declared, and the last that was taken")
    table(lines)
    return problems


def undisturbed(job):
    """The best of some nights as they are, and what is known of costs after it."""
    nights = []
    for _ in range(UNDISTURBED):
        job.evening()
        nights.append((job.run(job.now), job.costs()))
    return min(nights, key=lambda night: night[0].wall)


def in_seconds(seconds):
    """A deadline so many seconds from now, as it is written."""
    at = time.time() + seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03}Z"
