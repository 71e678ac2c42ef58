"""Nights of a forecast by boosted trees: what each costs, beside the first one.

Runs benches/specs/cadence.yaml over generated demand (20 million rows when nothing is said), then with one more day in each
of `--nights`. `always` trains anew in each night, `weekly` keeps a model for seven days (`refit: 7d`) and forecasts with the
newest rows, `last` adds trees to those of the night before (`start: last`). wMAPE is that on the last 28 days, which the
model has not learned from; of a night that keeps its model, that of the training."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import REPO, build, finish, kept, measured, summary, table, tail

SPEC = REPO / "benches" / "specs" / "cadence.yaml"

WAYS = {
    "always": {},
    "weekly": {"refit": "7d"},
    "last": {"start": "last"},
}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/cadence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=30_490, help="items times stores [30490]")
    parser.add_argument("--days", type=int, default=656, help="days before the first night [656]")
    parser.add_argument("--nights", type=int, default=8, help="nights after the first one [8]")
    parser.add_argument("--only", default=",".join(WAYS), help="some of the ways [all]")
    parser.add_argument("--memory", default="4GiB", help="what Forebay may use [4GiB]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


def night(options, forebay, scratch, way):
    """One run; gives its cost and its model."""
    params = {"history": scratch / "history", "out": scratch / "out", **WAYS[way]}
    words = [forebay, "run", SPEC, "--json", "--state", scratch / "state"]
    words += ["--memory", options.memory, "--threads", options.threads]
    for name, value in params.items():
        words += ["--param", f"{name}={value}"]
    log = scratch / "log"
    cost = measured(words, log)
    if cost.code != 0:
        sys.exit(f"{way} ended with {cost.code}:\n{tail(log)}")
    return cost, summary(log)["models"][0]


def told(model):
    """What became of the model, and its wMAPE on the validation part."""
    if (model.get("refit") or {}).get("held"):
        what = "kept"
    elif (model.get("start") or {}).get("from"):
        what = f"goes on, {model['start']['new_rows']:,} rows new"
    else:
        what = "trained"
    error = model["epochs"][-1]["validation"].get("wmape")
    return what, "" if error is None else f"{error:.4f}"


def nights_of(options, forebay, data, scratch, way, lines):
    days = sorted(data.glob("*.parquet"))
    history = scratch / "history"
    history.mkdir(parents=True)
    for day in days[: options.days]:
        os.link(day, history / day.name)
    first, model = night(options, forebay, scratch, way)
    lines.append((f"{way}: first", f"{first.wall:.1f}", f"{first.cpu:.1f}", "1.00", f"{first.peak:.0f}", *told(model)))
    shares = []
    for number, day in enumerate(days[options.days :], 1):
        os.link(day, history / day.name)
        cost, model = night(options, forebay, scratch, way)
        shares.append(cost.cpu / first.cpu)
        line = (f"  night {number}", f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{shares[-1]:.2f}", f"{cost.peak:.0f}")
        lines.append((*line, *told(model)))
    return sum(shares) / len(shares) if shares else None


def main():
    options = arguments()
    forebay = build(options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-cadence-", dir=options.work)).resolve()
    lines = [("", "wall s", "CPU s", "of the first", "MiB", "model", "wMAPE")]
    means = {}
    try:
        days = options.days + options.nights
        what = ["demand", "--days", days, "--series", options.series, "--period", "day", "--seed", "1"]
        data = (options.work or scratch) / f"demand-{options.series}-{days}"
        data = kept(data, " ".join(map(str, what)) + "\n", [forebay, "generate", *what, "--out", data, "--replace"])
        for way in options.only.split(","):
            means[way] = nights_of(options, forebay, data, scratch / way, way, lines)
            shutil.rmtree(scratch / way, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{options.series:,} series, {options.threads} threads")
    table(lines)
    print(json.dumps({"mean night by the first": means}))
    finish([])


if __name__ == "__main__":
    main()
