"""Triggers: what watches on behalf of tasks that have given their worker slot back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from forebay_airflow import events
from forebay_airflow.artifact_wait import ArtifactWait
from forebay_airflow.process import Run


class ForebayRunTrigger(BaseTrigger):
    """Fires once, when the run of a directory has ended or is lost.

    The payload holds the directory and the exit code (None if the run is lost). Looking is all it does, so
    triggers can move between triggerers that share the directory.

    :param directory: the files of the run
    :param poll_s: seconds between looks
    :param grace_s: seconds that the process has to end when the task is killed
    """

    def __init__(self, directory: str, poll_s: float, grace_s: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.directory = directory
        self.poll_s = poll_s
        self.grace_s = grace_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What a triggerer needs to make this trigger again."""
        kwargs = {"directory": self.directory, "poll_s": self.poll_s, "grace_s": self.grace_s}
        return "forebay_airflow.trigger.ForebayRunTrigger", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tells the log what happens until the run has ended."""
        run = Run(self.directory)
        while True:
            # First whether it lives, then what it said: so nothing that it said last is missed.
            alive = await asyncio.to_thread(run.alive)
            await asyncio.to_thread(run.watch)
            for line in await asyncio.to_thread(lambda: list(run.lines())):
                event = events.parse(line)
                self.log.info("%s", line if event is None else events.sentence(event))
            if not alive:
                exit_code = await asyncio.to_thread(run.exit_code)
                payload = {"directory": self.directory, "exit_code": exit_code}
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_s)

    async def on_kill(self) -> None:
        """Stops the process when a user clears the task or marks it; a triggerer that restarts stops nothing."""
        gone = await asyncio.to_thread(Run(self.directory).stop, self.grace_s + 5)
        self.log.info("the task is killed: the run %s", "is stopped" if gone else "does not stop")


class ForebayArtifactTrigger(BaseTrigger):
    """Fires once, when the artifact is there that a sensor waits for.

    The payload holds what was found under `found`, or under `error` why it cannot be looked for.

    :param wait: what is waited for
    :param poll_s: seconds between looks
    """

    def __init__(self, wait: ArtifactWait | dict[str, Any], poll_s: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wait = ArtifactWait(**wait) if isinstance(wait, dict) else wait
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What a triggerer needs to make this trigger again."""
        return "forebay_airflow.trigger.ForebayArtifactTrigger", {"wait": asdict(self.wait), "poll_s": self.poll_s}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Looks until the artifact is there."""
        # Airflow answers a look-up of a connection from a thread that belongs to this loop only.
        look = sync_to_async(self.wait.look)
        while True:
            try:
                found, text = await look()
            except Exception as error:
                yield TriggerEvent({"error": str(error)})  # type: ignore[no-untyped-call]
                return
            self.log.info("%s", text)
            if found is not None:
                yield TriggerEvent({"found": found})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poll_s)
