"""Every tool reads every output whole: the result before, also while a run is about to publish, or the one after it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import deltalake
import duckdb
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import ROWS, table

import forebay

SERVER = pathlib.Path(__file__).parents[3] / "benches" / "macro" / "object_server.py"

SPEC = """
version: 1
name: readers
params:
  data: { type: path }
  out: { type: path }
sources:
  shop: { parquet: { path: "${data}" } }
steps:
  features:
    from: shop
    do:
      - derive: { half: "price / 2" }
sinks:
  table: { from: features, KIND: { path: "${out}", file_bytes_target: 20000, group_rows_max: 500 } }
"""


def options() -> dict[str, str]:
    """Where the store is, as deltalake and Polars take it."""
    names = ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"]
    return {name: os.environ[name] for name in names if name in os.environ} | {"AWS_ALLOW_HTTP": "true"}


def delta(out: str) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(out, storage_options=options() if "://" in out else None)


def by_duckdb(rows: object) -> list[int]:
    return [row[0] for row in duckdb.sql("SELECT id FROM rows").fetchall()]


def by_extension(out: str) -> list[int]:
    """DuckDB's own reader of Delta tables, which it loads from its server."""
    connection = duckdb.connect()
    try:
        connection.execute("INSTALL delta; LOAD delta")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB's extension for Delta tables cannot be installed: {error}")
    if "://" in out:
        endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID 'key', SECRET 'secret', ENDPOINT '{endpoint}', USE_SSL false, "
            "URL_STYLE 'path', REGION 'us-east-1')"
        )
    return [row[0] for row in connection.execute(f"SELECT id FROM delta_scan('{out}')").fetchall()]


Reader = Callable[[str], list[int]]

# In a bucket, a listing may show files of two results: there, Parquet outputs are read by `forebay.dataset`.
LISTED: dict[str, Reader] = {
    "pyarrow": lambda out: pyarrow.dataset.dataset(out).to_table()["id"].to_pylist(),
    "pandas": lambda out: pandas.read_parquet(out)["id"].to_list(),
    "polars": lambda out: polars.read_parquet(f"{out}/**/*.parquet")["id"].to_list(),
    "duckdb": lambda out: by_duckdb(duckdb.read_parquet(f"{out}/**/*.parquet")),
}
VISIBLE: dict[str, Reader] = {
    "pyarrow, dataset": lambda out: forebay.dataset(out).to_pyarrow()["id"].to_pylist(),
    "pandas, dataset": lambda out: forebay.dataset(out).to_pandas()["id"].to_list(),
    "polars, dataset": lambda out: forebay.dataset(out).to_polars()["id"].to_list(),
    "duckdb, dataset": lambda out: by_duckdb(forebay.dataset(out)),
}
DELTA: dict[str, Reader] = {
    "pyarrow": lambda out: delta(out).to_pyarrow_table()["id"].to_pylist(),
    "pandas": lambda out: delta(out).to_pandas()["id"].to_list(),
    "polars": lambda out: polars.read_delta(out, storage_options=options() if "://" in out else None)["id"].to_list(),
    "duckdb": lambda out: by_duckdb(delta(out).to_pyarrow_dataset()),
    "duckdb, extension": by_extension,
    "deltalake": lambda out: [row for batch in delta(out).to_pyarrow_dataset().to_batches() for row in ids(batch)],
}
READERS: dict[tuple[str, str], dict[str, Reader]] = {
    ("local", "parquet"): LISTED | VISIBLE,
    ("s3", "parquet"): VISIBLE,
    ("local", "delta"): DELTA | VISIBLE,
    ("s3", "delta"): DELTA | VISIBLE,
}
CASES = [(*case, reader) for case, readers in READERS.items() for reader in readers]


def ids(batch: pyarrow.RecordBatch) -> list[int]:
    found: list[int] = batch.column("id").to_pylist()
    return found


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of the object server that the benchmarks use."""
    root = tmp_path_factory.mktemp("buckets")
    (root / "lake").mkdir()
    command = [sys.executable, str(SERVER), str(root), "--latency", "0", "--bandwidth", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    endpoint = server.stdout.readline().strip()
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        yield "s3://lake"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        server.wait()


class Output:
    """An output that a second run is about to publish."""

    def __init__(self, root: pathlib.Path, out: str, kind: str) -> None:
        self.root, self.out = root, out
        (root / "spec.yaml").write_text(SPEC.replace("KIND", kind))
        (root / "data").mkdir()
        self.rows = table(ROWS)
        self.show(0, ROWS // 2)
        self.run()
        self.first = list(range(ROWS // 2))
        # Other rows, so that nothing of the first result stays.
        (root / "data" / "0.parquet").unlink()
        self.show(ROWS // 4, ROWS)
        self.second = list(range(ROWS // 4, ROWS))
        # The last step before readers see the second result.
        named = "_delta_log" if kind == "delta" else "_manifest.json"
        said = f"put {out}/{named}" if "://" in out or kind == "delta" else "name " + out
        killed = subprocess.run(
            [sys.executable, "-c", f"import forebay; {self.call()}"], env=os.environ | {"FOREBAY_KILL_ON": said}
        )
        assert killed.returncode == -signal.SIGKILL

    def show(self, start: int, end: int) -> None:
        path = self.root / "data" / f"{start}.parquet"
        pyarrow.parquet.write_table(self.rows.slice(start, end - start), path)

    def call(self) -> str:
        params = {"data": str(self.root / "data"), "out": self.out}
        return f"forebay.run({str(self.root / 'spec.yaml')!r}, {params!r}, state={str(self.root / 'state')!r})"

    def run(self) -> None:
        params = {"data": self.root / "data", "out": self.out}
        forebay.run(self.root / "spec.yaml", params, state=self.root / "state")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, bucket: str) -> dict[tuple[str, str, str], tuple[object, object]]:
    """What each tool reads while a run is about to publish, and after it: the ids, or why it could not."""
    found: dict[tuple[str, str, str], tuple[object, object]] = {}
    for (place, kind), readers in READERS.items():
        root = tmp_path_factory.mktemp(f"{place}-{kind}")
        output = Output(root, f"{bucket}/{kind}" if place == "s3" else str(root / "out"), kind)
        during = {name: attempt(reader, output.out) for name, reader in readers.items()}
        output.run()
        for name, reader in readers.items():
            after = attempt(reader, output.out)
            found[place, kind, name] = (
                True if during[name] == output.first else during[name],
                True if after == output.second else after,
            )
    return found


def attempt(reader: Reader, out: str) -> object:
    try:
        return sorted(reader(out))
    except pytest.skip.Exception as skipped:
        return skipped
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize(("place", "kind", "reader"), CASES)
def test_readers_see_one_result(
    read: dict[tuple[str, str, str], tuple[object, object]], place: str, kind: str, reader: str
) -> None:
    for moment, seen in zip(["during a run", "after the second run"], read[place, kind, reader], strict=True):
        if isinstance(seen, pytest.skip.Exception):
            raise seen
        assert seen is True, moment


def test_what_deltalake_wrote_is_read(tmp_path: pathlib.Path) -> None:
    rows = table(ROWS)
    for start in range(0, ROWS, ROWS // 5):
        part = rows.slice(start, ROWS // 5)
        deltalake.write_deltalake(str(tmp_path / "table"), part, mode="append", partition_by=["day"])
    written = deltalake.DeltaTable(str(tmp_path / "table"))
    written.create_checkpoint()
    written.delete("id % 3 = 0")
    seen = forebay.dataset(tmp_path / "table").to_pyarrow().sort_by("id")
    expected = rows.filter(pyarrow.array([number % 3 != 0 for number in rows["id"].to_pylist()]))
    assert seen.select(expected.column_names).cast(expected.schema).equals(expected)
    spec = SPEC.replace("parquet: { path", "delta: { path", 1).replace("KIND", "delta")
    (tmp_path / "spec.yaml").write_text(spec)
    report = forebay.run(
        tmp_path / "spec.yaml", {"data": tmp_path / "table", "out": tmp_path / "out"}, state=tmp_path / "state"
    )
    assert report["outputs"][0]["rows"] == expected.num_rows
    written = deltalake.DeltaTable(str(tmp_path / "out"))
    assert sorted(written.to_pyarrow_table()["id"].to_pylist()) == expected["id"].to_pylist()
    deltalake.write_deltalake(str(tmp_path / "out"), written.to_pyarrow_table().slice(0, 10), mode="append")
    assert forebay.dataset(tmp_path / "out").to_pyarrow().num_rows == expected.num_rows + 10


def test_a_dataset_stays_what_it_was(tmp_path: pathlib.Path) -> None:
    output = Output(tmp_path, str(tmp_path / "out"), "parquet")
    before = forebay.dataset(output.out)
    output.run()
    assert sorted(before.to_pyarrow()["id"].to_pylist()) == output.first
    assert before.column_names == ["id", "day", "price", "item", "bought", "half"]
    assert all(pathlib.Path(file).is_file() for file in before.files)
    with pytest.raises(forebay.Fault) as fault:
        forebay.dataset(tmp_path / "nowhere")
    assert fault.value.code == "FB0402"
