"""The hook and the sensor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from conftest import Stub

from forebay_airflow import get_provider_info
from forebay_airflow.hook import ForebayHook
from forebay_airflow.sensor import ForebayArtifactSensor

COMMITTED = datetime(2016, 5, 22, 3, tzinfo=timezone.utc)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with one artifact of `demand`, committed at three in the morning."""
    pointer = tmp_path / "state" / "artifacts" / "demand.json"
    pointer.parent.mkdir(parents=True)
    pointer.write_text(json.dumps({"format": 1, "artifact": "a1"}))
    os.utime(pointer, (COMMITTED.timestamp(),) * 2)
    return tmp_path / "state"


def test_the_version(stub: Stub) -> None:
    hook = ForebayHook(forebay=str(stub.path))
    assert hook.version == (0, 1, 0)
    hook.check_version()


def test_a_version_that_is_too_old(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay_airflow.hook.VERSION_MIN", (7, 0, 0))
    with pytest.raises(AirflowException, match=r"is version 0\.1\.0; this package needs 7\.0\.0 or later"):
        ForebayHook(forebay=str(stub.path)).check_version()


def test_a_connection(stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extra = {"forebay": str(stub.path), "state": "st", "env": {"AWS_REGION": "eu", "A": "1"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": extra}))
    hook = ForebayHook("lake", env={"A": "2"})
    assert (hook.forebay, hook.state) == (str(stub.path), "st")
    assert (hook.env["AWS_REGION"], hook.env["A"], "PATH" in hook.env) == ("eu", "2", True)


def test_the_sensor_finds_the_newest_artifact(state: Path, context: dict[str, Any]) -> None:
    done = ForebayArtifactSensor(task_id="s", pipeline="demand", state=str(state)).poke(context)
    found = {"artifact": "a1", "path": str(state / "artifacts" / "a1"), "committed_at": COMMITTED.isoformat()}
    assert (done.is_done, done.xcom_value) == (True, found)


@pytest.mark.parametrize(
    ("pipeline", "newer_than", "expect"),
    [
        ("demand", "interval", True),
        ("demand", "2016-05-22T03:00:00+00:00", True),
        ("demand", "2016-05-22T03:00:01+00:00", False),
        ("other", None, False),
    ],
)
def test_the_sensor_waits(
    state: Path, context: dict[str, Any], pipeline: str, newer_than: str | None, expect: bool
) -> None:
    sensor = ForebayArtifactSensor(task_id="s", pipeline=pipeline, state=str(state), newer_than=newer_than)
    assert sensor.poke(context).is_done is expect


@pytest.mark.parametrize(
    "kwargs", [{}, {"pipeline": "a", "artifact": "b"}, {"artifact": "b", "newer_than": "interval"}]
)
def test_the_sensor_refuses_what_has_no_meaning(kwargs: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"name either|goes with"):
        ForebayArtifactSensor(task_id="s", **kwargs)


def test_an_artifact_by_its_path(forebay: str, tmp_path: Path, context: dict[str, Any]) -> None:
    sensor = ForebayArtifactSensor(task_id="s", artifact=str(tmp_path / "nothing"), forebay=forebay)
    assert sensor.poke(context).is_done is False


def test_airflow_knows_the_provider(airflow: Callable[..., Any]) -> None:
    """The package is installed as a provider: Airflow lists it and its connection type."""
    listed = json.loads(airflow("providers", "list", "--output", "json").stdout)
    if not any(row["package_name"] == "forebay-airflow" for row in listed):
        pytest.skip("forebay-airflow is not installed in this environment")
    hooks = json.loads(airflow("providers", "hooks", "--output", "json").stdout)
    assert any(row["connection_type"] == "forebay" for row in hooks)


def test_provider_info_has_the_shape_that_airflow_asks_for() -> None:
    import airflow
    from jsonschema import validate

    schema = Path(airflow.__file__).with_name("provider_info.schema.json")
    validate(get_provider_info(), json.loads(schema.read_text()))
