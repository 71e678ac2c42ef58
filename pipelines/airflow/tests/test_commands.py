"""Operators of the other commands, links, and intervals without rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from conftest import Stub

from forebay_airflow.links import ForebayArtifactLink, ForebayReportLink, browsable
from forebay_airflow.operators import (
    ForebayApplyOperator,
    ForebayBackfillOperator,
    ForebayPredictOperator,
    ForebayRunOperator,
)

RUN_ID = "--run-id nightly.features.scheduled__2016-05-21"


@pytest.mark.parametrize(
    ("kind", "arguments", "expect"),
    [
        (
            ForebayBackfillOperator,
            {
                "spec": "demand.yaml",
                "start": datetime(2016, 5, 1, tzinfo=timezone.utc),
                "end": "2016-05-22T00:00:00+00:00",
                "every": "1w",
                "beside": 2,
                "parameters": {"strict": True},
                "on": "slurm?nodes=4",
                "deadline": "45m",
            },
            "backfill demand.yaml --json --param strict=true --from 2016-05-01T00:00:00 --to 2016-05-22T00:00:00 "
            f"--every 1w --beside 2 {RUN_ID} --state st --on slurm?nodes=4 --deadline 45m",
        ),
        (
            ForebayApplyOperator,
            {
                "artifact": "st/artifacts/a1",
                "sources": {"demand": "new/*.parquet"},
                "output_path": "o",
                "sink": "table",
                "rows_from": "2016-05-22",
                "whole_history": True,
            },
            "apply st/artifacts/a1 --json --source demand=new/*.parquet --output o --sink table "
            f"--rows-from 2016-05-22 --whole-history {RUN_ID} --state st",
        ),
        (
            ForebayPredictOperator,
            {
                "model": "out/net",
                "sources": {"a": "x", "b": "y"},
                "output_path": "o",
                "format": "csv",
                "columns": ["item", "date"],
                "split": "future",
                "name": "qty",
                "minimum": 0,
                "allow_empty": True,
            },
            "predict out/net --json --source a=x --source b=y --output o --format csv --columns item,date "
            f"--split future --name qty --min 0 --allow-empty {RUN_ID} --state st",
        ),
    ],
)
def test_the_command_line(
    operator: Callable[..., Any],
    context: dict[str, Any],
    stub: Stub,
    kind: Any,
    arguments: dict[str, Any],
    expect: str,
) -> None:
    assert operator(kind=kind, state="st", **arguments).execute(context)["status"] == "done"
    assert stub.calls()[0]["argv"] == expect.split()


@pytest.mark.parametrize("kind", [ForebayApplyOperator, ForebayBackfillOperator, ForebayPredictOperator])
def test_each_argument_that_the_docs_call_templated_is_one(kind: Any) -> None:
    text = kind.__doc__
    names = [line.split(":")[1].removeprefix("param ") for line in text.splitlines() if ":param" in line]
    last = next(word for word in names if f"down to `{word}`" in text)
    assert list(kind.template_fields[: names.index(last) + 1]) == names[: names.index(last) + 1]


def test_a_backfill_with_nothing_to_do_is_skipped(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    day = {"from": "2016-05-21", "to": "2016-05-22", "skipped": True, "rows": 0}
    env = {"STUB_SUMMARY": json.dumps({"nothing_new": True, "intervals": [day]})}
    arguments = {"kind": ForebayBackfillOperator, "env": env, "spec": "s", "start": "2016-05-21", "end": "2016-05-22"}
    with pytest.raises(AirflowSkipException, match="all intervals were there"):
        operator(**arguments).execute(context)
    assert operator(signal_nothing_new=False, **arguments).execute(context)["intervals"] == [day]


def empty(rows: int, **more: Any) -> dict[str, str]:
    """A run of an interval that wrote so many rows."""
    interval = {"from": "2016-05-21T00:00:00Z", "to": "2016-05-22T00:00:00Z"}
    outputs = [{"sink": "table", "path": "out", "rows": rows, "files": 0, "bytes": 0}]
    summary = {"pipeline": "demand", "artifact": "a1", "interval": interval, "outputs": outputs, "nothing_new": False}
    return {"STUB_SUMMARY": json.dumps(summary | more)}


def test_an_interval_without_a_row(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    """Not green with 0 rows, unless asked."""
    with pytest.raises(AirflowSkipException, match=r"no sink has a row of the interval 2016-05-21T00:00:00Z \.\. "):
        operator(env=empty(0)).execute(context)
    with pytest.raises(AirflowException, match="the data may be late") as caught:
        operator(env=empty(0), empty_interval="fail").execute(context)
    # Airflow retries it.
    assert type(caught.value) is AirflowException
    assert operator(env=empty(0), empty_interval="accept").execute(context)["outputs"][0]["rows"] == 0


@pytest.mark.parametrize(
    "env",
    [
        empty(1),
        empty(0, interval=None),
        empty(0, forecasts=[{"sink": "f", "path": "f", "rows": 5}]),
        empty(0, outputs=[]),
    ],
)
def test_what_counts_as_an_interval_with_rows(
    operator: Callable[..., Any], context: dict[str, Any], env: dict[str, str]
) -> None:
    assert operator(env=env).execute(context)["pipeline"] == "demand"


def test_another_word_for_an_empty_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="one of skip, fail, accept"):
        ForebayRunOperator(task_id="features", spec="s", empty_interval="ignore")


def test_links(operator: Callable[..., Any], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"browse_url": "https://files.example/{path}"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": extra}))
    task = operator(report="pages/a b.html", cwd="/srv", forebay_conn_id="lake")
    artifact, report = (link() for link in (ForebayArtifactLink, ForebayReportLink))
    assert artifact.get_link(task, ti_key=None) == ""
    monkeypatch.setattr(task, "cwd", "/")
    task.execute(context)
    assert artifact.get_link(task, ti_key=None) == "https://files.example/st/artifacts/a1"
    assert report.get_link(task, ti_key=None) == "https://files.example/pages/a%20b.html"


def test_a_run_that_failed_has_no_report(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    task = operator(65, report="page.html")
    with pytest.raises(AirflowException):
        task.execute(context)
    assert task.links == {}


@pytest.mark.parametrize(
    ("place", "template", "expect"),
    [
        ("/srv/st/artifacts/a 1", None, "file:///srv/st/artifacts/a%201"),
        ("s3://lake/st/a1", None, "https://console.aws.amazon.com/s3/buckets/lake?prefix=st/a1/"),
        ("gs://lake/st/a1", None, "https://console.cloud.google.com/storage/browser/lake/st/a1/"),
        ("https://pages.example/1.html", None, "https://pages.example/1.html"),
        ("s3://lake/st/a1", "https://browse.example/?at={path}", "https://browse.example/?at=s3%3A//lake/st/a1"),
    ],
)
def test_where_a_browser_shows_a_place(place: str, template: str | None, expect: str) -> None:
    assert browsable(place, template) == expect


def test_what_a_connection_says_of_the_machine(
    operator: Callable[..., Any], context: dict[str, Any], stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"state": "s3://lake/st", "memory": "4GiB", "threads": 3}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": extra}))
    operator(forebay_conn_id="lake", memory="1GiB").execute(context)
    words = " ".join(stub.calls()[0]["argv"])
    assert "--state s3://lake/st --memory 1GiB --threads 3" in words
