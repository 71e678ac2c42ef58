"""Pipelines written in Python: the same as specs, and what can be done with them."""

from __future__ import annotations

import pathlib
from datetime import date, timedelta
from typing import Any

import pytest
from conftest import ROWS, Shop

import forebay
from forebay import sinks, sources
from forebay import transforms as t


def written(shop: Shop, out: pathlib.Path, **more: Any) -> forebay.Pipeline:
    """The pipeline of `conftest.SPEC`, in Python."""
    return forebay.Pipeline(
        "shop",
        sources={"shop": sources.parquet(str(shop.root / "data"))},
        steps={
            "features": {
                "from": "shop",
                "fit_on": "train",
                "do": [t.standardize(["price"]), t.vocabulary(["item"], min_count=1, oov_buckets=1)],
            }
        },
        split={"train": "day < 80", "validation": "day >= 80"},
        sinks={"table": sinks.parquet(str(out), from_="features", group_rows_max=256)},
        feed={"dense": ["price", "id"], "label": "bought", "window_rows": 1500, "batch_rows": 128, "last": "short"},
        **more,
    )


def test_python_and_yaml_have_the_same_ids(shop: Shop, tmp_path: pathlib.Path) -> None:
    """What the spec has learned and written is found again, and nothing is left to do."""
    pipeline = written(shop, shop.root / "out")
    summary = pipeline.run(state=shop.state)
    assert summary["nothing_new"] is True and summary["artifact_path"] == shop.artifact
    # Its YAML is a spec that says the same.
    spec = tmp_path / "again.yaml"
    spec.write_text(pipeline.to_yaml())
    assert forebay.Pipeline.open(spec).fit(state=shop.state)["artifact"] == summary["artifact"]
    batch = next(iter(pipeline.loader(state=shop.state, format="numpy", order="sequential")))
    assert batch["dense"].shape == (128, 2)


def test_options_of_another_tool(shop: Shop, tmp_path: pathlib.Path) -> None:
    """`compat` sets the options that give the numbers of a tool."""

    def artifact(step: Any, **more: Any) -> Any:
        pipeline = forebay.Pipeline(
            "shop",
            sources={"shop": sources.parquet(str(shop.root / "data"))},
            steps={"features": {"from": "shop", "do": [step]}},
            sinks={"table": sinks.parquet(str(tmp_path / "out"), from_="features")},
            **more,
        )
        return pipeline.fit(state=str(tmp_path / "state"))["artifact"]

    spelled_out = t.standardize(["price"], ddof=1, zero_variance="zero")
    assert artifact(t.standardize(["price"]), compat="spark") == artifact(spelled_out)
    assert artifact(t.standardize(["price"])) != artifact(spelled_out)


def test_a_pipeline_is_written_as_people_write_it() -> None:
    pipeline = forebay.Pipeline(
        "demand",
        params={"history": {"type": "path", "default": "data"}},
        sources={"demand": sources.csv("${history}/*.csv", time="date", keys=["store", "item"])},
        steps={
            "features": {
                "from": "demand",
                "do": [
                    t.filter("qty IS NOT NULL"),
                    t.lag(["qty"], by=["7d", 28]),
                    t.join(with_="demand", on=["item"]),
                    t.derive({"double": "qty * 2"}),
                ],
            },
            "few": {"sql": "SELECT 1 AS yes", "optional": True},
        },
        sinks={"table": sinks.csv("out", from_="features")},
    )
    assert (
        pipeline.to_yaml()
        == """\
version: 1
name: demand
params:
  history: { type: path, default: data }
sources:
  demand: { time: date, keys: [store, item], csv: { path: "${history}/*.csv" } }
steps:
  features:
    from: demand
    do:
      - filter: "qty IS NOT NULL"
      - lag: { columns: [qty], by: ["7d", 28] }
      - join: { with: demand, on: [item] }
      - derive: { double: "qty * 2" }
  few: { sql: "SELECT 1 AS yes", optional: true }
sinks:
  table: { from: features, csv: { path: out } }
"""
    )


def test_a_preview_is_arrow_polars_and_pandas(shop: Shop, tmp_path: pathlib.Path) -> None:
    pipeline = written(shop, tmp_path / "out")
    rows = pipeline.preview("features", rows=30, where="id >= 10", state=tmp_path / "state")
    assert len(rows) == 30 and rows.column_names == ["id", "day", "price", "item", "bought"]
    expected = list(range(10, 40))
    assert rows.to_pyarrow()["id"].to_pylist() == expected
    assert rows.to_polars()["id"].to_list() == expected
    assert rows.to_pandas()["id"].to_list() == expected
    lines = repr(rows).splitlines()
    assert lines[0].split() == rows.column_names and lines[-1] == "of 30 in all"
    assert rows._repr_html_().count("<tr>") == 1 + 20
    # The source itself, as it is.
    assert pipeline.preview("shop", rows=3).to_pyarrow()["item"].to_pylist()[0].startswith("item-")
    assert not (tmp_path / "state").exists() and not (tmp_path / "out").exists()


def test_an_explanation_is_text_and_a_plan(shop: Shop, tmp_path: pathlib.Path) -> None:
    explained = written(shop, tmp_path / "out").explain(state=tmp_path / "state")
    assert str(explained).startswith("shop: 2 passes") and "\x1b" not in str(explained)
    assert [one["reused"] for one in explained.plan["passes"]] == [False, False]
    assert "<pre>shop: 2 passes" in explained._repr_html_()
    assert not (tmp_path / "out").exists()


def test_problems_point_at_the_pipeline(shop: Shop, tmp_path: pathlib.Path) -> None:
    pipeline = written(shop, tmp_path / "out")
    assert pipeline.check(state=tmp_path / "state") == []
    broken = forebay.Pipeline(
        "shop",
        sources={"shop": sources.parquet(str(shop.root / "data"))},
        steps={"features": {"from": "shop", "do": [t.standardize(["prise"]), t.lag(["qty"], by=["1d"])]}},
        sinks={"table": sinks.parquet(str(tmp_path / "out"), from_="features")},
    )
    with pytest.raises(forebay.SpecFault) as fault:
        broken.check()
    text = str(fault.value)
    assert "there is no column `prise` here" in text and "did you mean `price`?" in text
    assert "--> pipeline shop:" in text and "- standardize: { columns: [prise] }" in text


def test_an_interval_a_deadline_and_workers(shop: Shop, tmp_path: pathlib.Path) -> None:
    """As on the command line."""
    import pyarrow
    import pyarrow.parquet

    days = [date(2016, 5, 1) + timedelta(days=number % 10) for number in range(100)]
    table = pyarrow.table({"date": sorted(days), "qty": list(range(100))})
    pyarrow.parquet.write_table(table, tmp_path / "days.parquet")

    def to(out: str) -> forebay.Pipeline:
        return forebay.Pipeline(
            "days",
            sources={"days": sources.parquet(str(tmp_path / "days.parquet"), time="date")},
            steps={"kept": {"from": "days", "do": [t.filter("qty >= 0")]}},
            sinks={"table": sinks.parquet(str(tmp_path / out), from_="kept")},
        )

    pipeline = to("out")
    options: dict[str, Any] = {"state": tmp_path / "state", "memory": "4GiB", "threads": 2}
    summary = pipeline.run(interval=(date(2016, 5, 3), "2016-05-05"), deadline=timedelta(hours=1), **options)
    assert summary["outputs"][0]["rows"] == 20
    assert summary["interval"] == {"from": "2016-05-03", "to": "2016-05-05"}
    assert summary["deadline"]["on_time"] is True
    assert sorted(set(forebay.dataset(tmp_path / "out").to_pyarrow()["date"].to_pylist())) == sorted(set(days))[2:4]
    with pytest.raises(forebay.SpecFault, match="soon"):
        pipeline.run(interval=("soon", "2016-05-05"), **options)
    # Worker processes are started by the interpreter that runs this.
    more = to("other").run(local_workers=1, **options)
    assert more["outputs"][0]["rows"] == 100


def test_a_backfill(shop: Shop, tmp_path: pathlib.Path) -> None:
    """What is there is skipped, and what is told is that of the command line."""
    import pyarrow
    import pyarrow.parquet

    days = [date(2016, 5, 1) + timedelta(days=number // 10) for number in range(100)]
    pyarrow.parquet.write_table(pyarrow.table({"date": days, "qty": list(range(100))}), tmp_path / "days.parquet")
    pipeline = forebay.Pipeline(
        "days",
        sources={"days": sources.parquet(str(tmp_path / "days.parquet"), time="date")},
        steps={"kept": {"from": "days", "do": [t.filter("qty >= 0")]}},
        sinks={"table": sinks.parquet(str(tmp_path / "out"), from_="kept")},
    )
    options: dict[str, Any] = {"state": tmp_path / "state", "memory": "4GiB", "threads": 2}
    pipeline.run(interval=("2016-05-03", "2016-05-05"), **options)
    told: list[str] = []
    summary = pipeline.backfill(
        date(2016, 5, 1), "2016-05-09", every="2d", progress=lambda event: told.append(event["event"]), **options
    )
    assert summary["pipeline"] == "days" and summary["nothing_new"] is False
    assert [(one["from"], one["to"], one["skipped"], one["rows"]) for one in summary["intervals"]] == [
        ("2016-05-01", "2016-05-03", False, 20),
        ("2016-05-03", "2016-05-05", True, 0),
        ("2016-05-05", "2016-05-07", False, 20),
        ("2016-05-07", "2016-05-09", False, 20),
    ]
    assert "pass_done" in told
    assert ">there already</td>" in summary._repr_html_()
    assert len(forebay.dataset(tmp_path / "out").to_pyarrow()) == 80
    assert forebay.backfill(pipeline, "2016-05-01", "2016-05-09", every="2d", **options)["nothing_new"] is True
    for wrong in [
        {"every": "1 fortnight"},
        {"beside": 0},
        {"end": "soon"},
        {"end": "2016-05-01"},
        {"every": 3},
        {"deadline": 5},
    ]:
        with pytest.raises(forebay.SpecFault):
            pipeline.backfill(**{"start": "2016-05-01", "end": "2016-05-09", **options, **wrong})


def test_predictions(shop: Shop, tmp_path: pathlib.Path) -> None:
    pipeline = forebay.Pipeline(
        "model",
        sources={"shop": sources.parquet(str(shop.root / "data"))},
        steps={"features": {"from": "shop", "do": [t.standardize(["price"])]}},
        sinks={
            "net": sinks.train(
                str(tmp_path / "net"), from_="features", model="linear", label="bought", dense=["price"], epochs=1
            )
        },
    )
    summary = pipeline.run(state=tmp_path / "state", threads=2)
    assert summary["models"][0]["sink"] == "net"
    scored = forebay.predict(
        tmp_path / "net",
        {"shop": shop.root / "data"},
        tmp_path / "scores",
        columns=["id"],
        name="odds",
        minimum=0,
        maximum=1,
        state=tmp_path / "state",
    )
    assert scored["outputs"][0]["rows"] == ROWS
    odds = forebay.dataset(tmp_path / "scores").to_pyarrow()
    assert odds.column_names == ["id", "odds"]
    assert all(0 <= value <= 1 for value in odds["odds"].to_pylist())
    with pytest.raises(forebay.SpecFault, match="no source `stop`"):
        forebay.predict(tmp_path / "net", {"stop": "x"}, tmp_path / "scores", state=tmp_path / "state")


def test_notebooks_show_tables(shop: Shop) -> None:
    pipeline = written(shop, shop.root / "out")
    page = pipeline._repr_html_()
    assert '<td style="text-align:left">standardize, vocabulary</td>' in page and "<summary>YAML</summary>" in page
    assert str(shop.spec) in forebay.Pipeline.open(shop.spec)._repr_html_()
    summary = pipeline.run(state=shop.state)
    assert "nothing new" in summary._repr_html_() and f"<td>{ROWS:,}</td>" in summary._repr_html_()
    artifact = forebay.load(shop.artifact)
    assert artifact.id in artifact._repr_html_() and '<td style="text-align:left">item</td>' in artifact._repr_html_()
    odd = forebay.Pipeline("odd", sources={"a": sources.csv("<b>&")})
    assert "&lt;b&gt;&amp;" in odd._repr_html_() and "<b>&" not in odd._repr_html_()


def test_a_frame_needs_no_name_and_shows_six_digits(tmp_path: pathlib.Path) -> None:
    rows = [{"price": 2 / 3}, {"price": 1.0}]
    pipeline = forebay.Pipeline(sources={"a": rows}, steps={"s": {"from": "a", "do": []}})
    text = repr(pipeline.collect("s", state=tmp_path / "state"))
    assert "0.666667" in text and "0.6666666" not in text
