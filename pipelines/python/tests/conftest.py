"""A small history with everything that a loader meets, fitted and written once."""

from __future__ import annotations

import os
import pathlib

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import forebay

ROWS = 5000

SPEC = """
version: 1
name: shop
params:
  data: { type: path }
  out: { type: path }
sources:
  shop: { parquet: { path: "${data}" } }
steps:
  features:
    from: shop
    fit_on: train
    do:
      - standardize: { columns: [price] }
      - vocabulary: { columns: [item], min_count: 1, oov_buckets: 1 }
split: { train: "day < 80", validation: "day >= 80" }
sinks:
  table: { from: features, parquet: { path: "${out}", group_rows_max: 256 } }
feed:
  dense: [price, id]
  label: bought
  window_rows: 1500
  batch_rows: 128
  last: short
"""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything has to be there, a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("FOREBAY_REQUIRE") == "1" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Shop:
    """Where everything is."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.spec = root / "shop.yaml"
        self.state = root / "state"
        self.params = {"data": root / "data", "out": root / "out"}
        self.artifact = ""

    def loader(self, **more: object) -> forebay.Loader:
        return forebay.Loader(self.spec, params=self.params, state=self.state, **more)  # type: ignore[arg-type]


def table(rows: int) -> pyarrow.Table:
    ids = numpy.arange(rows)
    rng = numpy.random.default_rng(7)
    return pyarrow.table(
        {
            "id": pyarrow.array(ids, pyarrow.int32()),
            "day": pyarrow.array(ids * 100 // rows, pyarrow.int32()),
            "price": rng.gamma(2.0, 3.0, rows),
            "item": [f"item-{number}" for number in rng.integers(0, 40, rows)],
            "bought": rng.integers(0, 2, rows).astype(numpy.float32),
        }
    )


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    (shop.root / "data").mkdir()
    pyarrow.parquet.write_table(table(ROWS), shop.root / "data" / "all.parquet", row_group_size=250)
    shop.spec.write_text(SPEC)
    report = forebay.run(shop.spec, shop.params, state=shop.state)
    assert report["outputs"][0]["rows"] == ROWS
    shop.artifact = report["artifact_path"]
    return shop
