"""Tasks that are killed, by a real scheduler, executor, triggerer and API server."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import AIRFLOW_HOME, Stub, running, wait_for

DAG = """
from datetime import timedelta
from pathlib import Path
from airflow.sdk import DAG
from forebay_airflow.operators import ForebayRunOperator

log = Path({log!r})
with DAG("killed", schedule=None):
    # Only the first attempt hangs.
    env = {{"STUB_LOG": str(log), "STUB_HANG": "{{{{ '1' if ti.try_number == 1 else '' }}}}"}}
    ForebayRunOperator(
        task_id="features", spec="demand.yaml", forebay={stub!r}, env=env, run_directory={runs!r},
        retries=1, retry_delay=timedelta(0), poll_s=0.1, grace_s=5, deferrable={deferrable},
    )
"""


class House:
    """A running Airflow with one DAG, `killed`."""

    def __init__(self, airflow: Callable[..., Any], url: str) -> None:
        self.airflow = airflow
        self.url = url

    def trigger(self, run_id: str) -> None:
        """Starts a DAG run."""
        done = self.airflow("dags", "trigger", "killed", "--run-id", run_id)
        assert done.returncode == 0, done.stdout + done.stderr

    def mark_failed(self, run_id: str) -> None:
        """What the button of the web page does."""
        with urllib.request.urlopen(f"{self.url}/auth/token", timeout=60) as answer:
            token = json.load(answer)["access_token"]
        request = urllib.request.Request(
            f"{self.url}/api/v2/dags/killed/dagRuns/{run_id}/taskInstances/features",
            b'{"new_state": "failed"}',
            {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200


@pytest.fixture
def house(airflow: Callable[..., Any], stub: Stub, tmp_path: Path, request: Any) -> Iterator[House]:
    """A scheduler with its local executor, a triggerer, and the API server that tasks speak to, on the loopback."""
    deferrable = getattr(request, "param", False)
    dags = tmp_path / "dags"
    dags.mkdir()
    text = DAG.format(log=str(stub.log), stub=str(stub.path), runs=str(tmp_path / "runs"), deferrable=deferrable)
    (dags / "killed.py").write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__FERNET_KEY": "",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_HOST": "127.0.0.1",
    }
    assert airflow("dags", "reserialize", env=env).returncode == 0
    server = ["api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    log = open(tmp_path / "airflow.log", "w+")  # noqa: SIM115
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "airflow", *words],
            env={**os.environ, **env},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for words in (server, ["scheduler"], *([["triggerer", "--skip-serve-logs"]] if deferrable else []))
    ]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/execution/health", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        wait_for("the API server", answers)
        yield House(lambda *words: airflow(*words, env=env), f"http://127.0.0.1:{port}")
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        print(log.read()[-20000:])
        log.close()


def attempt(run_id: str) -> tuple[str, int] | None:
    """State and number of the task's attempt."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db", timeout=60) as base:
        row = base.execute("select state, try_number from task_instance where run_id = ?", (run_id,)).fetchone()
        return row and (row[0], row[1])


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_and_retried(house: House, stub: Stub, number: signal.Signals) -> None:
    """The task's process is killed; its run is gone; the second attempt succeeds."""
    run_id = f"killed-by-{number.name}"
    house.trigger(run_id)
    pid = stub.up()
    keeper = parent(pid)
    os.kill(parent(keeper), number)
    wait_for("the run to end", lambda: not running(pid))
    assert wait_for("the retry", lambda: (state := attempt(run_id)) and state[0] == "success" and state) == (
        "success",
        2,
    )
    first, second = stub.calls()
    assert (first["pid"], running(first["pid"]), running(second["pid"])) == (pid, False, False)
    assert first["argv"] == second["argv"]
    wait_for("the keeper to end", lambda: not running(keeper))


@pytest.mark.parametrize("house", [False, True], ids=["running", "deferred"], indirect=True)
def test_marked_failed(house: House, stub: Stub, tmp_path: Path, request: Any) -> None:
    """A user marks the task: its run is stopped, whether the task is running or deferred."""
    run_id = f"marked-{request.node.callspec.id}"
    house.trigger(run_id)
    pid = stub.up()
    state = request.node.callspec.id
    wait_for(f"the task to be {state}", lambda: (now := attempt(run_id)) and now[0] == state)
    if state == "deferred":
        # Only a triggerer that has taken the trigger is told of what users do.
        (watched,) = wait_for("the run's directory", lambda: list(tmp_path.glob("runs/*/watched")))
        began = watched.stat().st_mtime_ns
        wait_for("the trigger", lambda: watched.stat().st_mtime_ns > began)
    house.mark_failed(run_id)
    wait_for("the run to end", lambda: not running(pid))
    assert attempt(run_id) == ("failed", 1)
