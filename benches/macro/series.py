"""Forecasts of real series beside mlforecast with LightGBM and statsforecast: accuracy, CPU time and memory in one table.

The data are folders with `all.parquet` (unique_id, ds, y, and columns that are known ahead), as `--data DIR` holds them.
Each frequency has one spec (benches/specs/series_*.yaml), which no set of data chose; models of single series have one
for all frequencies. Horizon and rolling origins of a set are those of `SETS`: an origin lies one horizon before the
next one's, and the last fold ends with the data.

Lines are those of the spec, and those of the function that a peer's forecast takes, without comments and blank lines.
Behind the table stands how often Forebay is no worse than the best of all others by wMAPE, where not how far behind, and
its share of their CPU time. With `--hold`, the exit code is 1 unless it is no worse on two thirds of the sets, within 5 % on
the others, and takes at most half of the CPU time of the best one.

wMAPE is the sum of absolute errors by that of absolute values over all series, steps and folds. MASE divides the mean
absolute error of a series by that of the seasonal naive forecast of its known values. `differences` and `scale` are the
target transforms of mlforecast."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from measure import REPO, build, finish, limits, measured, table, tail

HERE = Path(__file__).resolve().parent
SPECS = HERE.parent / "specs"

MONTHLY = {"spec": "monthly", "season": 12, "lags": [1, 2, 3, 6, 12, 24], "windows": [12, 24], "dates": ["month"]}
WEEKLY = {"spec": "weekly", "season": 52, "lags": [1, 2, 3, 4, 13, 26, 52], "windows": [4, 13, 52], "dates": ["week", "month"]}
EVENTS = [f"event_type_{kind}" for kind in ("Cultural", "National", "Religious", "Sporting")]

# Horizon in steps and as a length, number of folds, frequency of pandas, and the settings that both sides share.
SETS = {
    "air": {**MONTHLY, "steps": 12, "horizon": "12mo", "folds": 3, "freq": "MS", "difference": 1},
    "fuel_me": {**MONTHLY, "steps": 12, "horizon": "12mo", "folds": 3, "freq": "ME", "difference": 1},
    "m3m": {**MONTHLY, "steps": 18, "horizon": "18mo", "folds": 1, "freq": "MS", "difference": 1},
    "tourism": {
        "spec": "quarterly", "season": 4, "lags": [1, 2, 3, 4, 8], "windows": [4, 8], "dates": ["quarter"],
        "steps": 8, "horizon": "8q", "folds": 2, "freq": "QS", "difference": 1,
        "static": ["region", "state", "purpose"], "min": 0,
    },
    "m4w": {**WEEKLY, "steps": 13, "horizon": "91d", "folds": 4, "freq": "W-MON", "difference": 1},
    "gas": {**WEEKLY, "steps": 13, "horizon": "91d", "folds": 4, "freq": "W-FRI", "difference": 1},
    "fx": {
        "spec": "business", "season": 1, "lags": [1, 2, 3, 5, 20], "windows": [5, 20], "dates": [],
        "steps": 20, "horizon": "20t", "folds": 3, "freq": "B", "difference": 1, "numbered": True,
    },
    "m5": {
        "spec": "daily", "season": 7, "lags": [1, 7, 14, 28], "windows": [7, 28], "dates": ["dayofweek", "month", "day"],
        "steps": 28, "horizon": "28d", "folds": 4, "freq": "D", "difference": 7, "known": ["sell_price", *EVENTS], "min": 0,
    },
    "vic_utc": {
        "spec": "hourly", "season": 168, "lags": [1, 2, 3, 24, 48, 168], "windows": [24, 168],
        "dates": ["hour", "dayofweek", "month"], "steps": 24, "horizon": "24h", "folds": 5, "freq": "h", "difference": 24,
        "known": ["temp", "holiday"], "without": ["ets", "theta"],
    },
}

# Steps and seasons of each frequency, for models of single series.
STEPS = {
    "monthly": ("1mo", "1y"),
    "quarterly": ("1q", "1y"),
    "weekly": ("7d", "364d"),
    "daily": ("1d", "7d"),
    "hourly": ("1h", "168h"),
    "business": ("1t", None),
}

MODELS = {
    "forebay-theta": ("Forebay, theta", "model: theta, variant: auto"),
    "forebay-ets": ("Forebay, ets", "model: ets"),
    "forebay-ensemble": ("Forebay, ensemble", "model: ensemble, of: [ets, theta], variant: auto"),
}

# The spec of these models, with the words in capitals replaced for each set of data.
MODEL_SPEC = """\
version: 1
name: models
params:
  history: { type: path }
  out: { type: path }
  horizon: { type: string }
sources:
  history: { parquet: { path: "${history}/*.parquet" }, time: TIME, keys: [unique_id] }
steps:
  features:
    from: history
    do:
      - future_rows: { horizon: "${horizon}", every: EVERY, after: AFTER }
label: { column: y, horizon: "${horizon}" }
sinks:
  model: { from: features, train: { path: "${out}/model", MODEL, by: [unique_id], time: TIME, every: EVERY, SEASON } }
  forecast: { from: features, predict: { model: model, path: "${out}/forecast", BOUNDS } }
"""

PEERS = {
    "recursive": "mlforecast",
    "direct": "mlforecast, direct",
    "recursive+differences": "mlforecast, differences",
    "recursive+scale": "mlforecast, scale",
    "ets": "AutoETS",
    "theta": "AutoTheta",
    "naive": "seasonal naive",
}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/series", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SETS), help="some of the sets [all]")
    parser.add_argument("--data", type=Path, default=REPO.parent / "shared" / "data" / "series", help="[../shared/data/series]")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of the peers [all]")
    parser.add_argument("--models", default=",".join(MODELS), help="some of the models of single series [all]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", default="4GiB", help="memory limit of Forebay [4GiB]")
    parser.add_argument("--program", help="Forebay's program; else it is built")
    parser.add_argument("--specs", type=Path, default=SPECS, help="directory of the specs")
    parser.add_argument("--hold", action="store_true", help="hold Forebay to the targets")
    return parser.parse_args()


def folds(job, rows):
    """Known rows and those to forecast, the last fold first."""
    place = rows.groupby("unique_id").cumcount(ascending=False)
    for fold in range(job["folds"]):
        end = job["steps"] * fold
        start = end + job["steps"]
        yield rows[place >= start], rows[(place < start) & (place >= end)]


def numbered(rows):
    """Business days as numbers: the place of each among all business days."""
    days = pd.bdate_range("1990-01-01", periods=12_000)
    return rows.assign(t=days.get_indexer(rows.ds).astype("int64")), days


def model_spec(job, model, out):
    """The spec of a model of single series."""
    every, season = STEPS[job["spec"]]
    text = MODEL_SPEC
    words = {
        "MODEL": MODELS[model][1],
        "TIME": "t" if job.get("numbered") else "ds",
        "EVERY": every,
        # Series of months and weeks end at times of their own.
        "AFTER": "series" if job["spec"] in ("monthly", "weekly") else "data",
        ", SEASON": f", season: {season}" if season else "",
        ", BOUNDS": f", min: {job['min']}" if "min" in job else "",
    }
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    spec = out / "spec.yaml"
    spec.write_text(text)
    return spec


def ours(options, job, known, came, out, model):
    history = out / "known"
    history.mkdir()
    columns = [name for name in known if name not in job.get("known", [])]
    rows = known[columns]
    days = None
    if job.get("numbered"):
        rows, days = numbered(rows)
        rows = rows.drop(columns="ds")
    time = "ds" if days is None else "t"
    rows.sort_values([time, "unique_id"]).to_parquet(history / "rows.parquet", index=False)
    params = {"history": history, "out": out, "horizon": job["horizon"]}
    spec = options.specs / f"series_{job['spec']}.yaml" if model is None else model_spec(job, model, out)
    if job.get("known") and model is None:
        plan = out / "plan"
        plan.mkdir()
        pd.concat([known, came])[["unique_id", "ds", *job["known"]]].to_parquet(plan / "plan.parquet", index=False)
        params["plan"] = plan
    words = [options.program, "run", spec, "--state", out / "state"]
    words += ["--threads", options.threads, "--memory", options.memory]
    for key, value in params.items():
        words += ["--param", f"{key}={value}"]
    cost = measured(words, out / "log")
    if cost.code != 0:
        sys.exit(f"forebay failed with {cost.code}:\n{tail(out / 'log')}")
    forecast = pd.read_parquet(out / "forecast")
    if days is not None:
        forecast = forecast.assign(ds=days[forecast.t.to_numpy()])
    return forecast, cost


def theirs(options, job, known, came, out, variant):
    known.to_parquet(out / "known.parquet", index=False)
    if job.get("known"):
        came[["unique_id", "ds", *job["known"]]].to_parquet(out / "future.parquet", index=False)
    words = {**job, "variant": variant, "out": str(out), "threads": options.threads}
    (out / "job.json").write_text(json.dumps(words))
    env = limits(options.threads, 4 << 30)
    cost = measured([sys.executable, HERE / "series_peers.py", out / "job.json"], out / "log", env)
    if cost.code != 0:
        sys.exit(f"{variant} failed with {cost.code}:\n{tail(out / 'log')}")
    return pd.read_parquet(out / "forecast.parquet"), cost


def scores(job, known, came, forecast):
    forecast = forecast[["unique_id", "ds", "prediction"]].assign(ds=pd.to_datetime(forecast.ds).astype(came.ds.dtype))
    both = came[["unique_id", "ds", "y"]].merge(forecast, on=["unique_id", "ds"], how="left")
    error = (both.prediction - both.y).abs()
    past = known.sort_values(["unique_id", "ds"])
    naive = (past.y - past.groupby("unique_id").y.shift(job["season"])).abs().groupby(past.unique_id).mean()
    mase = (error.groupby(both.unique_id).mean() / naive).replace([np.inf], np.nan).mean()
    return {"error": error.sum(), "size": both.y.abs().sum(), "mase": mase, "missing": int(both.prediction.isna().sum())}


def lines_of(options, job, contender):
    """Lines that a contender's forecast takes, without comments and blank lines."""
    if contender == "forebay":
        text = (options.specs / f"series_{job['spec']}.yaml").read_text()
    else:
        name = "statistical" if contender in ("ets", "theta", "naive") else "trees"
        text = (HERE / "series_peers.py").read_text()
        text = text.split(f"def {name}(")[1].split("\n\n\n")[0]
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))


def judged(result):
    """Sentences about Forebay beside the best of the others, and the targets that it misses."""
    behind = {}
    ours_cpu = 0.0
    best_cpu = 0.0
    for name, found in result.items():
        others = {key: score for key, score in found.items() if key != "forebay"}
        if not others:
            continue
        best = min(others, key=lambda key: others[key]["wmape"])
        behind[name] = found["forebay"]["wmape"] / others[best]["wmape"] - 1
        ours_cpu += found["forebay"]["cpu"]
        best_cpu += others[best]["cpu"]
    if not behind:
        return [], []
    worse = {name: share for name, share in behind.items() if share > 0}
    even = len(behind) - len(worse)
    sentences = [f"Forebay's wMAPE is no worse than the best of the others on {even} of {len(behind)} sets"]
    sentences += [f"{name}: {100 * share:.1f} % above the best" for name, share in worse.items()]
    sentences.append(f"CPU time: {ours_cpu:.1f} s, {ours_cpu / best_cpu:.2f} of that of the best of each set")
    problems = []
    if 3 * even < 2 * len(behind):
        problems.append("no worse than the best on fewer than two thirds of the sets")
    problems += [f"{name} is more than 5 % above the best" for name, share in worse.items() if share > 0.05]
    if ours_cpu > best_cpu / 2:
        problems.append("more than half of the CPU time of the best of each set")
    return sentences, problems


def main():
    options = arguments()
    options.program = build(options.program)
    lines = [["", "wMAPE", "MASE", "CPU s", "MiB", "missing", "lines"]]
    result = {}
    for name in options.only.split(","):
        job = SETS[name]
        rows = pd.read_parquet(options.data / name / "all.parquet").sort_values(["unique_id", "ds"])
        rows["ds"] = pd.to_datetime(rows.ds)
        found = {}
        for known, came in folds(job, rows):
            without = job.get("without", [])
            peers = [peer for peer in options.peers.split(",") if peer and peer not in without]
            # Seasons that are too long for the peers are left out on both sides.
            models = [model for model in options.models.split(",") if model and "ets" not in without]
            for contender in ["forebay", *models, *peers]:
                with tempfile.TemporaryDirectory(prefix="series-") as scratch:
                    scratch = Path(scratch)
                    if contender == "forebay" or contender in MODELS:
                        model = contender if contender in MODELS else None
                        forecast, cost = ours(options, job, known, came, scratch, model)
                    else:
                        forecast, cost = theirs(options, job, known, came, scratch, contender)
                found.setdefault(contender, []).append((scores(job, known, came, forecast), cost))
        for contender, runs in found.items():
            score = {
                "wmape": sum(score["error"] for score, _ in runs) / sum(score["size"] for score, _ in runs),
                "mase": float(np.mean([score["mase"] for score, _ in runs])),
                "cpu": sum(cost.cpu for _, cost in runs),
                "peak": max(cost.peak for _, cost in runs),
                "missing": sum(score["missing"] for score, _ in runs),
            }
            result.setdefault(name, {})[contender] = score
            labels = {"forebay": "Forebay", **PEERS, **{model: label for model, (label, _) in MODELS.items()}}
            label = labels[contender]
            line = [f"{name}: {label}", f"{score['wmape']:.4f}", f"{score['mase']:.3f}"]
            line += [f"{score['cpu']:.1f}", f"{score['peak']:.0f}", str(score["missing"])]
            lines.append([*line, str(lines_of(options, job, contender))])
            print("  ".join(lines[-1]), flush=True)
    print()
    table(lines)
    print(json.dumps(result))
    sentences, problems = judged(result)
    print("\n".join(sentences))
    finish(problems if options.hold else [])


if __name__ == "__main__":
    main()
