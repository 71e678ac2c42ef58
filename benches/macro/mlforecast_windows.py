"""mlforecast over a Polars frame, all in memory. A series has a day in each row, so the mean of a
weekday's past is that of every 7th row, from 7 days ago back to the first."""

import polars as pl
from mlforecast import MLForecast
from mlforecast.lag_transforms import ExpandingMean, RollingMean, RollingStd, SeasonalRollingMean
from windows_shared import COLUMNS, FEATURES, KEYS, LAGS, WINDOWS, Arguments

args = Arguments()
history = (
    pl.scan_parquet(args.files)
    .with_columns(pl.struct(KEYS).rank("dense").alias("unique_id"), pl.col("qty").fill_null(0).cast(pl.Float64))
    .collect()
)
first, last = history.select(pl.min("date").alias("first"), pl.max("date").alias("last")).row(0)
weeks = (last - first).days // 7 + 1
past = []
for window in WINDOWS:
    past += [RollingMean(window, min_samples=1), RollingStd(window, min_samples=2)]
past.append(ExpandingMean())
forecast = MLForecast(
    models=[],
    freq="1d",
    lags=LAGS,
    lag_transforms={1: past, 7: [SeasonalRollingMean(7, weeks, min_samples=1)]},
    num_threads=args.threads,
)
table = forecast.preprocess(
    history, id_col="unique_id", time_col="date", target_col="qty", static_features=[], dropna=False
)
slot, mean = table.columns[-1], table.columns[-2]
found = table.columns[-len(FEATURES) :]
names = dict(zip(found, FEATURES, strict=True))
table = table.with_columns((pl.col(slot) / pl.col(mean)).alias(slot)).rename(names)
whole = [pl.col(name).cast(pl.Int32, strict=False) for name in ["qty", *FEATURES[: len(LAGS)]]]
table.with_columns(whole).select(COLUMNS + FEATURES).write_parquet(args.data, compression="snappy")
