"""A DAG of its own through `airflow dags test`: mapped tasks, links, a degraded run, and OpenLineage's provider."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import AIRFLOW_HOME, Stub

DAG = """
from airflow.sdk import DAG
from forebay_airflow.operators import ForebayRunOperator

with DAG("mapped", schedule=None):
    ForebayRunOperator.partial(
        task_id="features", spec="demand.yaml", forebay={stub!r}, run_directory={runs!r}, interval=None, poll_s=0.1,
        cwd={cwd!r}, report="page.html", deferrable={deferrable},
    ).expand(parameters=[{{"category": "a"}}, {{"category": "b"}}])
"""


@pytest.fixture
def mapped(airflow: Callable[..., Any], stub: Stub, tmp_path: Path) -> Callable[..., Any]:
    """Runs the DAG once."""

    def run(deferrable: bool = False, **env: str) -> Any:
        dags = tmp_path / "dags"
        dags.mkdir()
        runs = str(tmp_path / "runs")
        text = DAG.format(stub=str(stub.path), runs=runs, cwd=str(tmp_path), deferrable=deferrable)
        (dags / "mapped.py").write_text(text)
        done = airflow("dags", "test", "mapped", env={"AIRFLOW__CORE__DAGS_FOLDER": str(dags), **stub.env(**env)})
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
        return done

    return run


def xcoms(key: str) -> list[Any]:
    """What the mapped tasks of the newest DAG run told under a key, by their index."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as base:
        rows = base.execute(
            "select cast(value as text) from xcom where task_id = 'features' and key = ? "
            "and run_id = (select run_id from dag_run order by id desc limit 1) order by map_index",
            (key,),
        )
        return [json.loads(value) for (value,) in rows.fetchall()]


@pytest.mark.parametrize("deferrable", [False, True])
def test_mapped_tasks(mapped: Callable[..., Any], stub: Stub, tmp_path: Path, deferrable: bool) -> None:
    """Each has its own parameters, run and directory, and its own links."""
    mapped(deferrable)
    words = [" ".join(call["argv"]) for call in stub.calls()]
    assert len(words) == 2
    for index, category in enumerate("ab"):
        (line,) = [line for line in words if f"category={category}" in line]
        assert f"--run-id mapped.features.{index}.manual__" in line
    assert [summary["artifact"] for summary in xcoms("return_value")] == ["a1", "a1"]
    assert xcoms("_link_ForebayArtifactLink") == [f"file://{tmp_path}/st/artifacts/a1"] * 2
    assert xcoms("_link_ForebayReportLink") == [f"file://{tmp_path}/page.html"] * 2


def test_a_degraded_run_is_in_the_log_and_in_the_xcom(mapped: Callable[..., Any]) -> None:
    done = mapped(STUB_EXIT="98")
    assert "the run degraded to be on time: naive (exit code 98)" in done.stdout + done.stderr
    assert [summary["ladder"]["rungs"] for summary in xcoms("return_value")] == [["last_model", "naive"]] * 2


def test_lineage_through_the_provider_of_airflow(mapped: Callable[..., Any], tmp_path: Path) -> None:
    """The provider asks the operator; nothing but its own configuration is needed. No service takes part."""
    pytest.importorskip("airflow.providers.openlineage", reason="the OpenLineage provider is not installed")
    origin = {"source": "demand", "column": "qty"}
    column = {"name": "qty_lag_7d", "type": "Int32", "from": [origin]}
    output = {"sink": "table", "path": "out", "rows": 7, "files": 1, "bytes": 99, "columns": [column]}
    lines = tmp_path / "lineage.jsonl"
    transport = {"type": "file", "log_file_path": str(lines), "append": True}
    mapped(
        STUB_SUMMARY=json.dumps({"pipeline": "demand", "artifact": "a1", "outputs": [output]}),
        AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps(transport),
        AIRFLOW__OPENLINEAGE__NAMESPACE="tests",
    )
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    complete = [body for body in told if body["eventType"] == "COMPLETE" and body["job"]["name"] == "mapped.features"]
    assert len(complete) == 2
    for body in complete:
        (read,), (written,) = body["inputs"], body["outputs"]
        assert (read["namespace"], read["name"]) == ("forebay", "demand")
        assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "out"))
        assert written["facets"]["schema"]["fields"][0]["name"] == "qty_lag_7d"
        (found,) = written["facets"]["columnLineage"]["fields"]["qty_lag_7d"]["inputFields"]
        assert (found["namespace"], found["name"], found["field"]) == ("forebay", "demand", "qty")
        assert written["outputFacets"]["outputStatistics"]["rowCount"] == 7
