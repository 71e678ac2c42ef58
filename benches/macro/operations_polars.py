"""Polars' part of `operations`: runs a case over `rows`, with the streaming engine."""

import sys

import polars as pl

SERIES = ["store_id", "item_id"]
qty, price = pl.col("qty"), pl.col("price")


def grouped(keys, *computed, **named):
    return lambda rows: rows.group_by(keys).agg(*computed, **named)


def total(column):
    """The sum; null without values, as in SQL."""
    return pl.when(column.count() > 0).then(column.sum())


def top_three(rows):
    counts = rows.filter(qty.is_not_null()).group_by([*SERIES, "qty"]).len()
    often = qty.sort_by(["len", "qty"], descending=[True, False]).head(3).alias("often")
    return counts.group_by(SERIES).agg(often)


def lists(rows):
    sold = qty.sort_by("date").drop_nulls().head(30)
    return rows.group_by(SERIES).agg(sold.alias("sold")).with_columns(
        pl.when(pl.col("sold").list.len() > 0).then(pl.col("sold"))
    )


def join_small(rows):
    usual = rows.group_by(SERIES).agg(usual=price.mean())
    return rows.select([*SERIES, "date"]).join(usual, on=SERIES, nulls_equal=False)


def join_large(rows):
    other = rows.select([*SERIES, "date", price.alias("paid")])
    return rows.select([*SERIES, "date", "qty"]).join(other, on=[*SERIES, "date"], how="left")


def join_as_of(rows):
    other = rows.filter("promotion").select([*SERIES, "date", price.alias("promoted")]).sort("date")
    own = rows.select([*SERIES, "date"]).sort("date")
    return own.join_asof(other, on="date", by=SERIES, check_sortedness=False)


def lag(rows):
    before = rows.select([*SERIES, pl.col("date").dt.offset_by("7d"), qty.alias("qty_lag_7d")])
    return rows.select([*SERIES, "date"]).join(before, on=[*SERIES, "date"], how="left")


def rolling(rows):
    mean = price.rolling_mean_by("date", "28d").over(SERIES)
    return rows.sort("date").select([*SERIES, "date", mean.alias("price_mean_28d")])


def weighted(rows):
    weight = qty.filter(price.is_not_null()).sum()
    return rows.group_by(SERIES).agg(paid=pl.when(weight != 0).then((price * qty).sum() / weight))


def standardize(rows):
    return rows.select([*SERIES, "date", (price - price.mean()) / price.std(ddof=0)])


def robust_mad(rows):
    apart = price - price.median()
    return rows.select([*SERIES, "date", apart / (apart.abs().median() / 0.6744897501960817)])


def mean_range(rows):
    return rows.select([*SERIES, "date", (price - price.mean()) / (price.max() - price.min())])


def winsorize_mean(rows):
    spread = price.std(ddof=0)
    return rows.select([*SERIES, "date", price.clip(price.mean() - spread, price.mean() + spread)])


def scalers(rows):
    scaled = []
    for name in ("price", "qty"):
        column = pl.col(name).cast(pl.Float64)
        above = (column - column.min()) / (column.max() - column.min())
        scaled += [
            ((column - column.mean()) / column.std(ddof=0)).alias(f"{name}_z"),
            above.alias(f"{name}_unit"),
            (above * 2 - 1).alias(f"{name}_both"),
            (column / column.abs().max()).alias(f"{name}_share"),
            column.log1p().alias(f"{name}_log"),
        ]
    return rows.select([*SERIES, "date", *scaled])


def bins(rows):
    width = (price.max() - price.min()) / 20
    return rows.select([*SERIES, "date", ((price - price.min()) / width).floor().clip(0, 19).cast(pl.Int32)])


def ordinal(rows):
    ids = [(pl.col(name).rank("dense") - 1).cast(pl.Int64).alias(f"{name}_id") for name in ("department", "category")]
    return rows.select([*SERIES, "date", *ids])


def polynomial(rows):
    number = qty.cast(pl.Float64)
    products = [(price * price).alias("price_2"), (price * number).alias("price_x_qty"), (number * number).alias("qty_2")]
    return rows.select([*SERIES, "date", *products])


def keep_best(rows):
    is_price = price.var(ddof=0) > qty.var(ddof=0)
    return rows.select([*SERIES, "date", pl.when(is_price).then(price), pl.when(~is_price).then(qty)])


def sql_window(rows):
    so_far = qty.cast(pl.Int64).sort_by("date").cum_sum().forward_fill().over(SERIES, order_by="date")
    return rows.select([*SERIES, "date", so_far.alias("so_far")])


CASES = {
    "integers": lambda rows: rows.group_by([*SERIES, (pl.col("date").dt.weekday() - 1).alias("date_day_of_week")]).agg(
        total=total(qty.cast(pl.Int64)), n=qty.count()
    ),
    "floats": grouped(SERIES, average=price.mean(), total=total(price)),
    "spread": grouped(SERIES, std_qty=qty.std(), std_price=price.std()),
    "texts": grouped(
        ["store_id", "department"],
        pl.col("item_id").min().alias("least"),
        pl.col("item_id").max().alias("greatest"),
        pl.col("date").min().alias("from"),
        price.max().alias("dear"),
    ),
    "distinct": grouped(
        ["store_id"], items=pl.col("item_id").drop_nulls().n_unique(), prices=price.drop_nulls().n_unique()
    ),
    "approx_distinct": grouped(
        ["store_id"], items=pl.col("item_id").approx_n_unique(), prices=price.approx_n_unique()
    ),
    "quantiles": grouped(SERIES, middle=price.median(), high=price.quantile(0.9, "linear")),
    "many_groups": grouped([*SERIES, "date"], total=total(qty.cast(pl.Int64)), average=price.mean()),
    "dedupe": lambda rows: rows.select([*SERIES, "price"]).unique(),
    "dedupe_all": lambda rows: rows.unique(subset=[*SERIES, "date"], keep="any"),
    "weighted": weighted,
    "by_time": grouped(SERIES, before=price.sort_by("date").drop_nulls().first(), now=price.sort_by("date").drop_nulls().last()),
    "top": top_three,
    "lists": lists,
    "join_small": join_small,
    "join_large": join_large,
    "join_as_of": join_as_of,
    "lag": lag,
    "rolling": rolling,
    "standardize": standardize,
    "robust_mad": robust_mad,
    "mean_range": mean_range,
    "winsorize_mean": winsorize_mean,
    "keep_best": keep_best,
    "scalers": scalers,
    "impute": lambda rows: rows.select([*SERIES, "date", qty.cast(pl.Float64).fill_null(qty.mean())]),
    "bins": bins,
    "ordinal": ordinal,
    "polynomial": polynomial,
    "sql_groups": grouped(["store_id", "department"], total=total(qty.cast(pl.Int64)), average=price.mean()),
    "sql_window": sql_window,
}

READS = {
    "parquet": pl.scan_parquet,
    "csv": lambda files: pl.scan_csv(files, try_parse_dates=True),
    "json": lambda files: pl.scan_ndjson(files, infer_schema_length=None).with_columns(pl.col("date").str.to_date()),
    "arrow": pl.scan_ipc,
}


def run(case, data, out, form):
    """Runs a case, or writes all rows in a format, or reads them and takes the greatest value of each column."""
    verb, _, what = case.partition("_")
    rows = READS[form](f"{data}/*.{form}")
    if verb == "write":
        sink = {"parquet": lambda: rows.sink_parquet(out, compression="snappy"), "csv": lambda: rows.sink_csv(out)}
        return sink.get(what, lambda: rows.sink_ipc(out, compression="zstd"))()
    made = rows.select(pl.all().max()) if verb == "read" else CASES[case](rows)
    made.sink_parquet(out, compression="snappy", engine="streaming")


def prepare(form, data, out):
    """Writes the rows of Parquet files in a format that DuckDB lacks."""
    run(f"write_{form}", data, out, "parquet")


def convert(data, out):
    """Writes the rows of Arrow files as Parquet, which DuckDB reads."""
    pl.scan_ipc(f"{data}/*.arrow" if not data.endswith(".arrow") else data).sink_parquet(out)


if __name__ == "__main__":
    {"run": run, "prepare": prepare, "convert": convert}[sys.argv[1]](*sys.argv[2:])
