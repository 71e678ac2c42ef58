"""What a fit learned, applied from Python: the bits of the run."""

from __future__ import annotations

import ast
import datetime
import pathlib
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from conftest import ROWS, SPEC, Shop, table

import forebay


def test_tables_and_rows_get_what_the_run_wrote(shop: Shop) -> None:
    artifact = forebay.load(shop.artifact)
    assert set(artifact.inputs) == {"id", "day", "price", "item", "bought"}
    rows = table(ROWS)
    applied = pyarrow.table(artifact.apply(rows))
    written = pyarrow.parquet.read_table(shop.root / "out")
    assert applied.column_names == artifact.outputs
    for name in applied.column_names:
        assert applied[name].to_pylist() == written[name].to_pylist(), name
    one = artifact.apply_row(rows.slice(17, 1).to_pylist()[0])
    assert one["price"] == pytest.approx(written["price"][17].as_py(), rel=1e-15)
    assert one["item"] == written["item"][17].as_py()
    batch = rows.to_batches()[0].slice(3, 5)
    assert pyarrow.table(artifact.apply(batch))["id"].to_pylist() == [3, 4, 5, 6, 7]


def test_rows_to_be_predicted_need_no_label(shop: Shop) -> None:
    artifact = forebay.load(shop.artifact)
    # What steps use is asked for; what they hand on as it is, is not.
    assert artifact.optional_inputs == ["id", "day", "bought"]
    rows = table(50)
    whole = pyarrow.table(artifact.apply(rows))
    unlabelled = pyarrow.table(artifact.apply(rows.drop(["bought"])))
    assert unlabelled == whole.drop(["bought"])
    assert pyarrow.table(artifact.apply(rows.select(["item", "price"]))).column_names == ["price", "item"]
    row = rows.slice(3, 1).to_pylist()[0]
    expected = artifact.apply_row(row)
    del row["bought"]
    assert artifact.apply_row(row) == expected | {"bought": None}


def test_a_column_that_a_filter_or_an_expression_uses_is_asked_for(shop: Shop, tmp_path: pathlib.Path) -> None:
    spec = tmp_path / "spec.yaml"
    steps = '      - filter: "bought >= 0"\n      - derive: { later: "day + 1" }\n      - standardize'
    spec.write_text(SPEC.replace("      - standardize", steps))
    report = forebay.fit(spec, {**shop.params, "out": tmp_path / "out"}, state=tmp_path / "state")
    artifact = forebay.load(report["artifact_path"])
    assert artifact.optional_inputs == ["id"]
    for used in ["bought", "day"]:
        with pytest.raises(forebay.SpecFault, match=f"no column `{used}`"):
            artifact.apply(table(10).drop([used]))


def test_filters_for_learning_take_no_row_and_others_are_named(shop: Shop, tmp_path: pathlib.Path) -> None:
    spec = tmp_path / "spec.yaml"
    steps = (
        '      - filter: { sql: "bought IS NOT NULL", when: learning }\n'
        '      - filter: "price > 0"\n      - standardize'
    )
    spec.write_text(SPEC.replace("      - standardize", steps))
    report = forebay.fit(spec, {**shop.params, "out": tmp_path / "out"}, state=tmp_path / "state")
    artifact = forebay.load(report["artifact_path"])
    row = table(50).slice(3, 1).to_pylist()[0]
    unlabelled = {name: value for name, value in row.items() if name != "bought"}
    assert artifact.apply_row(unlabelled) == artifact.apply_row(row) | {"bought": None}
    with pytest.raises(forebay.DataFault, match="price > ") as taken:
        artifact.apply_row(row | {"price": -1.0})
    assert taken.value.code == "FB0218"


def test_columns_lead_back_to_those_of_the_source(shop: Shop, tmp_path: pathlib.Path) -> None:
    rows = table(ROWS)
    artifact = forebay.load(shop.artifact)
    made = pyarrow.table(artifact.apply(rows)).select(["item", "price", "id"])
    source = pyarrow.table(artifact.inverse(made))
    assert source.column_names == ["item", "price", "id"]
    assert source["id"].to_pylist() == rows["id"].to_pylist()
    assert source["price"].to_pylist() == pytest.approx(rows["price"].to_pylist(), abs=1e-12)
    # Ids that no category of the training rows has are those of none.
    known = set(rows.slice(0, ROWS * 4 // 5)["item"].to_pylist())
    expected = [item if item in known else None for item in rows["item"].to_pylist()]
    assert source["item"].to_pylist() == expected
    with pytest.raises(forebay.SpecFault, match="no column `prise`"):
        artifact.inverse(pyarrow.table({"prise": [1.0]}))
    spec = tmp_path / "spec.yaml"
    steps = "      - winsorize: { columns: [price] }\n      - log1p: { columns: [id], suffix: _log }\n"
    spec.write_text(SPEC.replace("      - standardize", f"{steps}      - standardize"))
    report = forebay.fit(spec, {**shop.params, "out": tmp_path / "out"}, state=tmp_path / "state")
    artifact = forebay.load(report["artifact_path"])
    few = pyarrow.table(artifact.apply(rows.slice(0, 5)))
    # Whole numbers are rounded to those that they were.
    assert pyarrow.table(artifact.inverse(few.select(["id_log"]))).to_pydict() == {"id": [0, 1, 2, 3, 4]}
    with pytest.raises(forebay.Fault, match="cannot be inverted: the step that makes `price` loses values"):
        artifact.inverse(few.select(["price"]))
    with pytest.raises(forebay.SpecFault, match="two columns are made of `id`"):
        artifact.inverse(few.select(["id", "id_log"]))


def test_what_cannot_be_applied_says_why(shop: Shop) -> None:
    artifact = forebay.load(shop.artifact)
    with pytest.raises(forebay.SpecFault, match="no column `price`"):
        artifact.apply(table(10).drop(["price"]))
    with pytest.raises(forebay.SpecFault, match="prise") as unknown:
        artifact.apply_row({"prise": 1.0, "item": "item-1"})
    assert unknown.value.hint == "did you mean `price`?"
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        artifact.apply([1, 2, 3])
    with pytest.raises(forebay.Fault, match="there is no artifact here"):
        forebay.load(shop.root)


def test_the_same_run_again_has_nothing_to_do(shop: Shop) -> None:
    again = forebay.run(shop.spec, shop.params, state=shop.state)
    assert again["nothing_new"] is True and again["artifact_path"] == shop.artifact
    assert forebay.fit(shop.spec, shop.params, state=shop.state)["artifact"] == again["artifact"]
    with pytest.raises(forebay.SpecFault) as fault:
        forebay.run(shop.spec, {"out": "x"}, state=shop.state)
    assert "data" in str(fault.value)


SALES = """
version: 1
name: sales
sources:
  sales: { parquet: { path: data }, time: day, keys: [item] }
steps:
  features: { from: sales, do: [{ lag: { columns: [qty], by: [1d, 3d] } }] }
serving: { from: features }
sinks:
  table: { from: features, parquet: { path: out } }
"""


def test_processes_share_the_states_of_series(tmp_path: pathlib.Path) -> None:
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=day) for day in range(10)]
    rows = pyarrow.table(
        {
            "day": [day for day in days for _ in range(20)],
            "item": [f"item-{number}" for _ in days for number in range(20)],
            "qty": [float(day * 20 + number) for day in range(10) for number in range(20)],
        }
    )
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(rows, tmp_path / "data" / "a.parquet")
    spec = SALES.replace("path: data", f"path: {tmp_path / 'data'}").replace("path: out", f"path: {tmp_path / 'out'}")
    (tmp_path / "spec.yaml").write_text(spec)
    artifact = forebay.run(tmp_path / "spec.yaml", state=tmp_path / "state")["artifact_path"]
    states = tmp_path / "states"
    asked = {"day": "2026-01-11", "item": "item-7", "qty": 0.0}
    expected = forebay.load(artifact).apply_row(asked)
    assert expected["qty_lag_1d"] == 187.0
    assert forebay.load(artifact, states=states).apply_row(asked) == expected
    files = sorted(file.stat().st_mtime_ns for file in states.iterdir())
    assert files
    # Another process maps the files of this one.
    code = f"import forebay; print(forebay.load({artifact!r}, states={str(states)!r}).apply_row({asked!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == expected
    assert sorted(file.stat().st_mtime_ns for file in states.iterdir()) == files
