"""What all launchers have in common: their interface, and the checks of their arguments."""

from __future__ import annotations

import abc
import importlib
import os
from collections.abc import Sequence
from typing import Any

from .. import _arguments
from .._fault import ExternalFault, SpecFault
from . import ship
from .node import WorkerStart, WorkerState

NO_WORKERS = "FB0501"
BAD_ARGUMENT = "FB0104"

#: The program on the nodes, and its first arguments.
Program = str | os.PathLike[str] | Sequence[str] | None


class Launcher(abc.ABC):
    """Starts worker processes on a cluster for a run, and ends them with it.

    ``pipeline.run(on=launcher)`` calls :meth:`start` once, :meth:`workers` about twice a second and :meth:`stop` at the
    end. A launcher serves one run at a time, and any number one after the other.

    threads: The threads of each worker. Default: all of its machine's.
    memory: Memory that each worker may use: bytes, or a size such as ``"4GiB"``. Default: half of its machine's.
    program: The program on the nodes, and its first arguments. Default: that of their Python package or their path.
    ship_package: Whether :meth:`package` gives the package of this process, for nodes that have no program.
    """

    #: The cluster, in faults.
    cluster: str
    #: Workers that the launcher asks for; None: as many as the cluster has nodes for.
    wanted: int | None

    def __init__(
        self, *, threads: int | None, memory: int | str | None, program: Program, ship_package: bool = False
    ) -> None:
        self.threads = _arguments.optional_count("threads", threads, 1, 2**16)
        self.memory = _memory(memory)
        self.program = _program(program)
        self.ship = bool(ship_package)
        self.shipped: str | None = None
        if self.ship and self.program is not None:
            raise SpecFault(BAD_ARGUMENT, "`ship` and `program` exclude each other", "leave one of them out")

    @abc.abstractmethod
    def start(self, credentials: str) -> None:
        """Asks the cluster for workers, without waiting for them.

        credentials: A line that each worker reads from its standard input.
        """

    @abc.abstractmethod
    def workers(self) -> list[WorkerState]:
        """The workers now, and those that ended. Those that the cluster has not started yet may be missing."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends the workers. Called also after a :meth:`start` that failed half-way."""

    def addresses(self) -> list[str]:
        """Where workers listen now."""
        return [worker.address for worker in self.workers() if worker.address is not None]

    def restart(self, worker: WorkerState) -> bool:
        """Starts another worker in place of one that ended. False: the cluster does that itself, or cannot.

        worker: The worker that ended, as :meth:`workers` gave it.
        """
        return False

    def end(self) -> str | None:
        """Why no worker will come any more, besides the ends of all that there were; None: more may come."""
        return None

    def package(self) -> bytes | None:
        """The package for nodes without a program, if it is to be shipped; afterwards :meth:`worker_start` names it."""
        if not self.ship:
            return None
        archive, self.shipped = ship.this_package()
        return archive

    def worker_start(self, credentials: str, threads: int | None = None) -> WorkerStart:
        """The start of a worker with the options of this launcher.

        credentials: The line for its standard input.
        threads: Its threads. Default: those of the launcher.
        """
        threads = self.threads if threads is None else threads
        arguments = []
        if threads is not None:
            arguments.append(f"--threads={threads}")
        if self.memory is not None:
            arguments.append(f"--memory={self.memory}")
        return WorkerStart(self.program, tuple(arguments), credentials, self.shipped)


def library(name: str, cluster: str, install: str) -> Any:
    """A library of a cluster, which is imported only where it is used."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"`{name}` cannot be imported: {error}"
        raise SpecFault(BAD_ARGUMENT, message, f"a run on {cluster} needs it: {install}") from error


def failed(cluster: str, message: str, hint: str | None = None) -> ExternalFault:
    """The fault of a cluster that does not do what it is asked for."""
    return ExternalFault(NO_WORKERS, f"{cluster}: {message}", hint)


def _memory(memory: int | str | None) -> str | None:
    if memory is None or isinstance(memory, str):
        return memory
    return str(_arguments.count("memory", memory, 1))


def _program(program: Program) -> tuple[str, ...] | None:
    if program is None:
        return None
    if isinstance(program, Sequence) and not isinstance(program, str):
        return tuple(_arguments.path("program", word) for word in program)
    return (_arguments.path("program", program),)
