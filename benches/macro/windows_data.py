"""Histories that the generator does not make, in bounded memory.

  shuffled SOURCE  the rows of another history in random order
  half             one series has half of all rows, the others 2,000 each
  half_even        the same days, all series of 2,000 rows
  many             series of six rows: with 60 million rows, ten million of them
  many_even        the same days, all series of 2,000 rows
...and each of the last four with `_shuffled`. All but the first are in time order."""

import sys
from pathlib import Path

import duckdb

what, rows, out, source = sys.argv[1:]
rows, out = int(rows), Path(out)
DAYS = 2_000
MANY = "'I' || lpad({0}::VARCHAR, 9, '0')"


def series(number):
    """The keys of a series by its number, and what goes with them."""
    return f"""'S' || lpad(({number} % 10)::VARCHAR, 3, '0') AS store_id, {MANY.format(f'({number} // 10)')} AS item_id,
               'C' || ({number} % 3) AS category, 'D' || ({number} % 7) AS department"""


def history(what):
    """Rows in time order; those of one day are neighbours."""
    per_day = max(rows // DAYS, 1)
    # The number of the row on its day, and the day from the first.
    lives = {
        # Two rows a day, so that a series as long as half of the rows has a row on every day.
        "half": ("i // 2", f"CASE WHEN i % 2 = 0 THEN 0 ELSE 1 + i // 2 // {DAYS} END"),
        "half_even": ("i // 2", f"2 * (i // 2 // {DAYS}) + i % 2"),
        # Each day as many series begin as end.
        "many": (f"i // {per_day}", f"i % {per_day} + {per_day} * ((i // {per_day} + i % {per_day} % 6) // 6)"),
        "many_even": (f"i // {per_day}", f"i % {per_day}"),
    }
    day, number = lives[what]
    return f"""
        SELECT DATE '1900-01-01' + day::INTEGER AS date, {series('number')},
               (hash(i) % 20)::INTEGER AS qty, 1 + (hash(number) % 1000) / 100 AS price,
               hash(i, 1) % 8 = 0 AS promotion, NULL::VARCHAR AS event
        FROM (SELECT i, {day} AS day, {number} AS number FROM range({rows}) AS rows(i))"""


db = duckdb.connect(config={"memory_limit": "2GiB", "temp_directory": str(out / "spilled"), "preserve_insertion_order": True})
name = what.removesuffix("_shuffled")
if name == "shuffled":
    query = f"SELECT * FROM read_parquet('{source}/*.parquet')"
else:
    query = history(name)
if what.endswith("shuffled"):
    query = f"SELECT * FROM ({query}) ORDER BY hash(store_id, item_id, date)"
columns = "date, store_id, item_id, category, department, qty, price, promotion, event"
db.execute(
    f"""COPY (SELECT {columns} FROM ({query})) TO '{out}'
        (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 500000, FILE_SIZE_BYTES '64MB', OVERWRITE_OR_IGNORE)"""
)
