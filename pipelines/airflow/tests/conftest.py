"""Tests run against a real Airflow with SQLite in a home of their own, and a stub or the real forebay."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
REPOSITORY = PACKAGE.parent.parent

# Airflow reads its home when it is imported, which happens after this file.
AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="forebay-airflow-test-"))
os.environ.update(
    AIRFLOW_HOME=str(AIRFLOW_HOME),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{AIRFLOW_HOME}/airflow.db",
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False",
    PYTHONPATH=os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
)

#: Seconds after which whatever is waited for is given up.
WAIT_S_MAX = 120.0


def pytest_unconfigure() -> None:
    """Takes the home away."""
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything has to be there, a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("FOREBAY_REQUIRE") == "1" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def wait_for(what: str, done: Callable[[], Any], seconds: float = WAIT_S_MAX) -> Any:
    """Polls until `done` gives something, or fails."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := done():
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s in vain: {what}")


def running(pid: int) -> bool:
    """Whether a process lives; one that is dead and not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture(scope="session")
def forebay() -> str:
    """The real program; tests that need it are skipped where it is not built."""
    binary = os.environ.get("FOREBAY_BIN") or str(REPOSITORY / "target" / "debug" / "forebay")
    if not Path(binary).is_file():
        pytest.skip(f"no forebay at {binary}: build it, or name it in FOREBAY_BIN")
    return binary


@pytest.fixture(scope="session")
def lacks(forebay: str) -> list[str]:
    """The options of this package that the real program does not know."""
    said = subprocess.run([forebay, "run", "--help"], capture_output=True, text=True, check=True).stdout
    return [flag for flag in ("--interval", "--signal-nothing-new") if flag not in said]


@pytest.fixture(scope="session")
def demand(forebay: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated demand."""
    data = tmp_path_factory.mktemp("demand") / "data"
    subprocess.run([forebay, "generate", "demand", "--days", "60", "--series", "300", "--out", str(data)], check=True)
    return data


@pytest.fixture(scope="session")
def airflow() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The `airflow` command, with its database ready."""

    def call(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    done = call("db", "migrate")
    assert done.returncode == 0, done.stdout + done.stderr
    return call


STUB = """#!{python}
import json, os, signal, sys, time
say = lambda **event: print(json.dumps(event), flush=True)
if "--version" in sys.argv:
    print("forebay 0.1.0"); sys.exit()
if sys.argv[1] == "doctor":
    print("version  0.1.0"); print("state    st; " + os.environ.get("STUB_STATE", "can be read and written"))
    sys.exit(75 if "STUB_STATE" in os.environ else 0)
open(os.environ["STUB_LOG"], "a").write(json.dumps({{"pid": os.getpid(), "argv": sys.argv[1:]}}) + "\\n")
if sys.argv[1] == "show":
    look = json.loads(os.environ["STUB_SHOW"])
    looks = len(open(os.environ["STUB_LOG"]).readlines())
    at = look["committed_at"][min(looks, len(look["committed_at"])) - 1]
    if at is None:
        fault = dict(code=look.get("fault", "FB0402"), message="no artifact")
        say(event="summary", status="failed", version=1, fault=fault); sys.exit(65)
    say(event="summary", status="done", version=1, pipeline="demand", artifact="a1",
        artifact_path="s3://lake/st/artifacts/a1", committed_at=at)
    sys.exit()
say(event="discovered", source="demand", spans=2, rows=10, bytes=2048, version=1)
if os.environ.get("STUB_HANG"):
    if os.environ["STUB_HANG"] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(os.environ["STUB_LOG"] + ".up", "w")
    while True:
        time.sleep(0.1)
code = int(os.environ.get("STUB_EXIT", "0"))
if "STUB_SUMMARY" in os.environ:
    say(**dict(event="summary", status="done", version=1) | json.loads(os.environ["STUB_SUMMARY"]))
elif code == 0:
    say(event="summary", status="done", version=1, pipeline="demand", artifact="a1", artifact_path="st/artifacts/a1",
        outputs=[dict(sink="table", path="out", data="out/_data/1", rows=7, files=1, bytes=99)], nothing_new=False)
elif code == 98:
    say(event="summary", status="done", version=1, pipeline="demand", artifact=None, artifact_path=None, outputs=[],
        forecasts=[dict(sink="forecast", path="out/f", rows=70)], nothing_new=False,
        ladder=dict(rungs=["last_model", "naive"], skipped=["table", "net"]))
elif code != 99 and not os.environ.get("STUB_MUTE"):
    say(event="summary", status="failed", version=1, fault=dict(code="FB0201", domain="data",
        message="no file matches `x`", hint="look again", file="x", exit_code=code))
print("said on standard error", file=sys.stderr)
sys.exit(code)
"""


class Stub:
    """A program that stands in for forebay and notes how it was called."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "forebay"
        self.log = directory / "calls.jsonl"
        self.path.write_text(STUB.format(python=sys.executable))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def env(self, **more: str) -> dict[str, str]:
        """Variables for the process."""
        return {"STUB_LOG": str(self.log), **more}

    def calls(self) -> list[dict[str, Any]]:
        """Each call's pid and words."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def up(self) -> int:
        """Waits until the process hangs; gives its pid."""
        wait_for("the stub to come up", Path(f"{self.log}.up").exists)
        return self.calls()[-1]["pid"]


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """A fresh stub."""
    return Stub(tmp_path)


@pytest.fixture
def operator(stub: Stub, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes operators that run the stub; of `forebay run`, unless told otherwise."""
    from forebay_airflow.operators import ForebayRunOperator

    def make(exit_code: int = 0, env: dict[str, str] | None = None, kind: Any = None, **kwargs: Any) -> Any:
        kwargs = {"poll_s": 0.05, "run_directory": str(tmp_path / "r")} | kwargs
        if kind is None:
            kwargs = {"spec": "demand.yaml", "interval": None} | kwargs
        env = stub.env(STUB_EXIT=str(exit_code), **(env or {}))
        return (kind or ForebayRunOperator)(task_id="features", forebay=str(stub.path), env=env, **kwargs)

    yield make


class OutletEvents(dict):
    """Stands in for the runner's accessor of outlet events."""

    def __missing__(self, key: Any) -> SimpleNamespace:
        self[key] = SimpleNamespace(extra={})
        return self[key]


@pytest.fixture
def context() -> dict[str, Any]:
    """What Airflow's runner gives to a task."""
    day = datetime(2016, 5, 21, tzinfo=timezone.utc)
    ti = SimpleNamespace(dag_id="nightly", task_id="features", map_index=-1, try_number=1)
    return {
        "ti": ti,
        "run_id": "scheduled__2016-05-21",
        "data_interval_start": day,
        "data_interval_end": day.replace(day=22),
        "outlet_events": OutletEvents(),
    }
