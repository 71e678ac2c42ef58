"""`airflow dags test` of the example, with the real forebay over generated demand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import AIRFLOW_HOME, PACKAGE, REPOSITORY, Stub

#: The generated history ends the day before.
NIGHT = "2016-05-23"


def states() -> dict[str, str]:
    """The state of each task of the newest DAG run."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as base:
        rows = base.execute(
            "select task_id, state from task_instance "
            "where run_id = (select run_id from dag_run order by id desc limit 1)"
        )
        return dict(rows.fetchall())


def xcom(task: str) -> Any:
    """What a task of the newest DAG run returned."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as base:
        rows = base.execute(
            "select cast(value as text) from xcom where key = 'return_value' and task_id = ? "
            "and run_id = (select run_id from dag_run order by id desc limit 1)",
            (task,),
        )
        return json.loads(rows.fetchone()[0])


@pytest.fixture
def night(airflow: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Runs the example for one night."""

    def run(
        program: str, history: Path, lacks: list[str], dag: str = "demand_nightly", date: str = NIGHT, **env: str
    ) -> Any:
        places = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(PACKAGE / "examples"),
            "DEMAND_SPEC": str(REPOSITORY / "pipelines" / "specs" / "demand.yaml"),
            "DEMAND_HISTORY": str(history),
            "DEMAND_OUT": str(tmp_path / "out"),
            "DEMAND_STATE": str(tmp_path / "state"),
            "DEMAND_LINEAGE": (tmp_path / "lineage.jsonl").as_uri(),
            "DEMAND_WITHOUT": " ".join(lacks),
            "FOREBAY_BIN": program,
        }
        return airflow("dags", "test", dag, date, env={**places, **env})

    return run


@pytest.mark.parametrize("deferrable", ["no", "yes"])
def test_a_night(
    night: Callable[..., Any], forebay: str, lacks: list[str], demand: Path, tmp_path: Path, deferrable: str
) -> None:
    """Features are written, the sensor finds the artifact, the summary reaches the next task, lineage is told."""
    done = night(forebay, demand, lacks, DEMAND_DEFERRABLE=deferrable)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert states() == {"features": "success", "published": "success", "report": "success"}
    summary = xcom("features")
    pointer = json.loads((tmp_path / "state" / "artifacts" / "demand.json").read_text())
    assert summary["artifact"] == pointer["artifact"]
    assert xcom("report") == summary["outputs"][0]["rows"] > 0
    assert "pass 1 of 3: learn 9 statistics" in done.stdout + done.stderr
    start, complete = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert [read["name"] for read in complete["inputs"]] == [str(demand)]
    (written,) = complete["outputs"]
    assert written["name"] == str(tmp_path / "out")
    assert {"name": "qty_lag_7d", "type": "Int32"} in written["facets"]["schema"]["fields"]
    (origin,) = written["facets"]["columnLineage"]["fields"]["qty_lag_7d"]["inputFields"]
    assert (origin["name"], origin["field"]) == (str(demand), "qty")


def test_data_that_are_missing(night: Callable[..., Any], forebay: str, lacks: list[str], tmp_path: Path) -> None:
    """Exit code 65 fails the task for good although it has retries left, and tells the fault."""
    done = night(forebay, tmp_path / "missing", lacks)
    assert states() == {"features": "failed", "published": "upstream_failed", "report": "upstream_failed"}
    assert "FB0201: no file matches" in done.stdout + done.stderr


def test_nothing_new(night: Callable[..., Any], stub: Stub, tmp_path: Path) -> None:
    """Exit code 99 skips the task and what follows; the interval of the run is on the command line."""
    done = night(str(stub.path), tmp_path, [], **stub.env(STUB_EXIT="99"))
    assert states() == {"features": "skipped", "published": "skipped", "report": "skipped"}, done.stdout[-4000:]
    words = stub.calls()[0]["argv"]
    at = words.index("--interval")
    assert words[at + 1 : at + 3] == ["2016-05-22T00:00:00Z", "2016-05-23T00:00:00Z"]
    assert "as_of=2016-05-22" in words


def test_a_run_by_hand_gets_the_last_whole_day(night: Callable[..., Any], stub: Stub, tmp_path: Path) -> None:
    night(str(stub.path), tmp_path, [], date="2016-05-23T10:30:00+00:00", **stub.env(STUB_EXIT="99"))
    words = stub.calls()[0]["argv"]
    at = words.index("--interval")
    assert words[at + 1 : at + 3] == ["2016-05-22T00:00:00Z", "2016-05-23T00:00:00Z"]


def test_nothing_new_of_the_real_program(
    night: Callable[..., Any], forebay: str, lacks: list[str], demand: Path
) -> None:
    """The same night twice: the second finds nothing new."""
    if "--signal-nothing-new" in lacks:
        pytest.skip("this forebay does not know --signal-nothing-new")
    for expect in ("success", "skipped"):
        done = night(forebay, demand, lacks)
        assert states()["features"] == expect, done.stdout[-8000:] + done.stderr[-4000:]


def test_the_program_knows_all_options(lacks: list[str]) -> None:
    """Says what the tests above had to leave out."""
    if lacks:
        pytest.skip(f"this forebay does not know {' and '.join(lacks)}: nights ran without")


def test_in_a_shell(night: Callable[..., Any], forebay: str, lacks: list[str], demand: Path, stub: Stub) -> None:
    """The recipe with BashOperator: the summary is the XCom, and 99 skips."""
    done = night(forebay, demand, lacks, dag="demand_bash")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert xcom("features")["outputs"][0]["rows"] > 0
    night(str(stub.path), demand, [], dag="demand_bash", **stub.env(STUB_EXIT="99"))
    assert states() == {"features": "skipped"}
    assert "2016-05-22T00:00:00+00:00" in stub.calls()[0]["argv"]
