"""Windows: everyone in turn on the same rows."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from measure import generate, kept, limits, measured, show, size, summary, tail, warm

HERE = Path(__file__).resolve().parent
SPECS = HERE.parent / "specs"
PEERS = ["polars", "duckdb", "mlforecast"]


def history(options):
    return generate(options.forebay, "demand", options.rows, options.home / f"demand-{options.rows}")


def made(options, what, rows, source=None):
    """Data that the generator does not make: see windows_data.py."""
    out = options.home / f"{what}-{rows}"
    return kept(out, f"{what} {rows}\n", [sys.executable, HERE / "windows_data.py", what, rows, out, source or ""])


def in_time_order(options, scratch):
    return compete(options, scratch, history(options), "time", ["forebay", *PEERS])


def shuffled(options, scratch):
    data = made(options, "shuffled", options.rows, history(options))
    return compete(options, scratch, data, "random", ["forebay", "polars", "duckdb"])


def forebay(options, spec, data, out):
    """Forebay's command line; `data` and `out` are the spec's first two parameters."""
    source = "rows" if spec == "windows_floor" else "history"
    words = [options.forebay, "run", SPECS / f"{spec}.yaml", "--param", f"{source}={data}"]
    words += ["--param", f"out={out / 'out'}", "--state", out / "state"]
    return words + ["--memory", options.memory, "--threads", options.threads, "--json"]


def checker(*words):
    """Everything that needs the peers' libraries happens elsewhere: see measure.py."""
    return subprocess.run([sys.executable, HERE / "windows_check.py", *map(str, words)]).returncode == 0


def compete(options, scratch, data, order, everyone):
    wanted = options.only.split(",") if options.only else everyone
    if unknown := set(wanted) - set(everyone):
        sys.exit(f"there is no contender {', '.join(unknown)} in this case")
    contenders = [name for name in everyone if name in wanted and not (name == "forebay" and options.alone)]
    files = sorted(str(path) for path in data.glob("*.parquet"))
    tenth = files[: len(files) // 10] if len(files) >= 10 else files
    counted = subprocess.run([sys.executable, HERE / "windows_check.py", "rows", json.dumps(files), json.dumps(tenth)],
                             check=True, capture_output=True, text=True)
    rows, tenth_rows, until = counted.stdout.split()
    scales = {"mlforecast": int(rows) / int(tenth_rows)}

    ok, costs, found = True, {name: [] for name in contenders}, {}
    for number in range(options.rounds):
        for name in contenders:
            out = scratch / name
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            read = tenth if name == "mlforecast" else files
            warm(read)
            if name == "forebay":
                words, env = forebay(options, "windows", data, out), {}
            else:
                budget = size(options.memory)
                words = [sys.executable, HERE / f"{name}_windows.py", json.dumps(read), order, out, options.threads, budget]
                env = limits(options.threads, budget)
            cost = measured(words, out / "log", env)
            figures = f"{cost.wall:.1f} s wall, {cost.cpu:.1f} s CPU, {cost.peak:.0f} MiB"
            print(f"{name} {number + 1}/{options.rounds}: {figures}", flush=True)
            if cost.code != 0:
                print(f"{name} failed with {cost.code}:\n{tail(out / 'log')}")
                ok = False
                continue
            costs[name].append(cost)
            if name not in found:  # Checked once.
                written = summary(out / "log")["outputs"][0]["data"] if name == "forebay" else out / "data"
                found[name] = scratch / f"{name}.found"
                found[name].mkdir()
                ok &= checker("digest", written, until, found[name])
            shutil.rmtree(out)
    costs = {name: runs for name, runs in costs.items() if runs}
    show(f"windows, in {order} order", costs, int(rows), scales)
    ok &= checker("compare", json.dumps(files), *(f"{name}={path}" for name, path in found.items()))
    if options.json:
        record = {"case": options.case, "rows": int(rows), "threads": options.threads, "memory": options.memory}
        record |= {"scales": scales, "runs": {name: [run._asdict() for run in runs] for name, runs in costs.items()}}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return ok
