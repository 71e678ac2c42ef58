"""Workers beside the workers of Dask."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import subprocess
import sys
import threading
import time
from typing import Any

from . import node
from .launcher import Launcher, Program, library
from .node import NodeWorker, WorkerStart, WorkerState, install

#: The attribute of a Dask worker that holds the workers of runs.
ATTRIBUTE = "_forebay_workers"
#: Seconds after which a worker ends for which no launcher has asked: the process of the run is gone. Longer than Dask
#: waits for one of its own workers that is silent, which holds up the answers of all.
LEASE_S = 600.0


class LeasedWorker(NodeWorker):
    """A worker that ends when nothing asks for its state any more."""

    def __init__(self, start: WorkerStart, host: str, name: str, lease_s: float = LEASE_S) -> None:
        super().__init__(start, host, name)
        self.lease_s = lease_s
        self.asked_at = time.monotonic()
        threading.Thread(target=self._watch, name="forebay-lease", daemon=True).start()

    def _watch(self) -> None:
        while self.process.poll() is None:
            remaining_s = self.asked_at + self.lease_s - time.monotonic()
            if remaining_s <= 0:
                self.stop()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(remaining_s)

    def state(self) -> WorkerState:
        self.asked_at = time.monotonic()
        return super().state()


def worker_state(
    run: str, start: tuple[Any, ...], threads: int | None, again: bool, dask_worker: Any
) -> dict[str, Any]:
    """The worker of a run beside this Dask worker, which starts it if there is none."""
    workers: dict[str, LeasedWorker] = dask_worker.__dict__.setdefault(ATTRIBUTE, {})
    worker = workers.get(run)
    if worker is None or (again and worker.state().exit is not None):
        program, arguments, credentials, shipped = start
        if threads is None:
            arguments = (*arguments, f"--threads={dask_worker.state.nthreads}")
        host = dask_worker.ip or "127.0.0.1"
        begin = WorkerStart(program, arguments, credentials, shipped)
        worker = workers[run] = LeasedWorker(begin, host, dask_worker.address)
    return dataclasses.asdict(worker.state())


def install_package(archive: bytes, digest: str) -> None:
    """Unpacks the package of the launcher on a node without a program."""
    install(archive, digest)


def stop_worker(run: str, dask_worker: Any) -> None:
    """Ends the worker of a run beside this Dask worker."""
    worker = dask_worker.__dict__.get(ATTRIBUTE, {}).pop(run, None)
    if worker is not None:
        worker.stop()


def dask_addresses(dask_scheduler: Any) -> list[str]:
    """The addresses of all Dask workers."""
    return list(dask_scheduler.workers)


class DaskLauncher(Launcher):
    """One worker beside each worker of Dask, also beside those that join."""

    cluster = "Dask"
    wanted = None

    def __init__(
        self,
        client: Any,
        *,
        threads: int | None,
        memory: int | str | None,
        program: Program,
        ship: bool = False,
    ) -> None:
        super().__init__(threads=threads, memory=memory, program=program, ship_package=ship)
        self.client = client
        self.run = ""
        self.begin: WorkerStart | None = None
        self.known: dict[str, WorkerState] = {}
        self.archive: bytes | None = None

    def start(self, credentials: str) -> None:
        library("distributed", self.cluster, 'pip install "distributed"')
        cloudpickle = library("cloudpickle", self.cluster, 'pip install "cloudpickle"')
        for module in (node, sys.modules[__name__]):
            cloudpickle.register_pickle_by_value(module)
        self.run = secrets.token_hex(8)
        self.archive = self.package()
        self.begin = self.worker_start(credentials)
        self.known = {}

    def workers(self) -> list[WorkerState]:
        present = self.client.run_on_scheduler(dask_addresses)
        for address in [address for address in self.known if address not in present]:
            del self.known[address]
        self.known.update(self._states(present, again=False))
        return list(self.known.values())

    def _states(self, addresses: list[str], again: bool) -> dict[str, WorkerState]:
        if not addresses or self.begin is None:
            return {}
        # Dask pickles arguments by reference: these are plain values, which a node without this package can read.
        start = (self.begin.program, self.begin.arguments, self.begin.credentials, self.begin.shipped)
        question = (worker_state, self.run, start, self.threads, again)
        answers = self.client.run(*question, workers=addresses, on_error="return")
        lacking = [address for address, answer in answers.items() if isinstance(answer, FileNotFoundError)]
        if lacking and self.archive is not None:
            self.client.run(install_package, self.archive, self.begin.shipped, workers=lacking, on_error="ignore")
            answers |= self.client.run(*question, workers=lacking, on_error="return")
        states = {}
        for address, answer in answers.items():
            if isinstance(answer, dict):
                states[address] = WorkerState(**answer)
            elif isinstance(answer, OSError) and not isinstance(answer, FileNotFoundError):
                # It is going: the scheduler will know in a moment.
                states[address] = WorkerState(address)
            else:
                states[address] = WorkerState(address, exit=1, log=[f"{type(answer).__name__}: {answer}"])
        return states

    def restart(self, worker: WorkerState) -> bool:
        for address, state in self.known.items():
            if state is worker:
                self._states([address], again=True)
                return True
        return False

    def end(self) -> str | None:
        if self.known and all(state.exit is not None for state in self.known.values()):
            return "all workers ended"
        return None

    def stop(self) -> None:
        if self.run:
            self.client.run(stop_worker, self.run, on_error="ignore")
        self.known = {}
        self.archive = None
