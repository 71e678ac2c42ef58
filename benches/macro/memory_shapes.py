"""Data whose shape, and not its size, is what fills memory: wide rows, large cells, large pages, large batches.

Each function writes the input of one job into a directory. `benches/memory` runs it in a process of its own, since the
peak of a child counts the pages that it shares with its parent. That process alone needs pyarrow and numpy."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def random():
    return np.random.default_rng(7)


def large_text(row, length):
    """A text that no other row has."""
    return (f"{row:08d}" * (length // 8 + 1))[:length]


def arrow_zeros(out):
    """One batch of 1.6 GB in 56 kB of zstd."""
    table = pa.table({f"x{column}": np.zeros(20_000_000) for column in range(10)})
    with ipc.new_file(out / "a.arrow", table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])


def arrow_batch(out):
    """One batch of 400 MB."""
    table = pa.table({f"x{column}": random().random(10_000_000) for column in range(5)})
    with ipc.new_file(out / "a.arrow", table.schema) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])


def parquet_page(out):
    """One page of 400 MB in 20 kB."""
    table = pa.table({"x0": np.zeros(50_000_000)})
    pq.write_table(
        table, out / "a.parquet", use_dictionary=False, compression="zstd", data_page_size=1 << 30,
        row_group_size=50_000_000, write_batch_size=50_000_000, max_rows_per_page=50_000_000,
    )


def large_cells(out):
    """150 cells of 10 MB in one row group."""
    texts = pa.array([large_text(row, 10_000_000) for row in range(150)], pa.large_string())
    table = pa.table({"id": np.arange(150), "x0": random().random(150), "s": texts})
    pq.write_table(table, out / "a.parquet", use_dictionary=False, row_group_size=150)


def few_large_cells(out):
    """40 cells of 10 MB, a row group each."""
    texts = [large_text(row // 2, 10_000_000) for row in range(40)]
    table = pa.table({"id": np.arange(40), "x0": random().random(40), "s": texts})
    pq.write_table(table, out / "a.parquet", use_dictionary=False, row_group_size=1)


def lists_of_large_cells(out):
    """20 lists of two cells of 10 MB, a row group each."""
    texts = [[large_text(row, 10_000_000), large_text(row + 1, 10_000_000)] for row in range(20)]
    table = pa.table({"id": np.arange(20), "x0": random().random(20), "s": texts})
    pq.write_table(table, out / "a.parquet", use_dictionary=False, row_group_size=1)


def csv_of_large_cells(out):
    """40 cells of 10 MB as CSV."""
    with open(out / "a.csv", "w") as file:
        file.write("id,x0,s\n")
        for row in range(40):
            file.write(f"{row},{row / 8},{large_text(row, 10_000_000)}\n")


def long_lines(out):
    """20 lines of JSON of 15 MB."""
    with open(out / "a.json", "w") as file:
        for row in range(20):
            file.write(json.dumps({"id": row, "x0": row / 8, "s": large_text(row, 15_000_000)}) + "\n")


def wide(out, columns, rows=20_000):
    table = pa.table({f"x{column}": random().random(rows) for column in range(columns)})
    pq.write_table(table, out / "a.parquet")


def wide_3000(out):
    """3,000 columns of 20,000 rows."""
    wide(out, 3_000)


def wide_1000(out):
    """1,000 columns of 20,000 rows."""
    wide(out, 1_000)


def many_values(out):
    """400,000 rows of 20,000 values."""
    rows = 400_000
    table = pa.table({"k": np.arange(rows) % 20_000, "x0": random().random(rows), "s": [f"text {row}" for row in range(rows)]})
    pq.write_table(table, out / "a.parquet", row_group_size=50_000)


def numbers(out):
    """4,000,000 rows of three columns."""
    rows = 4_000_000
    table = pa.table({"k": np.arange(rows) * 7_919 % 1_000, "id": np.arange(rows), "x0": random().random(rows)})
    pq.write_table(table, out / "a.parquet", row_group_size=500_000)


def short_numbers(out):
    """2,000 rows that expressions make large."""
    rows = 2_000
    table = pa.table({"k": np.arange(rows), "x0": random().random(rows), "s": ["x" * 100] * rows})
    pq.write_table(table, out / "a.parquet")


def long_dictionary(out):
    """20,000 rows of three texts of 10 MB, each of which the file has once in a row group."""
    rows = 20_000
    texts = pa.array([large_text(row, 10_000_000) for row in range(3)])
    codes = pa.array([None if row % 5 == 0 else row % 3 for row in range(rows)], pa.int32())
    table = pa.table({
        "id": np.arange(rows),
        "k": np.arange(rows) % 7,
        "t": pa.array(np.arange(rows) * 60_000_000, pa.timestamp("us")),
        "x0": random().random(rows),
        "s": pa.DictionaryArray.from_arrays(codes, texts),
    })
    pq.write_table(table, out / "a.parquet", row_group_size=10_000, dictionary_pagesize_limit=1 << 26)


def wide_csv(out):
    """3,000 columns of short fields, 20,000 rows of CSV."""
    with open(out / "a.csv", "w") as file:
        file.write(",".join(f"x{column}" for column in range(3_000)) + "\n")
        line = ",".join(str(column % 10) for column in range(3_000)) + "\n"
        for _ in range(20_000):
            file.write(line)


def delta_log(out):
    """A Delta table whose log has one commit of 108 MB and 300,000 files, which are not there."""
    (out / "_delta_log").mkdir()
    schema = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
    with open(out / "_delta_log" / f"{0:020}.json", "w") as file:
        metadata = {
            "id": "large", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
            "partitionColumns": [], "configuration": {}, "createdTime": 0,
        }
        for action in ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}):
            file.write(json.dumps(action) + "\n")
        for number in range(300_000):
            add = {
                "path": f"{number:0200}.parquet", "partitionValues": {}, "size": 1000, "modificationTime": 0,
                "dataChange": True, "stats": json.dumps({"numRecords": 10}),
            }
            file.write(json.dumps({"add": add}) + "\n")


def chain(name, step, sink="parquet: { path: out }", source="parquet: { path: in }", options=""):
    return (
        f"version: 1\nname: {name}\nsources: {{ a: {{ {source}{options} }} }}\n"
        f"steps: {{ f: {{ from: a, do: [ {step} ] }} }}\nsinks: {{ t: {{ from: f, {sink} }} }}\n"
    )


def query(name, sql):
    return (
        f"version: 1\nname: {name}\nsources: {{ a: {{ parquet: {{ path: in }} }} }}\n"
        f"steps: {{ f: {{ sql: \"{sql}\" }} }}\nsinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n"
    )


STANDARDIZE = "{ standardize: { columns: [x0] } }"
ALL = '{ standardize: { columns: ["x*"] } }'

class Shape(NamedTuple):
    """A job on data of a shape."""

    data: Callable[[Path], None]
    memory: str
    spec: str
    # Whether the run may end with the fault FB0301, since no run within the memory can do it.
    may_refuse: bool = False
    # More words of the command.
    words: tuple[str, ...] = ()
    # Processes that share the memory.
    processes: int = 1
    command: str = "run"
    # The fault that the command has to end with.
    fault: str = ""
    # Variables that name a service which answers without end.
    services: tuple[str, ...] = ()


def doubled(tables):
    """A query whose plan doubles with each of its tables."""
    text = ", ".join(f"t{table} AS (SELECT a.k FROM t{table - 1} a JOIN t{table - 1} b ON a.k = b.k)" for table in range(1, tables + 1))
    return query("z", f"WITH t0 AS (SELECT k FROM a), {text} SELECT k FROM t{tables}")


def united(steps):
    """Unions of which each has the one before it twice."""
    text = "".join(f"  u{step}: {{ union: [u{step - 1}, u{step - 1}] }}\n" for step in range(1, steps + 1))
    return (
        "version: 1\nname: z\nsources: { a: { parquet: { path: in } } }\n"
        f"steps:\n  u0: {{ from: a, do: [ {{ select: [k] }} ] }}\n{text}"
        f"sinks: {{ t: {{ from: u{steps}, parquet: {{ path: out }} }} }}\n"
    )


ARROW = "arrow: { path: in }"
PARTITIONED = "parquet: { path: out, partition_by: [k] }"
TRAINED = "train: { path: out, model: linear, label: x0, dense: [k], epochs: 1, batch_rows: 256 }"
JOIN_CELLS = (
    "version: 1\nname: z\nsources: { a: { parquet: { path: in } }, b: { parquet: { path: in } } }\n"
    "steps: { f: { from: a, do: [ { select: [id, x0] }, { join: { with: b, on: [id], columns: [s] } } ] } }\n"
    "sinks: { t: { from: f, parquet: { path: out } } }\n"
)

LENGTH = '{ derive: { z: "length(s)" } }, { select: [id, z] }'
SERIES = ", time: t, keys: [k]"
JOIN_LONG_TEXTS = (
    "version: 1\nname: z\nsources: { a: { parquet: { path: in } } }\n"
    'steps: { one: { from: a, do: [ { filter: "id > 0 AND id < 8" }, { select: [k, s] }, { rename: { s: j } } ] }, '
    # Each joined row gets a copy of a text: 200 of them are 2 GB.
    'f: { from: a, do: [ { filter: "id < 200" }, { select: [id, k] }, { join: { with: one, on: [k], columns: [j] } }, '
    '{ derive: { z: "length(j)" } }, { select: [id, z] } ] } }\n'
    "sinks: { t: { from: f, parquet: { path: out } } }\n"
)


def over_long_texts(step, length=LENGTH, fault=""):
    """A step over long texts of a dictionary, whose result is measured."""
    return Shape(
        long_dictionary, "128MiB", chain("z", f"{step}, {length}", options=SERIES), may_refuse=True, fault=fault
    )


SHAPES = {
    "arrow_zstd": Shape(arrow_zeros, "128MiB", chain("z", STANDARDIZE, source=ARROW)),
    "arrow_batch": Shape(arrow_batch, "128MiB", chain("z", STANDARDIZE, source=ARROW)),
    "parquet_page": Shape(parquet_page, "128MiB", chain("z", STANDARDIZE), may_refuse=True),
    "large_cells": Shape(large_cells, "256MiB", chain("z", STANDARDIZE), may_refuse=True),
    "wide_3000": Shape(wide_3000, "512MiB", chain("z", ALL)),
    "wide_3000_small": Shape(wide_3000, "128MiB", chain("z", ALL), may_refuse=True),
    "wide_1000": Shape(wide_1000, "512MiB", chain("z", ALL)),
    "wide_1000_small": Shape(wide_1000, "128MiB", chain("z", ALL), may_refuse=True),
    "wide_1000_workers": Shape(
        wide_1000, "256MiB", chain("z", ALL), may_refuse=True, words=("--local-workers", "2"), processes=3
    ),
    "long_lines": Shape(long_lines, "128MiB", chain("z", STANDARDIZE, source="json: { path: in }"), may_refuse=True),
    "repeat": Shape(short_numbers, "128MiB", chain("z", '{ derive: { z: "repeat(s, 20000)" } }'), may_refuse=True),
    "range": Shape(
        short_numbers, "128MiB", chain("z", '{ derive: { z: "array_length(range(k * 100000))" } }'), may_refuse=True
    ),
    "window": Shape(numbers, "256MiB", query("z", "SELECT id, sum(x0) OVER () AS s FROM a"), may_refuse=True),
    "array_agg": Shape(
        numbers, "128MiB", query("z", "SELECT k, array_agg(x0) AS l FROM a GROUP BY k"), may_refuse=True
    ),
    "unnest": Shape(
        short_numbers, "512MiB", query("z", "SELECT k, unnest(range(0, 50000)) AS n FROM a"), may_refuse=True
    ),
    "dedupe_cells": Shape(few_large_cells, "256MiB", chain("z", "{ dedupe: { keys: [s] } }"), may_refuse=True),
    "explode_cells": Shape(lists_of_large_cells, "256MiB", chain("z", "{ explode: { column: s } }"), may_refuse=True),
    "csv_cells": Shape(
        csv_of_large_cells, "256MiB", chain("z", STANDARDIZE, source="csv: { path: in }"), may_refuse=True
    ),
    "join_cells": Shape(few_large_cells, "256MiB", JOIN_CELLS, may_refuse=True),
    "partition_by": Shape(many_values, "128MiB", chain("z", STANDARDIZE, sink=PARTITIONED)),
    "endless_tracking": Shape(
        short_numbers, "128MiB", chain("z", STANDARDIZE, sink=TRAINED), services=("MLFLOW_TRACKING_URI",)
    ),
    "endless_traces": Shape(
        short_numbers, "128MiB", chain("z", STANDARDIZE), services=("OTEL_EXPORTER_OTLP_ENDPOINT",)
    ),
    "endless_lineage": Shape(short_numbers, "128MiB", chain("z", STANDARDIZE), services=("OPENLINEAGE_URL",)),
    "constant": Shape(
        short_numbers, "128MiB", chain("z", "{ derive: { z: \"length(repeat('a', 60000000)) + k\" } }"), may_refuse=True
    ),
    "constant_rows": Shape(
        short_numbers, "128MiB", chain("z", "{ derive: { z: \"repeat('a', 8000000)\" } }"), may_refuse=True
    ),
    "constant_query": Shape(short_numbers, "128MiB", query("z", "SELECT k, repeat('a', 8000000) AS z FROM a"), may_refuse=True),
    "constant_impute": Shape(
        long_dictionary, "128MiB",
        chain("z", "{ impute: { columns: [s], with: { constant: " + "c" * 1_000_000 + " } } }, " + LENGTH), may_refuse=True,
    ),
    "dictionary_derive": over_long_texts('{ derive: { s: "upper(s)" } }'),
    # Texts of 10 MB are no tokens and no keys, whatever the memory is.
    "dictionary_impute": over_long_texts("{ impute: { columns: [s], with: mode } }", fault="FB0303"),
    "dictionary_encode": over_long_texts(
        "{ target_encoding: { columns: [s], label: x0, cross_fit: time } }", "{ select: [id, s] }", fault="FB0303"
    ),
    "dictionary_lag": over_long_texts(
        "{ lag: { columns: [s], by: [1], gaps: count_rows } }", '{ derive: { z: "length(s_lag_1)" } }, { select: [id, z] }'
    ),
    "dictionary_fill": over_long_texts("{ fill_forward: { columns: [s] } }"),
    "dictionary_join": Shape(long_dictionary, "128MiB", JOIN_LONG_TEXTS, may_refuse=True),
    "csv_wide": Shape(wide_csv, "512MiB", chain("z", ALL, source="csv: { path: in }")),
    "delta_log": Shape(
        delta_log, "128MiB", chain("z", '{ filter: "k > 0" }', source="delta: { path: in }"), may_refuse=True
    ),
    "doubling_query": Shape(short_numbers, "128MiB", doubled(22), command="check", fault="FB0110"),
    "doubling_union": Shape(short_numbers, "128MiB", united(24), command="check", fault="FB0303"),
}


def main():
    global np, pa, pq, ipc
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ipc

    job, out = sys.argv[1], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    SHAPES[job].data(out)


if __name__ == "__main__":
    main()
