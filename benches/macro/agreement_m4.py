"""What coreforecast, pandas and DuckDB make of the hourly series of M4: (column, peer, values, scale) for each
column of specs/agreement_m4.yaml."""

import duckdb
import numpy
from coreforecast import lag_transforms as core
from coreforecast.grouped_array import GroupedArray

ORDER = ["series_id", "timestamp"]
GIVEN = ["value", "category"]


def seasonal(name, grouped):
    """A statistic of the same hour of the last seven days."""

    def found(name):
        of = getattr(core, f"SeasonalRolling{name}")
        return of(lag=24, season_length=24, window_size=7, min_samples=7).transform(grouped)

    if name != "Std":
        return found(name)
    # Of seven equal values coreforecast's deviation is some 1e-8.
    return numpy.where(found("Min") == found("Max"), 0.0, found(name))


def answers(ours, _data):
    rows = ours[[*ORDER, "value"]]
    values = rows.groupby("series_id", sort=False)["value"]
    ends = numpy.append(0, values.size().to_numpy().cumsum()).astype(numpy.int32)
    grouped = GroupedArray(rows["value"].to_numpy(), ends)

    for by in (1, 24, 168):
        yield f"value_lag_{by}", "coreforecast", core.Lag(by).transform(grouped), None
    yield "value_diff_24", "pandas", values.diff(24), None

    of = {"mean": "Mean", "std": "Std", "min": "Min", "max": "Max"}
    for word, name in of.items():
        for size in (24, 168):
            found = getattr(core, f"Rolling{name}")(lag=1, window_size=size, min_samples=size).transform(grouped)
            yield f"value_{word}_{size}", "coreforecast", found, None
            yield f"value_{word}_{size}", "pandas", values.transform(lambda one: getattr(one.shift(1).rolling(size), word)()), None
        yield f"value_expanding_{word}", "coreforecast", getattr(core, f"Expanding{name}")(lag=1).transform(grouped), None
        yield f"value_seasonal_{word}_24x7", "coreforecast", seasonal(name, grouped), None
    for size in (24, 168):
        found = core.RollingQuantile(lag=1, p=0.25, window_size=size, min_samples=size).transform(grouped)
        yield f"value_q25_{size}", "coreforecast", found, None
        for word, name in {"median": "median", "skew": "skew", "kurtosis": "kurt"}.items():
            found = values.transform(lambda one: getattr(one.shift(1).rolling(size), name)())
            yield f"value_{word}_{size}", "pandas", found, 1.0 if word != "median" else None
    yield "value_expanding_q25", "coreforecast", core.ExpandingQuantile(lag=1, p=0.25).transform(grouped), None
    found = core.SeasonalRollingQuantile(lag=24, p=0.25, season_length=24, window_size=7, min_samples=7).transform(grouped)
    yield "value_seasonal_q25_24x7", "coreforecast", found, None
    yield "value_ewm_mean_alpha0.3", "coreforecast", core.ExponentiallyWeightedMean(lag=1, alpha=0.3).transform(grouped), None

    database = duckdb.connect()
    database.register("rows", rows)
    over = "OVER (PARTITION BY series_id ORDER BY timestamp RANGE BETWEEN INTERVAL 47 HOURS PRECEDING AND CURRENT ROW)"
    found = database.execute(
        f"SELECT avg(value) {over} AS mean, stddev_samp(value) {over} AS std FROM rows ORDER BY series_id, timestamp"
    ).df()
    for word in ("mean", "std"):
        yield f"value_{word}_48h", "duckdb", found[word], None
