"""Tables that a program holds as sources of pipelines, and the rows of a step as a table."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import forebay
from forebay import sinks, sources
from forebay import transforms as t

PRICES = [1.0, 3.0, None, 9.0]
DAYS = ["2016-01-01", "2016-01-02", "2016-01-03", "2016-01-04"]


def arrow_table() -> pyarrow.Table:
    days = pyarrow.array(DAYS).cast(pyarrow.date32())
    return pyarrow.table({"day": days, "item": ["a", "b", "a", "b"], "price": PRICES})


def stream() -> pyarrow.RecordBatchReader:
    return arrow_table().to_reader(max_chunksize=1)


def mappings() -> list[dict[str, Any]]:
    """Rows of which the first lacks a field of the others."""
    rows = arrow_table().to_pylist()
    rows[2].pop("price")
    return rows


def relation() -> duckdb.DuckDBPyRelation:
    return duckdb.from_arrow(arrow_table())


FORMS: dict[str, Callable[[], Any]] = {
    "pyarrow": arrow_table,
    "pandas": lambda: arrow_table().to_pandas(types_mapper=pandas.ArrowDtype),
    "polars": lambda: polars.DataFrame(arrow_table()),
    "duckdb": relation,
    "stream": stream,
    "mappings": mappings,
}


def pipeline(rows: Any, out: pathlib.Path) -> forebay.Pipeline:
    return forebay.Pipeline(
        "frames",
        sources={"rows": forebay.table(rows, time="day", keys=["item"])},
        steps={
            "features": {
                "from": "rows",
                "do": [t.impute(["price"], with_="mean"), t.lag(["price"], by=["2d"])],
            }
        },
        sinks={"table": sinks.parquet(str(out), from_="features")},
    )


EXPECTED = {"price": [1.0, 3.0, 13 / 3, 9.0], "price_lag_2d": [None, None, 1.0, 3.0]}


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The state directory of a program that names none lies where it works."""
    monkeypatch.chdir(tmp_path)
    yield


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_a_source(form: str, tmp_path: pathlib.Path) -> None:
    made = pipeline(FORMS[form](), tmp_path / "out")
    assert not (tmp_path / ".forebay").exists(), "nothing is read before the pipeline is used"
    assert made.check() == []
    summary = made.run(progress=False)
    written = forebay.dataset(tmp_path / "out").to_pyarrow()
    assert {name: written.column(name).to_pylist() for name in EXPECTED} == {
        "price": pytest.approx(EXPECTED["price"]),
        "price_lag_2d": EXPECTED["price_lag_2d"],
    }
    assert summary["outputs"][0]["rows"] == 4
    # What was learned from the same rows is there already.
    assert made.run(progress=False)["nothing_new"]


def test_equal_tables_are_one_file(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        pipeline(arrow_table(), tmp_path / "out").run(progress=False)
    assert len(list((tmp_path / ".forebay" / "tables").iterdir())) == 1


def test_a_frame_that_was_changed_is_read_anew(tmp_path: pathlib.Path) -> None:
    frame = arrow_table().to_pandas()
    made = pipeline(frame, tmp_path / "out")
    made.run(progress=False)
    frame.loc[2, "price"] = 5.0
    assert not made.run(progress=False)["nothing_new"]
    assert forebay.dataset(tmp_path / "out").to_pandas()["price"].tolist() == [1.0, 3.0, 5.0, 9.0]


def test_a_table_that_was_collected_is_kept_again(tmp_path: pathlib.Path) -> None:
    made = pipeline(arrow_table(), tmp_path / "out")
    made.run(progress=False)
    [kept] = (tmp_path / ".forebay" / "tables").iterdir()
    kept.unlink()
    assert made.check() == []


def test_a_table_needs_no_time(tmp_path: pathlib.Path) -> None:
    made = forebay.Pipeline(
        "plain",
        sources={"rows": arrow_table(), "names": [{"item": "a", "name": "apple"}]},
        steps={"named": {"from": "rows", "do": [t.join(with_="names", on=["item"])]}},
        sinks={"table": sinks.parquet(str(tmp_path / "out"), from_="named")},
    )
    assert made.collect("named").to_pyarrow()["name"].to_pylist() == ["apple", None, "apple", None]


def test_the_rows_of_a_step_are_collected(tmp_path: pathlib.Path) -> None:
    made = pipeline(arrow_table(), tmp_path / "out")
    rows = made.collect("features").to_pyarrow()
    assert rows.column("price").to_pylist() == pytest.approx(EXPECTED["price"])
    assert not (tmp_path / "out").exists()
    assert made.collect("rows").to_polars().height == 4
    with pytest.raises(forebay.SpecFault, match="no step or source `feature`"):
        made.collect("feature")


def test_a_spec_of_a_table_runs_elsewhere(tmp_path: pathlib.Path) -> None:
    spec = tmp_path / "frames.yaml"
    spec.write_text(pipeline(arrow_table(), tmp_path / "out").to_yaml())
    assert forebay.run(spec, progress=False)["outputs"][0]["rows"] == 4


def test_tables_are_shown_without_being_written(tmp_path: pathlib.Path) -> None:
    shown = pipeline(arrow_table(), tmp_path / "out")._repr_html_()
    assert "(Table)" in shown
    assert not (tmp_path / ".forebay").exists()


@pytest.mark.parametrize("rows", [7, "data/*.parquet", [1, 2], object()])
def test_what_is_no_table_is_a_fault(rows: Any) -> None:
    with pytest.raises(forebay.SpecFault, match="not a source"):
        forebay.table(rows)


def test_a_failing_stream_is_a_fault(tmp_path: pathlib.Path) -> None:
    def batches() -> Iterator[pyarrow.RecordBatch]:
        yield arrow_table().to_batches()[0]
        raise ValueError("the connection was lost")

    reader = pyarrow.RecordBatchReader.from_batches(arrow_table().schema, batches())
    with pytest.raises(forebay.Fault, match="the table cannot be read"):
        pipeline(reader, tmp_path / "out").run(progress=False)
    assert not (tmp_path / "out").exists()


def test_files_and_tables_are_sources_together(tmp_path: pathlib.Path) -> None:
    pyarrow.parquet.write_table(arrow_table(), tmp_path / "rows.parquet")
    made = forebay.Pipeline(
        "mixed",
        sources={"rows": sources.parquet("rows.parquet"), "more": polars.DataFrame(arrow_table())},
        steps={"all": {"union": ["rows", "more"]}},
        sinks={"table": sinks.parquet(str(tmp_path / "out"), from_="all")},
    )
    assert made.run(progress=False)["outputs"][0]["rows"] == 8


def test_a_path_is_answered_with_its_format() -> None:
    with pytest.raises(forebay.SpecFault, match=r"`sources.rows` is 'rows.csv'") as fault:
        forebay.Pipeline("p", sources={"rows": "rows.csv"})
    assert "forebay.sources.csv('rows.csv')" in (fault.value.hint or "")


def test_columns_that_arrow_cannot_hold_are_faults(tmp_path: pathlib.Path) -> None:
    periods = pandas.DataFrame({"month": pandas.period_range("2024-01", periods=2, freq="M")})
    mixed = pandas.DataFrame({"x": [1, "a", None]})
    twice = pandas.DataFrame([[1, 2]], columns=["x", "x"])
    for frame, words in [(periods, "`month` holds periods"), (mixed, "cannot be read"), (twice, "cannot be read")]:
        with pytest.raises(forebay.SpecFault, match=words):
            pipeline(frame, tmp_path / "out").run(progress=False, state=tmp_path / "state")
