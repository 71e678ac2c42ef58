"""Forecasts beside mlforecast with LightGBM: accuracy, time and memory in one table.

m4      The hourly series of the M4 competition two days ahead (benches/specs/forecast_m4.yaml). The last two days of
        each series are held out. Real data: `--m4 DIR` holds m4_hourly.parquet.
demand  Generated demand a week ahead (benches/specs/forecast_demand.yaml). The last week is held out.

Contenders start with the files of what is known, and end with a forecast in a file: they read, make features, train and
predict. `mlforecast` has the same features, which know nothing of the horizon, and trees with the same settings;
`mlforecast, recursive` is what it does by default: lags of the last hours or days, and forecasts that feed them.
`seasonal naive` repeats the last known season of the horizon.

wMAPE is the sum of absolute errors by that of absolute values, sMAPE the mean that M4 ranks by. The exit code is 1 where
Forebay's wMAPE is more than 1 % above that of `mlforecast`."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from measure import REPO, build, finish, generate, limits, measured, table, tail

HERE = Path(__file__).resolve().parent
SPECS = HERE.parent / "specs"
ABOVE_MAX = 0.01

JOBS = {
    "m4": {"keys": ["series_id"], "time": "timestamp", "label": "value", "horizon": 48, "season": 48, "freq": "h"},
    "demand": {"keys": ["store_id", "item_id"], "time": "date", "label": "qty", "horizon": 7, "season": 7, "freq": "D"},
}


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/forecast", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="m4,demand", help="some of the data [m4,demand]")
    parser.add_argument("--m4", type=Path, default=REPO.parent / "shared" / "data" / "m4", help="real data [../shared/data/m4]")
    parser.add_argument("--series", type=int, help="only so many series of M4 [all]")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of demand to generate [1000000]")
    parser.add_argument("--losses", default="squared_error,absolute_error", help="losses [squared_error,absolute_error]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", default="4GiB", help="what Forebay may use [4GiB]")
    parser.add_argument("--program", help="Forebay's program; else it is built")
    return parser.parse_args()


def held_out(job, rows, out):
    """Writes what is known, a file for each part of the history; gives what came."""
    series = rows.groupby(job["keys"], sort=False, observed=True)[job["time"]]
    if job["freq"] == "h":
        came = series.cumcount(ascending=False) < job["horizon"]
    else:
        came = rows[job["time"]] > rows[job["time"]].max() - pd.Timedelta(job["horizon"], job["freq"])
    is_known = ~came
    # Series that began in the part that is held out have nothing to forecast from.
    began = pd.MultiIndex.from_frame(rows.loc[is_known, job["keys"]].astype(str).drop_duplicates())
    came &= pd.MultiIndex.from_frame(rows[job["keys"]].astype(str)).isin(began)
    known = out / "known"
    known.mkdir()
    rows[is_known].sort_values([job["time"], *job["keys"]]).to_parquet(
        known / "rows.parquet", index=False, row_group_size=100_000
    )
    return known, rows[came]


def m4_rows(options):
    rows = pq.read_table(options.m4 / "m4_hourly.parquet").to_pandas()
    if options.series:
        rows = rows[rows.series_id.isin(rows.series_id.unique()[: options.series])]
    return rows


def demand_rows(options, scratch):
    data = generate(options.program, "demand", options.rows, scratch / "demand", "--series", 1000, "--period", "month")
    rows = pq.read_table(data).to_pandas()
    rows["date"] = pd.to_datetime(rows.date)
    # mlforecast takes series without gaps.
    rows["qty"] = rows.qty.fillna(0)
    return rows


def scores(job, forecast, came):
    keys = [*job["keys"], job["time"]]
    forecast = forecast.assign(**{name: forecast[name].astype(str) for name in job["keys"]})
    forecast[job["time"]] = pd.to_datetime(forecast[job["time"]])
    came = came.assign(**{name: came[name].astype(str) for name in job["keys"]})
    both = came[[*keys, job["label"]]].merge(forecast[[*keys, "prediction"]], on=keys, how="left")
    missing = int(both.prediction.isna().sum())
    both = both.dropna(subset=["prediction"])
    value, error = both[job["label"]].to_numpy(float), (both.prediction - both[job["label"]]).to_numpy(float)
    size = np.abs(value) + np.abs(both.prediction.to_numpy(float))
    relative = np.divide(2 * np.abs(error), size, out=np.zeros_like(error), where=size > 0)
    return {
        "wmape": np.abs(error).sum() / np.abs(value).sum(),
        "rmse": np.sqrt((error**2).mean()),
        "smape": relative.mean(),
        "missing": missing,
    }


def ours(options, name, loss, known, out):
    words = [options.program, "run", SPECS / f"forecast_{name}.yaml", "--json", "--state", out / "state"]
    words += ["--threads", options.threads, "--memory", options.memory]
    for key, value in {"history": known, "out": out, "loss": loss}.items():
        words += ["--param", f"{key}={value}"]
    cost = measured(words, out / "log")
    if cost.code != 0:
        sys.exit(f"forebay failed with {cost.code}:\n{tail(out / 'log')}")
    return pq.read_table(out / "forecast").to_pandas(), cost


def theirs(options, name, loss, known, out, variant):
    job = {**JOBS[name], "name": name, "loss": loss, "known": str(known), "out": str(out / "forecast.parquet")}
    job |= {"variant": variant, "threads": options.threads}
    words = [sys.executable, HERE / "forecast_peers.py", json.dumps(job)]
    cost = measured(words, out / "log", limits(options.threads, 1 << 40))
    if cost.code != 0:
        sys.exit(f"{variant} failed with {cost.code}:\n{tail(out / 'log')}")
    return pd.read_parquet(out / "forecast.parquet"), cost


def compare(options, name, loss, known, came):
    job, lines = JOBS[name], [("", "wMAPE", "sMAPE", "RMSE", "wall s", "CPU s", "peak MiB")]
    contenders = {
        "forebay": lambda out: ours(options, name, loss, known, out),
        "mlforecast": lambda out: theirs(options, name, loss, known, out, "direct"),
        "mlforecast, recursive": lambda out: theirs(options, name, loss, known, out, "recursive"),
        "seasonal naive": lambda out: theirs(options, name, loss, known, out, "naive"),
    }
    found, problems = {}, []
    for contender, run in contenders.items():
        with tempfile.TemporaryDirectory(prefix="forebay-forecast-") as scratch:
            forecast, cost = run(Path(scratch))
        score = found[contender] = scores(job, forecast, came)
        if score["missing"]:
            problems.append(f"{name}: {contender} leaves out {score['missing']} rows")
        figures = [f"{score['wmape']:.5f}", f"{score['smape']:.5f}", f"{score['rmse']:.4f}"]
        lines.append((contender, *figures, f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{cost.peak:.0f}"))
    print(f"\n{name}, {loss}: {len(came):,} rows of {came.groupby(job['keys'], observed=True).ngroups:,} series held out")
    table(lines)
    if found["forebay"]["wmape"] > found["mlforecast"]["wmape"] * (1 + ABOVE_MAX):
        problems.append(f"{name}, {loss}: the wMAPE is more than {ABOVE_MAX:.0%} above that of mlforecast")
    return problems


def main():
    options = arguments()
    options.program = build(options.program)
    problems = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="forebay-forecast-") as scratch:
            scratch = Path(scratch)
            rows = m4_rows(options) if name == "m4" else demand_rows(options, scratch)
            known, came = held_out(JOBS[name], rows, scratch)
            for loss in options.losses.split(","):
                problems += compare(options, name, loss, known, came)
    finish(problems)


if __name__ == "__main__":
    main()
