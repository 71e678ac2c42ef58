"""The trigger's asynchronous generator, over real processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.module_loading import import_string
from conftest import Stub, running

from forebay_airflow.process import Run
from forebay_airflow.trigger import ForebayRunTrigger


def start(stub: Stub, directory: Path, **env: str) -> ForebayRunTrigger:
    """A detached run and its trigger, as a triggerer makes it."""
    Run(directory).start([str(stub.path), "run"], {**os.environ, **stub.env(**env)}, grace_s=5, detached=True)
    path, kwargs = ForebayRunTrigger(str(directory), 0.05, 5).serialize()
    trigger: ForebayRunTrigger = import_string(path)(**kwargs)
    return trigger


async def fired(trigger: ForebayRunTrigger) -> list[Any]:
    """All payloads."""
    return [event.payload async for event in trigger.run()]


@pytest.mark.parametrize("code", [0, 75, 99])
def test_it_fires_once_with_the_exit_code(stub: Stub, tmp_path: Path, code: int) -> None:
    trigger = start(stub, tmp_path / "run", STUB_EXIT=str(code))
    assert asyncio.run(asyncio.wait_for(fired(trigger), 60)) == [
        {"directory": str(tmp_path / "run"), "exit_code": code}
    ]


def test_a_lost_run(tmp_path: Path) -> None:
    trigger = ForebayRunTrigger(str(tmp_path / "nothing"), 0.05, 5)
    assert asyncio.run(asyncio.wait_for(fired(trigger), 60))[0]["exit_code"] is None


def test_on_kill_stops_the_process(stub: Stub, tmp_path: Path) -> None:
    trigger = start(stub, tmp_path / "run", STUB_HANG="1")
    pid = stub.up()

    async def kill() -> list[Any]:
        watching = asyncio.create_task(fired(trigger))
        await trigger.on_kill()
        return await asyncio.wait_for(watching, 60)

    assert asyncio.run(kill())[0]["exit_code"] == 143
    assert not running(pid)


def test_a_triggerer_that_restarts_stops_nothing(stub: Stub, tmp_path: Path) -> None:
    trigger = start(stub, tmp_path / "run", STUB_HANG="1")
    pid = stub.up()

    async def cancel() -> None:
        watching = asyncio.create_task(fired(trigger))
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(cancel())
    assert running(pid)
    assert Run(tmp_path / "run").stop(60)
    assert not running(pid)
