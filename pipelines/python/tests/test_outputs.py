"""Outputs on a local disk, as other tools read them: each row once, by any pattern, also after a second run."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import ROWS, SPEC, table

import forebay


def by_duckdb(pattern: str) -> list[int]:
    return [row[0] for row in duckdb.sql(f"SELECT id FROM read_parquet('{pattern}') ORDER BY id").fetchall()]


READERS = {
    "pyarrow": lambda out: pyarrow.dataset.dataset(out).to_table()["id"].to_pylist(),
    "pandas": lambda out: pandas.read_parquet(out)["id"].to_list(),
    "polars": lambda out: polars.read_parquet(out)["id"].to_list(),
    "polars, recursive": lambda out: polars.read_parquet(out / "**/*.parquet")["id"].to_list(),
    "polars, from above": lambda out: polars.read_parquet(out.parent / "**/*.parquet")["id"].to_list(),
    "duckdb": lambda out: by_duckdb(f"{out}/*.parquet"),
    "duckdb, recursive": lambda out: by_duckdb(f"{out}/**/*.parquet"),
    "duckdb, from above": lambda out: by_duckdb(f"{out.parent}/**/*.parquet"),
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output that two runs have written: the second found other rows."""
    root = tmp_path_factory.mktemp("outputs")
    (root / "spec.yaml").write_text(SPEC)
    (root / "data").mkdir()
    out = root / "out" / "features"
    rows = table(ROWS)
    for number, part in enumerate([rows.slice(0, ROWS // 2), rows.slice(ROWS // 2)]):
        pyarrow.parquet.write_table(part, root / "data" / f"{number}.parquet")
        forebay.run(root / "spec.yaml", {"data": root / "data", "out": out}, state=root / "state")
    return out


@pytest.mark.parametrize("reader", READERS)
def test_each_row_is_read_once(outputs: Path, reader: str) -> None:
    assert sorted(READERS[reader](outputs)) == list(range(ROWS))


def test_readers_see_nothing_but_files_of_rows(outputs: Path) -> None:
    names = [path.name for path in outputs.rglob("*")]
    # Spark and Hive pass over names that begin with these.
    assert names and all(name.endswith(".parquet") and not name.startswith(("_", ".")) for name in names)
