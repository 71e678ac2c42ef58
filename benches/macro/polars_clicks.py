"""Polars: lazy scans, the streaming engine. Medians and vocabularies go column by column: that
costs the same CPU as all at once and keeps fewer of them in memory. Statistics are taken in
doubles; the mean of a Float32 would be rounded to a Float32."""

import polars as pl
from shared import MIN_COUNT, NUMBERS, TOKENS, Arguments

args = Arguments()
log = pl.scan_parquet(args.files)


def collect(frame):
    return frame.collect(engine="streaming")


def medians():
    return {f: collect(log.select(pl.col(f).median())).item() for f in NUMBERS}


def moments():
    of = {
        "count": lambda x: x.count(),
        "nulls": lambda x: x.null_count(),
        "mean": lambda x: x.mean(),
        "var": lambda x: x.var(ddof=0),
        "min": lambda x: x.min(),
        "max": lambda x: x.max(),
    }
    asked = [take(pl.col(f).cast(pl.Float64)).alias(f"{f} {name}") for f in NUMBERS for name, take in of.items()]
    row = collect(log.select(asked)).row(0, named=True)
    return {f: {name: row[f"{f} {name}"] for name in of} for f in NUMBERS}


def vocabulary(c):
    counts = log.group_by(pl.col(c).alias("token")).agg(pl.len().alias("count"))
    kept = counts.filter((pl.col("count") >= MIN_COUNT) & pl.col("token").is_not_null())
    found = collect(kept.sort("count", descending=True))
    found.write_parquet(args.vocabulary(c), compression="snappy")
    return found["token"]


def filled(f):
    return pl.col(f).fill_null(middle[f]).log1p()


def standardized(f):
    mean, var = scaled[f]["mean"], scaled[f]["var"]
    return ((filled(f) - mean) / (var**0.5 or 1.0)).cast(pl.Float32).alias(f)


def ids(c):
    tokens = vocabularies[c]
    known = pl.col(c).cast(pl.Enum(tokens), strict=False).to_physical().cast(pl.Int32)
    return pl.when(pl.col(c).is_not_null()).then(known.fill_null(len(tokens))).alias(c)


middle = medians()
if args.job == "fit":
    learned = moments()
    for f in NUMBERS:
        learned[f]["median"] = middle[f]
    for c in TOKENS:
        vocabulary(c)
    args.learned(learned)
else:
    vocabularies = {c: vocabulary(c) for c in TOKENS}
    asked = [g for f in NUMBERS for x in [filled(f).cast(pl.Float64)] for g in (x.mean(), x.var(ddof=0).alias(f"{f} var"))]
    row = collect(log.select(asked)).row(0, named=True)
    scaled = {f: {"mean": row[f], "var": row[f"{f} var"]} for f in NUMBERS}
    args.learned({f: {"median": middle[f], "scaled": scaled[f]} for f in NUMBERS})
    table = log.select("label", *map(standardized, NUMBERS), *map(ids, TOKENS))
    table.sink_parquet(args.data, compression="snappy", engine="streaming")
