"""DuckDB: SQL windows. Filtered means for the days of the week: a second partition by them costs
more."""

import duckdb
from windows_shared import FEATURES, KEYS, LAGS, WINDOWS, Arguments

args = Arguments()
db = duckdb.connect(
    config={
        "threads": args.threads,
        "memory_limit": f"{args.memory >> 20}MiB",
        "temp_directory": str(args.out / "spilled"),
        "preserve_insertion_order": False,
    }
)

features = [f"lag(qty, {lag}) OVER series" for lag in LAGS]
for window in WINDOWS:
    features += [f"(avg(qty) OVER last_{window})::FLOAT", f"(stddev_samp(qty) OVER last_{window})::FLOAT"]
features.append("(avg(qty) OVER past)::FLOAT")
days = " ".join(f"WHEN {d} THEN avg(qty) FILTER (isodow(date) = {d}) OVER past" for d in range(1, 8))
features.append(f"((CASE isodow(date) {days} END) / avg(qty) OVER past)::FLOAT")

frames = {f"last_{window}": f"{window} PRECEDING" for window in WINDOWS} | {"past": "UNBOUNDED PRECEDING"}
series = f"PARTITION BY {', '.join(KEYS)} ORDER BY date"
windows = [f"series AS ({series})"]
windows += [f"{name} AS ({series} ROWS BETWEEN {first} AND 1 PRECEDING)" for name, first in frames.items()]
named = ", ".join(f"{feature} AS {name}" for name, feature in zip(FEATURES, features, strict=True))
files = ", ".join("'" + file.replace("'", "''") + "'" for file in args.files)
query = f"""SELECT *, {named}
    FROM (SELECT * REPLACE (coalesce(qty, 0)::INTEGER AS qty) FROM read_parquet([{files}]))
    WINDOW {', '.join(windows)}"""
data = args.data.replace("'", "''")
db.execute(f"COPY ({query}) TO '{data}' (FORMAT parquet, COMPRESSION snappy)")
