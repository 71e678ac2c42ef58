"""Workers as the tasks of a job of Spark."""

from __future__ import annotations

import json
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .. import _arguments
from . import node
from .launcher import Launcher, Program, library
from .node import NodeWorker, WorkerStart, WorkerState, install

#: Seconds between two looks of a task at its worker, before and after it listens.
FIRST_LOOK_S = 0.02
LOOK_S = 0.3
#: Seconds that the tasks of a run have to end.
STOP_S = node.FAREWELL_S + 5.0
#: Lines of a failure of Spark that are shown.
LINES_OF_FAILURE = 20


def worker_task(
    start: WorkerStart, driver: tuple[str, int], secret: str, package: Any = None
) -> Callable[..., Iterator[int]]:
    """The task: it holds the process of a worker until the driver closes their connection."""

    def task(number: int, _: Iterator[Any]) -> Iterator[int]:
        with socket.create_connection(driver) as line:
            host = line.getsockname()[0]
            try:
                worker = NodeWorker(start, host, host)
            except FileNotFoundError:
                if package is None or start.shipped is None:
                    raise
                # Spark brings a broadcast to a node once, where it is asked for.
                install(package.value, start.shipped)
                worker = NodeWorker(start, host, host)
            shown = None
            try:
                state = worker.state()
                while state.exit is None and not is_closed(line, LOOK_S if shown else FIRST_LOOK_S):
                    state = worker.state()
                    if state.address != shown:
                        shown = state.address
                        send(line, number, secret, state)
                if state.exit is not None:
                    send(line, number, secret, state)
            finally:
                end = worker.stop()
        if state.exit is not None:
            # Spark starts another task in place of one that fails.
            raise RuntimeError(f"the worker ended with exit code {state.exit}: {' '.join(state.log[-3:])}")
        yield end.exit or 0

    return task


def send(line: socket.socket, number: int, secret: str, state: WorkerState) -> None:
    """Tells the driver how a worker is."""
    answer = {"number": number, "secret": secret, "name": f"{number} at {state.name}"}
    answer.update(address=state.address, exit=state.exit, log=state.log)
    line.sendall(json.dumps(answer).encode() + b"\n")


def is_closed(line: socket.socket, look_s: float) -> bool:
    """Whether the driver has closed a connection; waits a moment for it."""
    readable, _, _ = select.select([line], [], [], look_s)
    try:
        return bool(readable) and line.recv(1) == b""
    except OSError:
        return True


class SparkLauncher(Launcher):
    """A job with a task for each worker. Spark starts a task again elsewhere when its executor goes."""

    cluster = "Spark"

    def __init__(
        self,
        session: Any,
        workers: int | None,
        *,
        threads: int | None,
        memory: int | str | None,
        program: Program,
        ship: bool = False,
    ) -> None:
        super().__init__(threads=threads, memory=memory, program=program, ship_package=ship)
        self.session = session
        self.asked_for = _arguments.optional_count("workers", workers, 1, 2**16)
        self.wanted = self.asked_for
        self.lock = threading.Lock()
        self.states: dict[int, WorkerState] = {}
        self.lines: dict[int, socket.socket] = {}
        self.failure: str | None = None
        self.board: socket.socket | None = None
        self.job: threading.Thread | None = None
        self.group = ""
        self.broadcast: Any = None

    def start(self, credentials: str) -> None:
        library("pyspark", self.cluster, 'pip install "pyspark"')
        cloudpickle = library("pyspark.cloudpickle", self.cluster, 'pip install "pyspark"')
        context = self.session.sparkContext
        cpus = int(context.getConf().get("spark.task.cpus", "1"))
        self.wanted = self.asked_for or max(1, context.defaultParallelism // cpus)
        for module in (node, sys.modules[__name__]):
            cloudpickle.register_pickle_by_value(module)
        host = context.getConf().get("spark.driver.host")
        self.secret = secrets.token_hex(16)
        self.states, self.lines, self.failure = {}, {}, None
        self.board = socket.create_server((host, 0))
        threading.Thread(target=self._accept, args=(self.board,), daemon=True).start()
        archive = self.package()
        self.broadcast = None if archive is None else context.broadcast(archive)
        start = self.worker_start(credentials, self.threads or cpus)
        task = worker_task(start, self.board.getsockname()[:2], self.secret, self.broadcast)
        self.group = f"forebay-{secrets.token_hex(8)}"
        self.job = threading.Thread(target=self._run_job, args=(context, task), name="forebay-spark", daemon=True)
        self.job.start()

    def _run_job(self, context: Any, task: Callable[..., Iterator[int]]) -> None:
        try:
            context.setJobGroup(self.group, "Forebay's workers", True)
            count = self.wanted or 1
            context.parallelize(range(count), count).mapPartitionsWithIndex(task).collect()
        except Exception as error:
            # The first lines hold the reason; the rest is a trace of the JVM.
            self.failure = "\n".join(str(error).splitlines()[:LINES_OF_FAILURE])

    def _accept(self, board: socket.socket) -> None:
        while True:
            try:
                line, _ = board.accept()
            except OSError:
                return  # The run is over.
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        """Follows a worker until its connection ends."""
        number = None
        with line, line.makefile(encoding="utf-8") as messages:
            try:
                for message in messages:
                    answer = json.loads(message)
                    if not secrets.compare_digest(str(answer["secret"]), self.secret):
                        return
                    number = int(answer["number"])
                    with self.lock:
                        self.lines[number] = line
                        state = WorkerState(answer["name"], answer["address"], answer["exit"], answer["log"])
                        self.states[number] = state
            except (OSError, ValueError, KeyError, TypeError):
                pass  # A task that was ended, or a stranger.
            if number is not None:
                self._forget(number, line)

    def _forget(self, number: int, line: socket.socket) -> None:
        with self.lock:
            # Another attempt of the task may be there already.
            if self.lines.get(number) is line:
                del self.lines[number]
                if self.states[number].exit is None:
                    self.states[number] = WorkerState(self.states[number].name)

    def workers(self) -> list[WorkerState]:
        with self.lock:
            return list(self.states.values())

    def end(self) -> str | None:
        if self.job is None or self.job.is_alive():
            return None
        return self.failure or "the job of the workers has ended"

    def stop(self) -> None:
        if self.board is not None:
            # A thread that waits in `accept` is woken by this alone.
            self.board.shutdown(socket.SHUT_RDWR)
            self.board.close()
        with self.lock:
            lines = list(self.lines.values())
        for line in lines:
            line.shutdown(socket.SHUT_RDWR)
        if self.job is not None:
            self.job.join(STOP_S if lines else 0)
            if self.job.is_alive():
                self.session.sparkContext.cancelJobGroup(self.group)
                self.job.join(STOP_S)
        if self.broadcast is not None:
            self.broadcast.destroy()
        self.board = self.job = self.broadcast = None
