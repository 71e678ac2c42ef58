"""One forecast of a peer for benches/series: `series_peers.py JOB.json` reads known.parquet and writes forecast.parquet."""

import json
import sys
from pathlib import Path

import pandas as pd


def statistical(job, known):
    from statsforecast import StatsForecast
    from statsforecast.models import AutoETS, AutoTheta, SeasonalNaive

    models = {"ets": AutoETS, "theta": AutoTheta, "naive": SeasonalNaive}
    model = models[job["variant"]](season_length=job["season"])
    forecaster = StatsForecast([model], freq=job["freq"], n_jobs=1 if job["variant"] == "naive" else job["threads"])
    found = forecaster.forecast(df=known[["unique_id", "ds", "y"]], h=job["steps"])
    [column] = [name for name in found if name not in ("unique_id", "ds")]
    return found.rename(columns={column: "prediction"})


def trees(job, known, future):
    import lightgbm
    from mlforecast import MLForecast
    from mlforecast.lag_transforms import RollingMean, RollingStd
    from mlforecast.target_transforms import Differences, LocalStandardScaler

    transforms = []
    if "+differences" in job["variant"]:
        transforms.append(Differences([job["difference"]]))
    if "+scale" in job["variant"]:
        transforms.append(LocalStandardScaler())
    windows = job["windows"]
    rolling = [RollingMean(window, min_samples=1) for window in windows]
    rolling += [RollingStd(window, min_samples=2) for window in windows]
    known["series"] = known.unique_id.astype("category")
    static = [*job.get("static", []), "series"]
    for name in static:
        known[name] = known[name].astype("category")
    model = lightgbm.LGBMRegressor(
        n_estimators=200, num_leaves=31, learning_rate=0.1, n_jobs=job["threads"], verbose=-1
    )
    forecaster = MLForecast(
        models={"prediction": model},
        freq=job["freq"],
        lags=job["lags"],
        lag_transforms={1: rolling},
        date_features=job["dates"],
        target_transforms=transforms or None,
        num_threads=job["threads"],
    )
    columns = ["unique_id", "ds", "y", *job.get("known", []), *static]
    # One model for each step of the horizon.
    steps = job["steps"] if job["variant"].startswith("direct") else None
    forecaster.fit(known[columns], static_features=static, dropna=False, max_horizon=steps)
    return forecaster.predict(job["steps"], X_df=future)


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    out = Path(job["out"])
    known = pd.read_parquet(out / "known.parquet").sort_values(["unique_id", "ds"])
    future = pd.read_parquet(out / "future.parquet") if job.get("known") else None
    if job["variant"] in ("ets", "theta", "naive"):
        found = statistical(job, known)
    else:
        found = trees(job, known, future)
    if job.get("min") is not None:
        found["prediction"] = found.prediction.clip(lower=job["min"])
    found.reset_index(drop=True).to_parquet(out / "forecast.parquet")


if __name__ == "__main__":
    main()
