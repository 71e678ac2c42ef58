"""Differences and latencies of models that onnxruntime runs, beside `forebay predict` on the same rows."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import time

NUMBERS = [f"x{number}" for number in range(20)]

SPEC = """
version: 1
name: exported
sources:
  rows: { parquet: { path: "TRAIN" } }
steps:
  features:
    from: rows
    do:
      - impute: { columns: [x0], with: median }
      - standardize: { columns: [NUMBERS] }
      - log1p: { columns: [amount] }
      - vocabulary: { columns: [item], min_count: 2, oov_buckets: 1 }
      - hash_bucket: { columns: [shop], buckets: 64, hash: murmur3 }
sinks:
  trees:
    from: features
    train: { path: "OUT/trees", model: gbdt, label: y, dense: [NUMBERS, amount], categorical: [item, shop],
             rounds: 100, quantiles: [0.1, 0.9] }
  net:
    from: features
    train: { path: "OUT/net", model: mlp, label: y, dense: [NUMBERS, amount], categorical: [item, shop], epochs: 1,
             missing: 0 }
  linear:
    from: features
    train: { path: "OUT/linear", model: linear, label: y, dense: [NUMBERS, amount], categorical: [item], epochs: 1,
             missing: 0 }
"""

#: Rows that are predicted at a time.
BATCH = 10_000

#: Rows that are predicted one by one.
ALONE = 2_000


def make_rows(rows: int, seed: int) -> object:
    """Raw rows, some without an item, some with one that was never seen."""
    import numpy
    import pyarrow

    rng = numpy.random.default_rng(seed)
    columns = {"row": numpy.arange(rows)}
    for name in NUMBERS:
        columns[name] = rng.normal(5.0, 3.0, rows)
    columns["x0"] = pyarrow.array(columns["x0"], mask=rng.random(rows) < 0.1)
    columns["amount"] = rng.gamma(1.0, 100.0, rows)
    items = rng.geometric(0.002, rows) + seed
    columns["item"] = pyarrow.array([f"item {item}" for item in items], mask=rng.random(rows) < 0.02)
    columns["shop"] = [f"shop {shop}" for shop in rng.integers(0, 500, rows)]
    columns["y"] = columns["x1"] + numpy.sin(items % 50) + rng.normal(size=rows)
    return pyarrow.table(columns)


def measure_onnx(program: str, folder: pathlib.Path, train_rows: int, rows: int) -> None:
    """Prints a line for each model."""
    import pyarrow.parquet

    for name, table in [("train", make_rows(train_rows, 1)), ("new", make_rows(rows, 2))]:
        (folder / name).mkdir()
        pyarrow.parquet.write_table(table, folder / name / "a.parquet")
    spec = SPEC.replace("NUMBERS", ", ".join(NUMBERS)).replace("TRAIN", str(folder / "train"))
    (folder / "exported.yaml").write_text(spec.replace("OUT", str(folder / "models")))
    run(program, "run", folder / "exported.yaml", "--state", folder / "onnx-state")
    print(f"\n{rows:,} rows in batches of {BATCH:,}, then {ALONE:,} rows alone\n")
    print("| model | output | greatest relative difference | us a row in a batch | us a row alone, p50 | p99 |")
    print("|---|---|---|---|---|---|", flush=True)
    for model in ["trees", "net", "linear"]:
        measure_model(program, folder, model)


def measure_model(program: str, folder: pathlib.Path, model: str) -> None:
    import numpy
    import onnxruntime
    import pyarrow.parquet

    file = folder / f"{model}.onnx"
    trained = folder / "models" / model
    run(program, "export", trained, file)
    predicted = folder / f"{model}-predicted"
    words = ["--source", f"rows={folder / 'new'}", "--output", predicted, "--columns", "row"]
    run(program, "predict", trained, *words)
    expected = pyarrow.parquet.read_table(predicted).sort_by("row")
    session = onnxruntime.InferenceSession(file)
    names = [output.name for output in session.get_outputs()]
    feed = feed_of(session, pyarrow.parquet.read_table(folder / "new"))
    results = {name: [] for name in names}
    seconds = 0.0
    for start in range(0, len(expected), BATCH):
        part = {name: values[start : start + BATCH] for name, values in feed.items()}
        begin = time.perf_counter()
        outputs = session.run(names, part)
        seconds += time.perf_counter() - begin
        for name, values in zip(names, outputs, strict=True):
            results[name].append(values)
    alone = []
    for row in range(min(ALONE, len(expected))):
        part = {name: values[row : row + 1] for name, values in feed.items()}
        begin = time.perf_counter()
        session.run(names, part)
        alone.append((time.perf_counter() - begin) * 1e6)
    cuts = statistics.quantiles(alone, n=100)
    for name in names:
        found = numpy.concatenate(results[name]).astype(numpy.float64)
        wanted = expected[name].to_numpy().astype(numpy.float64)
        difference = numpy.abs(found - wanted) / numpy.maximum(numpy.abs(wanted), 1e-3)
        print(
            f"| {model} | {name} | {difference.max():.1e} | {seconds * 1e6 / len(expected):.2f} "
            f"| {cuts[49]:.0f} | {cuts[98]:.0f} |",
            flush=True,
        )


def feed_of(session: object, table: object) -> dict:
    """Inputs in the types that the model's metadata name."""
    import numpy

    feed = {}
    for described in json.loads(session.get_modelmeta().custom_metadata_map["forebay.inputs"]):
        column = table[described["name"]].combine_chunks()
        if described["type"] == "string":
            feed[described["name"]] = numpy.array(column.fill_null("").to_pylist(), dtype=object)
        else:
            feed[described["name"]] = column.to_numpy(zero_copy_only=False).astype(described["type"])
    return feed


def run(program: str, *words: object) -> None:
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
