"""Children and what they cost. Standard library only: a child's peak counts the pages that it
shares with its parent before `exec`, so the parent has to stay small."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[2]


class Cost(NamedTuple):
    wall: float  # seconds
    cpu: float  # seconds, user and system
    peak: float  # MiB, resident
    code: int
    system: float  # seconds of the CPU time that went to the system


def measured(command, log, env=None):
    """Runs a command to its end; its output goes to the file `log`."""
    os.sync()  # What others wrote is not this one's to wait for.
    with open(log, "wb") as out:
        began = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    to_mib = 1 / 1024 if sys.platform != "darwin" else 1 / (1 << 20)
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * to_mib, child.returncode, usage.ru_stime)


def limits(threads, budget):
    """The environment that holds peers to so many threads and bytes, where they listen to it."""
    return {
        "POLARS_MAX_THREADS": str(threads),
        "POLARS_OOC_MEMORY_BUDGET_MB": str(budget // 1_000_000),
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def warm(files):
    for file in files:
        with open(file, "rb") as data:
            while data.read(1 << 20):
                pass


def size(text):
    """Bytes of a size such as 512MiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]i?)?B?", text)
    if not match:
        raise ValueError(f"{text} is not a size such as 512MiB")
    number, unit = match.groups()
    base = 1024 if unit and unit.endswith("i") else 1000
    return int(float(number) * base ** (" KMGT".index(unit[0]) if unit else 0))


def build(path):
    """The program: as given, or built from this tree."""
    if path:
        return Path(path).resolve()
    subprocess.run(["cargo", "build", "--release", "-p", "forebay"], cwd=REPO, check=True)
    target = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=REPO, check=True, capture_output=True
    )
    return Path(json.loads(target.stdout)["target_directory"]) / "release" / "forebay"


def kept(out, what, command):
    """The data `what` in `out`, made by a command unless it is there from an earlier call."""
    mark = out.with_name(f"{out.name}.generated")
    if out.is_dir() and mark.exists() and mark.read_text() == what:
        return out
    mark.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.parquet"):
        old.unlink()
    subprocess.run([str(word) for word in command], check=True)
    mark.write_text(what)
    return out


def generate(forebay, what, rows, out, *more):
    """Data of so many rows in `out`, unless it is there from an earlier call."""
    command = [forebay, "generate", what, "--rows", rows, "--seed", "1", *more, "--out", out, "--replace"]
    return kept(out, " ".join([what, f"{rows} rows, seed 1", *map(str, more)]) + "\n", command)


def last_event(log):
    """The last line of JSON that Forebay printed."""
    lines = [line for line in Path(log).read_text().splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def summary(log):
    """That line, where it is the summary of a run."""
    last = last_event(log)
    return last if last.get("event") == "summary" else {}


def tail(log, lines=15):
    return "\n".join(Path(log).read_text(errors="replace").splitlines()[-lines:])


def table(rows):
    """Rows of text under each other: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * w for w in widths))


def finish(problems):
    """Says what went wrong, and ends the program with 1 if anything did."""
    for problem in problems:
        print(f"FAILED  {problem}")
    sys.exit(1 if problems else 0)


def show(job, costs, rows, scales):
    peers = {name: runs for name, runs in costs.items() if name != "forebay"}

    def middle(name, figure):
        factor = scales.get(name, 1.0) if figure != "peak" else 1.0
        return statistics.median(getattr(run, figure) for run in costs[name]) * factor

    print(f"\n{job}: {rows:,} rows")
    lines = [("", "wall s", "CPU s", "peak MiB", "Forebay's CPU to its", "Forebay's peak to its")]
    for name in costs:
        ratios = ["", ""]
        if "forebay" in costs and name != "forebay":
            ratios = [f"{middle('forebay', f) / middle(name, f):.2f}" for f in ("cpu", "peak")]
        shown = f"{name} (x {scales[name]:.0f})" if scales.get(name, 1.0) != 1.0 else name
        figures = [f"{middle(name, 'wall'):.1f}", f"{middle(name, 'cpu'):.1f}", f"{middle(name, 'peak'):.0f}"]
        lines.append((shown, *figures, *ratios))
    table(lines)
    if "forebay" in costs and peers:
        best = min(peers, key=lambda name: middle(name, "cpu"))
        # A tenth of the rows says nothing about the memory of all.
        leanest = min((p for p in peers if scales.get(p, 1.0) == 1.0), key=lambda p: middle(p, "peak"), default=None)
        print(f"CPU: Forebay / {best} (the best peer) = {middle('forebay', 'cpu') / middle(best, 'cpu'):.2f}")
        if leanest:
            print(f"peak: Forebay / {leanest} (the leanest) = {middle('forebay', 'peak') / middle(leanest, 'peak'):.2f}")
