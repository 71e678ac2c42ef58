"""A forecast by mlforecast with LightGBM, or the seasonal naive one: reads what is known, and writes keys, time and
prediction."""

import json
import sys

import pandas as pd

job = json.loads(sys.argv[1])
keys, time, label, horizon = job["keys"], job["time"], job["label"], job["horizon"]
columns = [*keys, time, label] + (["department"] if job["name"] == "demand" else [])
rows = pd.read_parquet(job["known"], columns=columns)
rows["unique_id"] = rows.groupby(keys, sort=True, observed=True).ngroup()
names = rows.drop_duplicates("unique_id").set_index("unique_id")[keys]


def naive():
    """The value one season before."""
    rows["back"] = rows.groupby("unique_id")[time].transform("max") - rows[time]
    unit = pd.Timedelta(1, job["freq"])
    last = rows[rows.back < unit * job["season"]].copy()
    last[time] = last[time] + unit * job["season"]
    return last.rename(columns={label: "prediction"})[["unique_id", time, "prediction"]]


def trees(direct):
    import lightgbm
    from mlforecast import MLForecast
    from mlforecast.lag_transforms import RollingMean, RollingStd

    objective = {"squared_error": "l2", "absolute_error": "l1"}[job["loss"]]
    model = lightgbm.LGBMRegressor(
        objective=objective, n_estimators=200, num_leaves=31, learning_rate=0.1, n_jobs=job["threads"], verbose=-1
    )
    if job["name"] == "m4":
        lags = [48, 72, 96, 168, 336] if direct else [1, 2, 24, 48, 168]
        means = [RollingMean(24, min_samples=1), RollingMean(168, min_samples=1)]
        transforms = {48 if direct else 1: means}
        dates = ["hour", "dayofweek"]
    else:
        lags = [7, 14, 21, 28] if direct else [1, 7, 14, 28]
        windows = [RollingMean(7, min_samples=1), RollingMean(28, min_samples=1)]
        windows += [RollingStd(7, min_samples=2), RollingStd(28, min_samples=2)]
        transforms = {7 if direct else 1: windows}
        dates = ["dayofweek"]
    ids = ["series"] if job["name"] == "m4" else ["store_id", "item_id", "department"]
    rows["series"] = rows["unique_id"]
    table = rows[["unique_id", time, label, *ids]].copy()
    for name in ids:
        table[name] = table[name].astype("category")
    freq = {"h": "h", "D": "D"}[job["freq"]]
    forecast = MLForecast(
        models={"prediction": model}, freq=freq, lags=lags, lag_transforms=transforms, date_features=dates,
        num_threads=job["threads"],
    )
    forecast.fit(table, id_col="unique_id", time_col=time, target_col=label, static_features=ids, dropna=False)
    found = forecast.predict(horizon)
    if job["name"] == "demand":
        found["prediction"] = found["prediction"].clip(lower=0)
    return found


made = naive() if job["variant"] == "naive" else trees(job["variant"] == "direct")
made.join(names, on="unique_id")[[*keys, time, "prediction"]].to_parquet(job["out"])
