"""Whether contenders wrote the same features.

A contender that read only the first files is compared over their days; no feature looks ahead. NaN and null
are both a missing value.
- The columns of the history: a hash over all rows that does not depend on their order.
- All rows: of every feature, the values that are there are as many; their sum, the sum of their
  squares and the sum of their products with a number that depends on the row agree within 1e-6.
- One series in 97, row by row: values are missing in the same rows, and differ by at most 1e-5, or
  1e-5 times the value: everyone computes in doubles and writes float32. A deviation may be 1e-3,
  for it is the root of a difference that cancels where a window is constant."""

import json
import math
import sys
from pathlib import Path

import duckdb
from windows_shared import COLUMNS, FEATURES

# Writers leave NaN out of Parquet's statistics, and DuckDB 2.0 then takes `isnan` to be false for all rows.
DB = duckdb.connect(config={"disabled_optimizers": "statistics_propagation"})
KEY = "store_id, item_id, date::DATE"


def parquet(paths):
    listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def one(query):
    DB.execute(query)
    return dict(zip([column[0] for column in DB.description], DB.fetchone()))


def there(value):
    return f"({value} IS NOT NULL AND NOT isnan({value}::DOUBLE))"


def of_history(rows):
    values = ["store_id", "item_id", "date::DATE", "category", "department", "coalesce(qty, 0)::BIGINT", "price::DOUBLE",
              "promotion", "event"]
    values = ", ".join(f"{value}::VARCHAR" if value in ("category", "department", "event") else value for value in values)
    return one(f"SELECT count(*) AS rows, sum(hash({values}))::VARCHAR AS hash FROM {rows}")


def of_features(rows):
    asked = []
    for f in FEATURES:
        asked.append(f"count_if({there(f)}) AS {f}_count")
        for name, value in {"sum": f, "squares": f"{f}::DOUBLE * {f}", "products": f"{f}::DOUBLE * weight"}.items():
            asked.append(f"sum(({value})::DOUBLE) FILTER ({there(f)}) AS {f}_{name}")
    return one(f"SELECT {', '.join(asked)} FROM (SELECT *, (hash({KEY}) % 1009) / 1009 AS weight FROM {rows})")


def digest(written, until, out):
    """What a contender wrote, in few words: all of it, and its rows up to a day."""
    rows = parquet([Path(written) / "**" / "*.parquet"])
    names = [row[0] for row in DB.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()]
    if names != COLUMNS + FEATURES and sorted(names) != sorted(COLUMNS + FEATURES):
        print(f"DISAGREES  {written} has the columns {names}")
        return False
    found = {}
    for name, part in {"all": rows, "first": f"(SELECT * FROM {rows} WHERE date::DATE <= DATE '{until}')"}.items():
        found[name] = of_history(part) | of_features(part)
    Path(out, "found.json").write_text(json.dumps(found))
    features = ", ".join(FEATURES)
    series = f"SELECT store_id, item_id, date::DATE AS date, {features} FROM {rows} WHERE hash(store_id, item_id) % 97 = 0"
    DB.execute(f"COPY ({series}) TO '{out}/series.parquet' (FORMAT parquet)")
    return True


def compare(files, *named):
    paths = {name: Path(path) for name, path in (word.split("=", 1) for word in named)}
    found = {name: json.loads((path / "found.json").read_text()) for name, path in paths.items()}
    wrong = []
    whole = of_history(parquet(json.loads(files)))
    reference = next((name for name in ("duckdb", "polars", *found) if name in found), None)
    for name, its in found.items():
        part = "all" if its["all"]["rows"] == whole["rows"] else "first"
        if part == "all" and its["all"]["hash"] != whole["hash"]:
            wrong.append(f"{name}: the columns of the history are not what they were")
        if name == reference:
            continue
        mine, theirs = its[part], found[reference][part]
        for what, value in theirs.items():
            exact = what in ("rows", "hash") or what.endswith("_count")
            same = mine[what] == value if exact else math.isclose(mine[what] or 0, value or 0, rel_tol=1e-6, abs_tol=1e-6)
            if not same:
                wrong.append(f"{name}: {what} is {mine[what]}, not {value} as for {reference}")
        wrong += row_by_row(name, paths[name], reference, paths[reference], its["all"]["rows"] == whole["rows"])
    for line in wrong:
        print(f"DISAGREES  {line}")
    if not wrong:
        print(f"{', '.join(found)} agree" if len(found) > 1 else "nothing to compare")
    return not wrong


def row_by_row(name, mine, reference, theirs, all_rows):
    asked = ["count(*) AS rows"]
    for f in FEATURES:
        both = f"{there('a.' + f)} AND {there('b.' + f)}"
        near = 1e-3 if "_std_" in f else 1e-5
        off = f"abs(a.{f}::DOUBLE - b.{f}::DOUBLE)"
        asked.append(f"count_if({there('a.' + f)} <> {there('b.' + f)}) AS {f}_missing")
        asked.append(f"count_if({both} AND {off} > greatest({near}, 1e-5 * abs(b.{f}::DOUBLE))) AS {f}_apart")
        asked.append(f"max({off}) FILTER ({both}) AS {f}_most")
    pairs = f"{parquet([mine / 'series.parquet'])} a JOIN {parquet([theirs / 'series.parquet'])} b USING (store_id, item_id, date)"
    found = one(f"SELECT {', '.join(asked)} FROM {pairs}")
    sampled = one(f"SELECT count(*) AS rows FROM {parquet([(theirs if all_rows else mine) / 'series.parquet'])}")["rows"]
    wrong = []
    if found["rows"] != sampled:
        wrong.append(f"{name}: {found['rows']} of {sampled} sampled rows are those of {reference}")
    for f in FEATURES:
        for what in ("missing", "apart"):
            if count := found[f"{f}_{what}"]:
                wrong.append(f"{name}: {f} is {what} in {count} of {sampled} rows (by {found[f'{f}_most']} at most), beside {reference}")
    return wrong


def rows(files, first):
    """The rows of all files and of the first ones, and the first ones' last day."""
    print(one(f"SELECT count(*) AS rows FROM {parquet(json.loads(files))}")["rows"])
    print(*one(f"SELECT count(*) AS rows, max(date)::DATE AS until FROM {parquet(json.loads(first))}").values())
    return True


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    sys.exit(0 if {"digest": digest, "compare": compare, "rows": rows}[verb](*words) else 1)
