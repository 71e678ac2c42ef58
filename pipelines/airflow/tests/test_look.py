"""The hook and the sensor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.module_loading import import_string
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from conftest import Stub

from forebay_airflow import CONNECTION_FIELDS, get_provider_info
from forebay_airflow.hook import ForebayHook
from forebay_airflow.sensor import ForebayArtifactSensor
from forebay_airflow.trigger import ForebayArtifactTrigger

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


@pytest.mark.parametrize(("env", "expect"), [('{"A": 1}', "1"), ({"A": 1}, "1")])
def test_the_environment_of_a_connection(monkeypatch: pytest.MonkeyPatch, env: Any, expect: str) -> None:
    """The form gives a map; connections from elsewhere may hold it as text."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": {"env": env}}))
    assert ForebayHook("lake").env["A"] == expect


def test_an_environment_that_is_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": {"env": "[1]"}}))
    with pytest.raises(AirflowException, match="is not a map of variables"):
        _ = ForebayHook("lake").env


@pytest.mark.parametrize(
    ("extra", "env", "expect"),
    [
        ({}, {}, (True, "forebay 0.1.0; no state directory is named")),
        ({"state": "st"}, {}, (True, "forebay 0.1.0; state st; can be read and written")),
        ({"state": "st"}, {"STUB_STATE": "cannot be used"}, (False, "forebay 0.1.0; state st; cannot be used")),
        ({"forebay": "/nowhere"}, {}, (False, "`/nowhere` is not a program on this worker")),
    ],
)
def test_the_test_of_a_connection(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], env: dict[str, str], expect: tuple[bool, str]
) -> None:
    """What the button of the web page calls."""
    extra = {"forebay": str(stub.path), "env": stub.env(**env)} | extra
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "forebay", "extra": extra}))
    passed, text = ForebayHook("lake").test_connection()
    assert (passed, text.splitlines()[0]) == expect


def test_the_test_of_a_connection_with_the_real_program(forebay: str, tmp_path: Path) -> None:
    passed, text = ForebayHook(forebay=forebay, state=str(tmp_path / "st")).test_connection()
    assert passed and text.endswith("can be read and written"), text
    (tmp_path / "file").touch()
    passed, text = ForebayHook(forebay=forebay, state=str(tmp_path / "file" / "st")).test_connection()
    assert not passed and "cannot be used" in text, text


def lake(stub: Stub, monkeypatch: pytest.MonkeyPatch, *committed_at: str | None, **more: str) -> dict[str, str]:
    """A state directory in a bucket, in which each look finds the next of these artifacts; arguments of a sensor."""
    show = json.dumps({"committed_at": committed_at, **more})
    for name, value in stub.env(STUB_SHOW=show).items():
        monkeypatch.setenv(name, value)
    return {"pipeline": "demand", "state": "s3://lake/st", "forebay": str(stub.path), "newer_than": "interval"}


BEFORE, AFTER = "2016-05-21T23:59:59.5Z", "2016-05-22T00:00:00Z"


def test_the_sensor_looks_into_a_bucket(stub: Stub, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]) -> None:
    sensor = ForebayArtifactSensor(task_id="s", **lake(stub, monkeypatch, None, BEFORE, AFTER))
    assert [bool(sensor.poke(context)) for _ in range(3)] == [False, False, True]
    assert stub.calls()[0]["argv"] == "show --json --pipeline demand --state s3://lake/st".split()


def test_a_store_that_is_away_fails_the_sensor(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]
) -> None:
    sensor = ForebayArtifactSensor(task_id="s", **lake(stub, monkeypatch, None, fault="FB0403"))
    with pytest.raises(AirflowException, match="forebay show --pipeline demand --state s3://lake/st"):
        sensor.poke(context)


def test_a_deferrable_sensor(stub: Stub, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]) -> None:
    """It looks once itself; its trigger, made again from what a triggerer stores, looks for the same."""
    arguments = lake(stub, monkeypatch, None, BEFORE, AFTER)
    sensor = ForebayArtifactSensor(task_id="s", deferrable=True, poke_interval=0.01, timeout=60, **arguments)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context)
    assert deferred.value.timeout == timedelta(seconds=60)
    path, kwargs = deferred.value.trigger.serialize()
    trigger = import_string(path)(**json.loads(json.dumps(kwargs)))
    (event,) = fired(trigger)
    found = {"artifact": "a1", "path": "s3://lake/st/artifacts/a1", "committed_at": "2016-05-22T00:00:00+00:00"}
    assert event == {"found": found}
    assert len(stub.calls()) == 3
    assert getattr(sensor, deferred.value.method_name)(context, event) == found


def test_a_deferrable_sensor_whose_artifact_is_there(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]
) -> None:
    sensor = ForebayArtifactSensor(task_id="s", deferrable=True, **lake(stub, monkeypatch, AFTER))
    assert sensor.execute(context)["artifact"] == "a1"


def test_a_trigger_that_cannot_look_fails_its_sensor(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]
) -> None:
    sensor = ForebayArtifactSensor(task_id="s", deferrable=True, **lake(stub, monkeypatch, None, fault="FB0403"))
    (event,) = fired(ForebayArtifactTrigger(sensor.wait(context), 0.01))
    with pytest.raises(AirflowException, match="failed"):
        sensor.execute_complete(context, event)


def fired(trigger: Any) -> list[dict[str, Any]]:
    """All payloads of a trigger."""

    async def run() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(asyncio.wait_for(run(), 60))


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
    """The package is installed as a provider: Airflow lists it, its connection type with fields, and its links."""
    listed = json.loads(airflow("providers", "list", "--output", "json").stdout)
    if not any(row["package_name"] == "forebay-airflow" for row in listed):
        pytest.skip("forebay-airflow is not installed in this environment")
    hooks = json.loads(airflow("providers", "hooks", "--output", "json").stdout)
    assert any(row["connection_type"] == "forebay" for row in hooks)
    fields = json.loads(airflow("providers", "widgets", "--output", "json").stdout)
    known = {row["connection_parameter_name"] for row in fields if "forebay" in row["class"]}
    assert known == {f"extra__forebay__{name}" for name in CONNECTION_FIELDS}
    links = json.loads(airflow("providers", "links", "--output", "json").stdout)
    kinds = {row["extra_link_class_name"].rpartition(".")[2] for row in links}
    assert kinds >= {"ForebayArtifactLink", "ForebayReportLink"}


def test_provider_info_has_the_shape_that_airflow_asks_for() -> None:
    import airflow
    from jsonschema import validate

    schema = Path(airflow.__file__).with_name("provider_info.schema.json")
    validate(get_provider_info(), json.loads(schema.read_text()))
    # Providers of Airflow itself are held to this one, which knows the fields of connections.
    whole = json.loads(Path(airflow.__file__).with_name("provider.yaml.schema.json").read_text())
    connections = {"type": "object", "properties": {"connection-types": whole["properties"]["connection-types"]}}
    validate(get_provider_info(), connections)
