"""What pandas and DuckDB make of departures and delays by carrier and origin per hour: (column, peer,
values, scale) for each column of specs/agreement_flights.yaml."""

import duckdb
import numpy
import pandas

KEYS = ["carrier", "origin"]
TIME = "time_hour"
ORDER = [*KEYS, TIME]
# What everything is computed from.
GIVEN = ["departures", "delay"]
DB = duckdb.connect()

# By Forebay's word for it, in SQL over a window of `delay`.
SQL = {
    "mean": "avg(delay)",
    "sum": "sum(delay)",
    "std": "stddev_samp(delay)",
    "var": "var_samp(delay)",
    "min": "min(delay)",
    "max": "max(delay)",
    "median": "median(delay)",
    "q90": "quantile_cont(delay, 0.9)",
    "count": "count(delay)",
    "skew": "skewness(delay)",
    "kurtosis": "kurtosis(delay)",
    "first": "first_value(delay IGNORE NULLS)",
    "last": "last_value(delay IGNORE NULLS)",
    "n_unique": "count(DISTINCT delay)",
    "slope": "regr_slope(delay, place)",
    "zero_share": "avg((delay = 0)::INT)",
    "since_nonzero": "place - max(CASE WHEN delay <> 0 THEN place END)",
}
HOUR = numpy.timedelta64(1, "h")


def sql(rows, words, frame, place):
    """Statistics of `delay` in SQL's frame; a frame with too few values has null."""
    DB.register("rows", rows.assign(place=place))
    over = f"OVER (PARTITION BY carrier, origin ORDER BY {TIME} {frame})"
    asked = ", ".join(f"{SQL[word]} {over} AS {word}" for word in words)
    return DB.execute(f"SELECT {asked}, count(delay) {over} AS there FROM rows ORDER BY carrier, origin, {TIME}").df()


def scale_of(word, deviation):
    """What a difference is measured by where the value itself is smaller: sums, means and points between two
    delays come near 0 by cancelling (a minute); so do shapes and distances; slopes, by a tenth of the deviation."""
    if word == "slope":
        return (deviation / 10).fillna(1.0).to_numpy()
    return 1.0 if word in ("mean", "sum", "median", "q90", "skew", "kurtosis", "since_nonzero") else None


def windows(rows, ends, frame, place, min_periods, count_min):
    found = sql(rows, list(SQL), frame, place)
    for word in SQL:
        least = count_min if word == "count" else max(min_periods, {"skew": 3, "kurtosis": 4, "std": 2, "var": 2}.get(word, 1))
        values = found[word].astype(float).where(found["there"] >= least)
        if word in ("skew", "kurtosis"):
            # A window of one value again and again has no shape: 0 and -3, as in pandas.
            constant = (found["min"] == found["max"]) & (found["there"] >= least)
            values = values.mask(constant, 0.0 if word == "skew" else -3.0)
        yield ends.format(word), "duckdb", values, scale_of(word, found["std"])


def answers(ours, data):
    rows = ours[[*ORDER, *GIVEN]].copy()
    groups = rows.groupby(KEYS, sort=False)
    delay, departures = groups["delay"], groups["departures"]
    by_time = rows.set_index(TIME).groupby(KEYS, sort=False)

    # As they are before or after other rows.
    yield "delay_lag_1", "pandas", delay.shift(1), None
    yield "delay_lag_24", "pandas", delay.shift(24), None
    yield "departures_lag_1", "pandas", departures.shift(1), None
    yield "departures_lag_24", "pandas", departures.shift(24), None
    earlier = rows.assign(**{TIME: rows[TIME] + 24 * HOUR})
    yield "delay_lag_24h", "pandas", rows.merge(earlier, on=ORDER, how="left")["delay_y"], None
    yield "delay_diff_1", "pandas", delay.diff(1), None
    yield "delay_diff_24", "pandas", delay.diff(24), None
    yield "departures_pct_change_1", "pandas", departures.pct_change(1, fill_method=None), None
    yield "delay_forward", "pandas", delay.ffill(), None
    lines = by_time["delay"].apply(lambda one: one.interpolate(method="time", limit_area="inside"))
    yield "delay_line", "pandas", lines.to_numpy(), 1.0

    # Windows of rows and of time.
    order = groups.cumcount()
    hours = (rows[TIME] - rows[TIME].min()) / pandas.Timedelta(days=1)
    yield from windows(rows, "delay_{}_24", "ROWS 23 PRECEDING", order, 6, 6)
    seven = "RANGE BETWEEN INTERVAL 168 HOURS PRECEDING AND INTERVAL 1 HOUR PRECEDING"
    yield from windows(rows, "delay_{}_7d", seven, hours, 1, 0)
    yield from windows(rows, "delay_expanding_{}", "ROWS UNBOUNDED PRECEDING", order, 1, 0)
    # Not `count`: its min_periods are rows in pandas, and values here. The kurtosis of pandas drifts.
    for word, of in {"mean": "mean", "sum": "sum", "std": "std", "var": "var", "min": "min", "max": "max",
                     "median": "median", "skew": "skew", "kurtosis": "kurt"}.items():
        found = getattr(delay.rolling(24, min_periods=6), of)().to_numpy()
        yield f"delay_{word}_24", "pandas", found, 10.0 if word == "kurtosis" else scale_of(word, None)
    for length, closed in {5: "left", 6: "both", 7: "neither"}.items():
        for word in ("mean", "sum", "count"):
            rolling = by_time["delay"].rolling(f"{length}h", closed=closed, min_periods=0 if word == "count" else 1)
            yield f"delay_{word}_{length}h", "pandas", getattr(rolling, word)().to_numpy(), 1.0

    # Weights that fade.
    of = {"mean": "mean", "std": "std", "var": "var"}
    for word in of:
        found = delay.transform(lambda one: getattr(one.ewm(span=12), word)())
        yield f"delay_ewm_{word}_span12", "pandas", found, 1.0
    yield "delay_ewm_mean_com3", "pandas", delay.transform(lambda one: one.ewm(com=3, adjust=False).mean()), 1.0
    yield "delay_ewm_mean_alpha0.2", "pandas", delay.transform(lambda one: one.ewm(alpha=0.2, ignore_na=True).mean()), 1.0
    faded = by_time["departures"].apply(lambda one: one.ewm(halflife="12h", times=one.index).mean())
    yield "departures_ewm_mean_half_life12h", "pandas", faded.to_numpy(), None

    # Seasons: the past mean of the same weekday by that of all days.
    rows["weekday"] = rows[TIME].dt.dayofweek
    past = rows.groupby([*KEYS, "weekday"], sort=False)["departures"].transform(lambda one: one.expanding().mean().shift(1))
    whole = departures.transform(lambda one: one.expanding().mean().shift(1))
    yield "departures_day_of_week_index", "pandas", past / whole, None

    # Over many series.
    DB.register("rows", rows)
    frame = f"OVER (PARTITION BY origin ORDER BY {TIME} RANGE BETWEEN INTERVAL 24 HOURS PRECEDING AND INTERVAL 1 HOUR PRECEDING)"
    before = f"OVER (ORDER BY {TIME} RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 HOUR PRECEDING)"
    pooled = ", ".join(f"{SQL[word]} {frame} AS {word}" for word in ("mean", "std", "min", "max", "count"))
    found = DB.execute(
        f"SELECT {pooled}, sum(departures) {before} AS departures FROM rows ORDER BY carrier, origin, {TIME}"
    ).df()
    for word in ("mean", "std", "min", "max", "count"):
        scale = scale_of(word, None)
        yield f"delay_origin_{word}_24h", "duckdb", found[word].astype(float), scale
    yield "departures_all_expanding_sum", "duckdb", found["departures"].astype(float), None
    yield from as_of(ours, data)


def as_of(ours, data):
    """The weather before, near and after each hour."""
    flights = ours[ORDER].assign(place=range(len(ours))).sort_values(TIME, kind="stable")
    weather = pandas.read_parquet(data / "weather")[["origin", TIME, "temp", "wind_speed"]]
    weather = weather.astype({TIME: flights[TIME].dtype}).sort_values(TIME, kind="stable")
    asked = {"": dict(direction="backward", allow_exact_matches=False, tolerance=pandas.Timedelta(hours=2)),
             "_nearest": dict(direction="nearest"), "_forward": dict(direction="forward", allow_exact_matches=False)}
    for suffix, how in asked.items():
        found = pandas.merge_asof(flights, weather, on=TIME, by="origin", **how).sort_values("place")
        for column in ("temp", "wind_speed"):
            yield column + suffix, "pandas", found[column].to_numpy(), None
