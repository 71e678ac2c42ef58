"""A run on a cluster: its workers are started, followed while the run goes on, and ended."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from .. import _arguments, _forebay
from .._fault import Fault
from .launcher import Launcher
from .node import WorkerState
from .of_text import launcher_of

log = logging.getLogger("forebay.launch")

#: Seconds between two looks at the workers.
LOOK_S = 0.5
#: Seconds for which the first workers wait for the others, so that passes are divided among all.
OTHERS_S = 10.0
#: Seconds between two messages about a cluster that has not started any worker.
PATIENCE_S = 60.0
#: Lines of a worker's log in a message.
LINES_SHOWN = 20


class MemberSet(Protocol):
    """The workers of a run, as the run sees them."""

    def replace(self, addresses: list[str]) -> None:
        """Sets the addresses of the workers that run now."""

    def end(self, reason: str) -> None:
        """Reports that no worker will come any more, and why."""


@contextlib.contextmanager
def launched(on: Launcher | str) -> Iterator[_forebay.WorkerSet]:
    """The workers of a run, which end with the block. A fault of the run shows how workers failed."""
    launcher = launcher_of(on) if isinstance(on, str) else on
    if not isinstance(launcher, Launcher):
        wanted = (
            "a launcher such as `forebay.ray()`, `forebay.dask(client)`, `forebay.spark(session)`, "
            "`forebay.slurm()` or `forebay.kubernetes(image=...)`"
        )
        raise _arguments.wrong("on", launcher, wanted)
    workers = _forebay.WorkerSet()
    follower = Follower(launcher, workers)
    try:
        launcher.start(workers.credentials())
        follower.start()
        yield workers
    except Fault as fault:
        follower.stop()
        # The run may have missed a worker sooner than the follower.
        with contextlib.suppress(Exception):
            follower.note_ends()
        text = follower.failures()
        if text:
            fault.args = (f"{fault}\n{text}",)
        raise
    finally:
        follower.stop()
        launcher.stop()


class Follower:
    """Tells a run which workers there are."""

    def __init__(self, launcher: Launcher, workers: MemberSet) -> None:
        self.launcher = launcher
        self.set = workers
        self.failed: list[WorkerState] = []
        self.seen: set[tuple[str, int | None, str]] = set()
        self.restarts_left: int | None = None
        self.begun = self.said = time.monotonic()
        self.first_since: float | None = None
        self.shown: list[str] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._follow, name="forebay-launch", daemon=True)

    def start(self) -> None:
        """Begins to follow the workers."""
        self.thread.start()

    def stop(self) -> None:
        """Ends that; the launcher is not called any more when it returns."""
        self.over.set()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join()

    def _follow(self) -> None:
        while not self.over.is_set():
            try:
                self.look()
            except Exception as error:
                log.warning("%s cannot be asked for its workers: %s", self.launcher.cluster, error)
                if not self.shown:
                    self.set.end(f"{self.launcher.cluster}: {type(error).__name__}: {error}")
            self.over.wait(LOOK_S)

    def look(self) -> None:
        """Looks at the workers once."""
        states = self.launcher.workers()
        running = [state.address for state in states if state.address is not None]
        awaited = [state for state in states if state.exit is None and state.address is None]
        for state in states:
            self._ended(state, awaited)
        self._publish(running, len(states))
        end = self.launcher.end()
        if end is None and states and not running and not awaited and len(states) == self.launcher.wanted:
            end = "all workers ended"
        if end is not None and not running:
            self.set.end(f"{self.launcher.cluster}: {end}")

    def note_ends(self) -> None:
        """Notes workers that have ended, and starts no others."""
        for state in self.launcher.workers():
            self._note(state)

    def _publish(self, running: list[str], known: int) -> None:
        now = time.monotonic()
        if running and self.first_since is None:
            self.first_since = now
        if not running and not self.shown and now - self.said >= PATIENCE_S:
            self.said = now
            log.warning("%s has started no worker for %.0f s", self.launcher.cluster, now - self.begun)
        wanted = self.launcher.wanted if self.launcher.wanted is not None else known
        complete = len(running) >= wanted or (self.first_since is not None and now - self.first_since >= OTHERS_S)
        if (complete or self.shown) and running != self.shown:
            self.shown = running
            self.set.replace(running)

    def _note(self, state: WorkerState) -> bool:
        """Whether a worker has ended since the last look; says how."""
        key = (state.name, state.exit, "\n".join(state.log))
        if state.exit is None or key in self.seen:
            return False
        self.seen.add(key)
        self.failed.append(state)
        log.warning("%s", failure(state))
        return True

    def _ended(self, state: WorkerState, awaited: list[WorkerState]) -> None:
        if not self._note(state):
            return
        if self.restarts_left is None:
            self.restarts_left = self.launcher.wanted or 1
        if state.exit != 0 and self.restarts_left > 0 and self.launcher.restart(state):
            self.restarts_left -= 1
            awaited.append(state)

    def failures(self) -> str:
        """The workers that ended before the run, with their last words."""
        return "\n".join(failure(state) for state in self.failed)


def failure(state: WorkerState) -> str:
    """A worker that ended, in words."""
    if state.exit is None:
        how = "has ended"
    elif state.exit < 0:
        how = f"was ended by signal {-state.exit}"
    else:
        how = f"ended with exit code {state.exit}"
    lines = [f"the worker {state.name} {how}"]
    lines += [f"  {line}" for line in state.log[-LINES_SHOWN:]]
    return "\n".join(lines)
