"""Outputs and tables as the tools that people use read them: on a disk and in a bucket, while a run replaces them, and
after a second run. Each read must give the rows of one run, all of them and no others."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import duckdb
import duckdb_extension_delta
import duckdb_extension_httpfs
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
from moto.server import ThreadedMotoServer

import forebay

BUCKET = "lake"

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}

SPEC = """
version: 1
name: readers
params:
  data: { type: path }
  out: { type: path }
sources:
  rows: { parquet: { path: "${data}" } }
sinks:
  table: { from: rows, FORMAT: { path: "${out}", partition_by: [shop], group_rows_max: 64 } }
"""

# Values of folders, which tools must decode.
SHOPS = ("shop 0", "größe", "a/b")

# The second run has more rows, and those of the first with other values.
ROWS = (300, 400)


def rows_of(run: int) -> pyarrow.Table:
    ids = range(ROWS[run])
    return pyarrow.table({"id": ids, "run": [run] * len(ids), "shop": [SHOPS[number % 3] for number in ids]})


def expected(run: int) -> list[tuple[int, int, str]]:
    return sorted(zip(*rows_of(run).to_pydict().values(), strict=True))


def plain(table: pyarrow.Table) -> list[tuple[int, int, str]]:
    columns = [table[name].to_pylist() for name in ("id", "run", "shop")]
    return sorted(zip(*columns, strict=True))


@dataclass
class Place:
    """Where outputs lie, and how tools reach it."""

    root: str
    endpoint: str = ""

    @property
    def options(self) -> dict[str, str]:
        if not self.endpoint:
            return {}
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
            **{key.lower(): value for key, value in KEYS.items()},
        }

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        if not self.endpoint:
            return pyarrow.fs.LocalFileSystem()
        return pyarrow.fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region=KEYS["AWS_REGION"],
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        )


@dataclass
class Output:
    """An output that runs write."""

    place: Place
    form: str
    work: Path
    path: str = field(init=False)

    def __post_init__(self) -> None:
        self.path = f"{self.place.root}/{self.form}"
        (self.work / "spec.yaml").write_text(SPEC.replace("FORMAT", self.form))

    def run(self, run: int) -> None:
        data = self.work / f"data-{run}"
        if not data.exists():
            data.mkdir()
            pyarrow.parquet.write_table(rows_of(run), data / "rows.parquet")
        state = self.work / "state"
        forebay.run(self.work / "spec.yaml", {"data": str(data), "out": self.path}, state=str(state))

    def files(self) -> list[str]:
        """The files of one result. In a bucket, a listing may show those of two."""
        files = forebay.dataset(self.path).files
        return [file.removeprefix("s3://") for file in files]


def dataset_of(output: Output) -> pyarrow.dataset.Dataset:
    """A dataset of pyarrow: over the directory on a disk, over the files of one result in a bucket."""
    source: Any = output.files() if output.place.endpoint else output.path
    filesystem = output.place.filesystem
    return pyarrow.dataset.dataset(source, filesystem=filesystem, format="parquet", partitioning="hive")


def parquet_by_pandas(output: Output) -> pyarrow.Table:
    if not output.place.endpoint:
        return pyarrow.Table.from_pandas(pandas.read_parquet(output.path))
    filesystem = output.place.filesystem
    parts = []
    for file in output.files():
        (value,) = re.findall("shop=([^/]+)/", file)
        parts.append(pandas.read_parquet(file, filesystem=filesystem).assign(shop=unquote(value)))
    return pyarrow.Table.from_pandas(pandas.concat(parts))


def parquet_by_polars(output: Output) -> pyarrow.Table:
    if not output.place.endpoint:
        return polars.read_parquet(f"{output.path}/**/*.parquet", hive_partitioning=True).to_arrow()
    files = [f"s3://{file}" for file in output.files()]
    scan = polars.scan_parquet(files, hive_partitioning=True, storage_options=output.place.options)
    return scan.collect().to_arrow()


def duckdb_for(place: Place) -> duckdb.DuckDBPyConnection:
    """DuckDB with its extensions for tables and object stores, which PyPI has for some of its versions."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for package in (duckdb_extension_httpfs, duckdb_extension_delta):
        (extension,) = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    if place.endpoint:
        connection.execute(
            f"""CREATE SECRET (
                TYPE s3, KEY_ID '{KEYS["AWS_ACCESS_KEY_ID"]}', SECRET '{KEYS["AWS_SECRET_ACCESS_KEY"]}',
                REGION '{KEYS["AWS_REGION"]}', ENDPOINT '{place.endpoint.removeprefix("http://")}',
                URL_STYLE 'path', USE_SSL false)"""
        )
    return connection


def parquet_by_duckdb(output: Output) -> pyarrow.Table:
    if output.place.endpoint:
        files = str([f"s3://{file}" for file in output.files()])
    else:
        files = f"'{output.path}/**/*.parquet'"
    query = f"SELECT * FROM read_parquet({files}, hive_partitioning = true)"
    return duckdb_for(output.place).sql(query).to_arrow_table()


def table_of(output: Output) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(output.path, storage_options=output.place.options)


def delta_by_duckdb(output: Output) -> pyarrow.Table:
    return duckdb_for(output.place).sql(f"SELECT * FROM delta_scan('{output.path}')").to_arrow_table()


def forebay_by_duckdb(output: Output) -> pyarrow.Table:
    rows = forebay.dataset(output.path)  # noqa: F841
    return duckdb.connect().sql("SELECT * FROM rows").to_arrow_table()


def delta_by_polars(output: Output) -> pyarrow.Table:
    return polars.read_delta(output.path, storage_options=output.place.options).to_arrow()


Reader = Callable[[Output], pyarrow.Table]

PARQUET: dict[str, Reader] = {
    "pyarrow": lambda output: dataset_of(output).to_table(),
    "pandas": parquet_by_pandas,
    "polars": parquet_by_polars,
    "duckdb": parquet_by_duckdb,
}

DELTA: dict[str, Reader] = {
    "deltalake": lambda output: pyarrow.table(table_of(output).to_pyarrow_table()),
    "pyarrow": lambda output: table_of(output).to_pyarrow_dataset().to_table(),
    "pandas": lambda output: pyarrow.Table.from_pandas(table_of(output).to_pandas()),
    "polars": delta_by_polars,
    "duckdb": delta_by_duckdb,
}

FOREBAY: dict[str, Reader] = {
    "forebay, pyarrow": lambda output: pyarrow.table(forebay.dataset(output.path)),
    "forebay, pandas": lambda output: pyarrow.Table.from_pandas(forebay.dataset(output.path).to_pandas()),
    "forebay, polars": lambda output: forebay.dataset(output.path).to_polars().to_arrow(),
    "forebay, duckdb": forebay_by_duckdb,
}

READERS: dict[str, dict[str, Reader]] = {"parquet": PARQUET | FOREBAY, "delta": DELTA | FOREBAY}

CASES = [(form, tool) for form, tools in READERS.items() for tool in tools]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that speaks S3, which Forebay finds by the environment."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    variables = {**KEYS, "AWS_ENDPOINT_URL": endpoint}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    Place(f"s3://{BUCKET}", endpoint).filesystem.create_dir(BUCKET)
    yield endpoint
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    server.stop()


@pytest.fixture(scope="module", params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    if request.param == "disk":
        return Place(str(tmp_path_factory.mktemp("disk")))
    return Place(f"s3://{BUCKET}/outputs", server)


@pytest.fixture(scope="module", params=["parquet", "delta"])
def replaced(request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """An output that two runs have written; each was read while the second ran."""
    output = Output(place, request.param, tmp_path_factory.mktemp("work"))
    output.run(0)
    readers = READERS[output.form]
    for tool, read in readers.items():
        assert plain(read(output)) == expected(0), tool
    second = threading.Thread(target=output.run, args=(1,))
    second.start()
    reads = 0
    while second.is_alive() or reads < len(readers):
        tool, read = list(readers.items())[reads % len(readers)]
        reads += 1
        try:
            rows = plain(read(output))
        except (OSError, duckdb.IOException, polars.exceptions.ComputeError) as error:
            # A reader that lists a directory just before it is replaced finds none of its files.
            assert output.form == "parquet" and not place.endpoint, f"{tool}: {error}"
            continue
        assert rows in (expected(0), expected(1)), f"{tool} reads rows of two results"
    second.join()
    return output


@pytest.mark.parametrize("tool", sorted({tool for _, tool in CASES}))
def test_each_tool_reads_the_second_result(replaced: Output, tool: str) -> None:
    read = READERS[replaced.form].get(tool)
    if read is not None:
        assert plain(read(replaced)) == expected(1)


def test_tables_of_deltalake_are_read_and_replaced(tmp_path: Path) -> None:
    """What deltalake writes, Forebay reads and replaces; it writes checkpoints as the table asks for, and either reads
    those of the other."""
    output = Output(Place(str(tmp_path)), "delta", tmp_path)
    deltalake.write_deltalake(output.path, rows_of(0), partition_by=["shop"])
    assert plain(forebay.dataset(output.path).to_pyarrow()) == expected(0)
    deltalake.DeltaTable(output.path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    log = Path(output.path) / "_delta_log"
    for run in (1, 0, 1):
        output.run(run)
        assert plain(table_of(output).to_pyarrow_table()) == expected(run)
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    # The first one is of deltalake.
    assert [int(file.name.split(".")[0]) for file in checkpoints] == [1, 3]
    # The commits before a checkpoint may go.
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    for tool, read in READERS["delta"].items():
        assert plain(read(output)) == expected(1), tool
    # A checkpoint of deltalake, and nothing before it.
    deltalake.write_deltalake(output.path, rows_of(0), mode="append")
    table_of(output).create_checkpoint()
    for file in log.glob("*.json"):
        if int(file.name.split(".")[0]) < table_of(output).version():
            file.unlink()
    for tool, read in READERS["delta"].items():
        assert plain(read(output)) == sorted(expected(0) + expected(1)), tool
    output.run(0)
    assert plain(table_of(output).to_pyarrow_table()) == expected(0)


def test_rows_that_deltalake_adds_are_kept(tmp_path: Path) -> None:
    """A table that both write: Forebay by runs that add rows, deltalake in between."""
    output = Output(Place(str(tmp_path)), "delta", tmp_path)
    spec = (tmp_path / "spec.yaml").read_text()
    (tmp_path / "spec.yaml").write_text(spec.replace("partition_by", "mode: append, partition_by"))
    output.run(0)
    deltalake.write_deltalake(output.path, rows_of(1), mode="append", partition_by=["shop"])
    output.run(1)
    assert plain(forebay.dataset(output.path).to_pyarrow()) == sorted(expected(0) + expected(1) * 2)
    assert plain(pyarrow.table(deltalake.DeltaTable(output.path).to_pyarrow_table())) == sorted(
        expected(0) + expected(1) * 2
    )
    # The same run again adds nothing.
    output.run(1)
    assert deltalake.DeltaTable(output.path).version() == 2
