"""Forecasts of series from Python: the bits of the published forecast."""

from __future__ import annotations

import concurrent.futures
import datetime
import pathlib

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import forebay

DAYS = 40
STEPS = 3
ITEMS = ["a", "b", "c"]

SPEC = """
version: 1
name: sales
params:
  data: { type: path }
  plans: { type: path }
  out: { type: path }
sources:
  sales: { parquet: { path: "${data}" }, time: day, keys: [item] }
  plans: { parquet: { path: "${plans}" }, time: day, keys: [item] }
steps:
  features:
    from: sales
    do:
      - future_rows: { horizon: 3d, every: 1d }
      - as_of_join: { with: plans, columns: [price], tolerance: 0d }
      - lag: { columns: [qty], by: [1d, 7d] }
label: { column: qty, horizon: 3d, known: [price] }
serving: { from: features }
sinks:
  trees:
    from: features
    train:
      { path: "${out}/trees", model: gbdt, strategy: per_step, rounds: 4, leaves: 4, min_leaf_rows: 2,
        categorical: [], dense: [qty_lag_1d, qty_lag_7d, price] }
  forecast: { from: features, predict: { model: trees, path: "${out}/forecast", min: 0 } }
"""


def sold(first: int, days: int) -> pyarrow.Table:
    """Sales of some days."""
    rows = [(day, item) for day in range(first, first + days) for item in range(len(ITEMS))]
    start = datetime.date(2024, 1, 1)
    return pyarrow.table(
        {
            "day": pyarrow.array([start + datetime.timedelta(days=day) for day, _ in rows], pyarrow.date32()),
            "item": [ITEMS[item] for _, item in rows],
            "qty": [float((day * (item + 3) + item) % 7) for day, item in rows],
        }
    )


def planned(first: int, days: int, price: float | None = None) -> pyarrow.Table:
    """Plans of some days."""
    rows = sold(first, days)
    prices = [float(quantity) if price is None else price for quantity in rows["qty"].to_pylist()]
    return rows.drop(["qty"]).append_column("price", pyarrow.array(prices))


class Night:
    """A run that has published a forecast."""

    def __init__(self, root: pathlib.Path) -> None:
        (root / "data").mkdir()
        pyarrow.parquet.write_table(sold(0, DAYS), root / "data" / "0.parquet")
        pyarrow.parquet.write_table(planned(0, DAYS + STEPS), root / "plans.parquet")
        (root / "sales.yaml").write_text(SPEC)
        self.state = root / "state"
        self.trees = root / "out" / "trees"
        self.forecast = root / "out" / "forecast"
        params = {"data": root / "data", "plans": root / "plans.parquet", "out": root / "out"}
        forebay.run(root / "sales.yaml", params, state=self.state)

    def model(self) -> forebay.Model:
        return forebay.Model(self.trees, self.state, minimum=0)


@pytest.fixture
def night(tmp_path: pathlib.Path) -> Night:
    return Night(tmp_path)


def test_forecasts_are_those_that_the_run_has_published(night: Night) -> None:
    model = night.model()
    assert model.keys == ["item"]
    assert set(model.facts) == {"day", "item", "qty"}
    published = pyarrow.parquet.read_table(night.forecast)
    assert model.outputs == published.column_names
    forecast = model.forecast(pyarrow.table({"item": ITEMS}))
    assert isinstance(forecast, pyarrow.Table)
    assert forecast.to_pylist() == published.to_pylist()
    # Of some series, in the order of the forecast.
    some = model.forecast(pyarrow.table({"item": ["c", "a", "c"]}))
    assert some.to_pylist() == [row for row in published.to_pylist() if row["item"] != "b"]
    by_series = model.forecast_by_series(pyarrow.table({"item": ["c", "a"]})).to_pylist()
    for row, item in zip(by_series, ["c", "a"], strict=True):
        expected = [row for row in published.to_pylist() if row["item"] == item]
        assert row["item"] == item
        assert row["prediction"] == [step["prediction"] for step in expected]
        assert row["step"] == list(range(1, STEPS + 1))


def test_frames_are_answered_with_frames(night: Night) -> None:
    model = night.model()
    expected = model.forecast(pyarrow.table({"item": ["b"]})).to_pylist()
    of_pandas = model.forecast(pandas.DataFrame({"item": ["b"]}))
    assert isinstance(of_pandas, pandas.DataFrame)
    assert of_pandas["prediction"].tolist() == [row["prediction"] for row in expected]
    of_polars = model.forecast(polars.DataFrame({"item": ["b"]}))
    assert isinstance(of_polars, polars.DataFrame)
    assert of_polars.to_dicts() == expected
    nothing = model.forecast(pyarrow.table({"item": pyarrow.array([], pyarrow.string())}))
    assert (nothing.num_rows, nothing.column_names) == (0, model.outputs)


def test_facts_move_forecasts(night: Night) -> None:
    model = night.model()
    series = pyarrow.table({"item": ITEMS})
    before = model.forecast(series).to_pylist()
    assert model.append(sold(DAYS, 1)) == len(ITEMS)
    # The last day of the horizon has no plan in the table.
    assert model.values == ["day", "price"]
    with pytest.raises(forebay.Fault, match=r"`price` is known in advance.* of 2024-02-13"):
        model.forecast(series)
    series = planned(DAYS + 1, STEPS)
    after = model.forecast(series).to_pylist()
    assert after[0]["day"] == before[0]["day"] + datetime.timedelta(days=1)
    assert model.state is not None and model.state["as_of"] == "2024-02-10"
    # Another process goes on, and threads share a model.
    again = night.model()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: again.forecast(series).to_pylist(), range(8)))
    assert all(answer == after for answer in answers)


def test_what_cannot_be_forecast_is_named(night: Night, tmp_path: pathlib.Path) -> None:
    model = night.model()
    with pytest.raises(forebay.Fault, match="`item` z") as unknown:
        model.forecast(pyarrow.table({"item": ["a", "z"]}))
    assert (unknown.value.code, unknown.value.rows) == ("FB0217", [1])
    with pytest.raises(forebay.Fault, match="no column `item`"):
        model.forecast(pyarrow.table({"store": ["a"]}))
    with pytest.raises(forebay.Fault, match="no serving state of `features`"):
        forebay.Model(night.trees, tmp_path / "elsewhere")
    with pytest.raises(forebay.SpecFault, match="minimum"):
        forebay.Model(night.trees, night.state, minimum=float("nan"))
