"""The operator with a stub: exit codes, the summary, assets, and what happens when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred
from conftest import Stub, running, wait_for

from forebay_airflow.process import Run


def test_done(operator: Callable[..., Any], context: dict[str, Any], stub: Stub, capsys: Any, tmp_path: Path) -> None:
    features = Asset("file:///features")
    summary = operator(interval="auto", state="st", outlets=[features]).execute(context)
    assert summary["artifact"] == "a1"
    assert (
        stub.calls()[0]["argv"]
        == (
            "run demand.yaml --json --interval 2016-05-21T00:00:00Z 2016-05-22T00:00:00Z "
            "--run-id nightly.features.scheduled__2016-05-21 --state st --signal-nothing-new --signal-ladder"
        ).split()
    )
    assert context["outlet_events"][features].extra == {
        "pipeline": "demand",
        "artifact": "a1",
        "artifact_path": "st/artifacts/a1",
        "rows": {"table": 7},
    }
    log = "".join(capsys.readouterr())
    assert "demand: 10 rows, 2.0 kB in 2 spans" in log
    assert "said on standard error" in log
    assert list((tmp_path / "r").iterdir()) == []


def test_a_run_on_a_cluster(operator: Callable[..., Any], context: dict[str, Any], stub: Stub) -> None:
    operator(on="ray://head:10001?workers=16&threads=4").execute(context)
    words = stub.calls()[0]["argv"]
    assert words[words.index("--on") + 1] == "ray://head:10001?workers=16&threads=4"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (64, AirflowFailException, "the command line is wrong"),
        (65, AirflowFailException, "FB0201: no file matches `x` (x)\nhint: look again"),
        (70, AirflowException, "exit code 70"),
        (75, AirflowException, "to be tried again"),
        (78, AirflowFailException, "the spec is at fault"),
        (99, AirflowSkipException, "nothing is new"),
        (1, AirflowException, "exit code 1"),
        (137, AirflowException, "SIGKILL"),
    ],
)
def test_exit_codes(
    operator: Callable[..., Any], context: dict[str, Any], code: int, kind: type[Exception], text: str
) -> None:
    with pytest.raises(AirflowException) as caught:
        operator(code).execute(context)
    assert type(caught.value) is kind
    assert text in str(caught.value)


def test_a_degraded_run_is_done_and_says_how(
    operator: Callable[..., Any], context: dict[str, Any], capsys: Any
) -> None:
    forecast = Asset("file:///forecast")
    summary = operator(98, outlets=[forecast]).execute(context)
    assert summary["ladder"]["rungs"] == ["last_model", "naive"]
    assert context["outlet_events"][forecast].extra["rows"] == {"forecast": 70}
    log = "".join(capsys.readouterr())
    assert "the run degraded to be on time: naive" in log
    assert "demand: no artifact; 70 forecasts to out/f; to be on time: last_model, naive" in log


def test_without_a_summary_standard_error_tells(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="said on standard error"):
        operator(64, env={"STUB_MUTE": "1"}).execute(context)


def test_an_unknown_program(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    task = operator()
    task.forebay = "/nowhere/forebay"
    with pytest.raises(AirflowException, match="is not a program on this worker"):
        task.execute(context)


def test_a_run_without_an_interval(operator: Callable[..., Any], context: dict[str, Any], stub: Stub) -> None:
    context["data_interval_end"] = context["data_interval_start"]
    operator(interval="auto").execute(context)
    assert "--interval" not in stub.calls()[0]["argv"]


@pytest.mark.parametrize("hang", ["1", "deaf"])
def test_a_killed_task_leaves_no_process(
    operator: Callable[..., Any], context: dict[str, Any], stub: Stub, hang: str
) -> None:
    task = operator(env={"STUB_HANG": hang}, grace_s=0.5)
    killer = threading.Thread(target=lambda: (stub.up(), task.on_kill()))
    killer.start()
    with pytest.raises(AirflowException, match="SIGKILL" if hang == "deaf" else "SIGTERM"):
        task.execute(context)
    killer.join()
    assert not running(stub.calls()[0]["pid"])
    task.env = stub.env()
    del task.hook
    assert task.execute(context)["artifact"] == "a1"


TASK = """
import os, sys
from forebay_airflow.process import Run
run = Run({directory!r})
run.start([{stub!r}, "run"], dict(os.environ), grace_s=0.5, detached={detached})
while True:
    run.exit_code()
"""


def abandoned(stub: Stub, directory: Path, detached: bool) -> int:
    """Starts a run in a process of its own, and kills that process as a machine out of memory would."""
    text = TASK.format(directory=str(directory), stub=str(stub.path), detached=detached)
    task = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, **stub.env(STUB_HANG="1")})
    pid = stub.up()
    task.send_signal(signal.SIGKILL)
    task.wait()
    return pid


def test_a_task_that_vanishes_takes_its_run_along(stub: Stub, tmp_path: Path) -> None:
    pid = abandoned(stub, tmp_path / "run", detached=False)
    wait_for("the run to end", lambda: not running(pid))
    assert wait_for("its exit code", Run(tmp_path / "run").exit_code) == 128 + signal.SIGTERM


def test_the_next_attempt_stops_what_is_left(stub: Stub, tmp_path: Path) -> None:
    pid = abandoned(stub, tmp_path / "run", detached=True)
    assert running(pid)
    run = Run(tmp_path / "run")
    keeper = run.start([str(stub.path), "run"], {**os.environ, **stub.env()})
    assert not running(pid)
    keeper.wait(60)
    assert run.exit_code() == 0


def test_a_lost_keeper(operator: Callable[..., Any], context: dict[str, Any], stub: Stub, tmp_path: Path) -> None:
    """A keeper that is killed takes its run along, and the attempt fails."""

    def kill() -> None:
        parent = int(Path(f"/proc/{stub.up()}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException, match="the run is lost"):
        operator(env={"STUB_HANG": "1"}).execute(context)
    killer.join()
    wait_for("the run to end", lambda: not running(stub.calls()[0]["pid"]))


def test_deferrable(operator: Callable[..., Any], context: dict[str, Any], stub: Stub) -> None:
    task = operator(deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    directory = deferred.value.trigger.directory
    wait_for("the exit code", lambda: Run(directory).exit_code() is not None)
    assert task.execute_complete(context, {"directory": directory, "exit_code": 0})["artifact"] == "a1"
    assert not Path(directory).exists()


def test_a_run_that_takes_too_long_while_deferred(
    operator: Callable[..., Any], context: dict[str, Any], stub: Stub
) -> None:
    task = operator(deferrable=True, execution_timeout=timedelta(seconds=0.1), env={"STUB_HANG": "1"})
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    directory = deferred.value.trigger.directory
    assert wait_for("the run to be stopped", Run(directory).exit_code) == 128 + signal.SIGTERM
    assert not running(stub.calls()[0]["pid"])


def test_a_deferred_run_that_nobody_watches(stub: Stub, tmp_path: Path) -> None:
    """As when a task is marked before a triggerer took its trigger: Airflow notifies no process."""
    run = Run(tmp_path / "run")
    env = {**os.environ, **stub.env(STUB_HANG="1")}
    run.start([str(stub.path), "run"], env, grace_s=5, detached=True, unwatched_s=0.5)
    assert wait_for("the run to be stopped", run.exit_code) == 128 + signal.SIGTERM
    assert not running(stub.calls()[0]["pid"])


def test_a_stale_heartbeat_means_lost(tmp_path: Path) -> None:
    beat = tmp_path / "heartbeat"
    beat.touch()
    assert Run(tmp_path).alive()
    os.utime(beat, (time.time() - 1000,) * 2)
    assert not Run(tmp_path).alive()
