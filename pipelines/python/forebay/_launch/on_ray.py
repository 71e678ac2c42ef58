"""Workers as actors of Ray."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import Any

from .. import _arguments
from . import node
from .launcher import Launcher, Program, library
from .node import NodeWorker, WorkerStart, WorkerState, install

#: Seconds that one look at the actors may take.
LOOK_S = 0.4
#: Seconds that the actors have to end their workers.
STOP_S = node.FAREWELL_S + 5.0


class RayWorker:
    """The actor: it holds the process of a worker."""

    def __init__(self, start: WorkerStart, package: list[Any]) -> None:
        ray: Any = importlib.import_module("ray")
        self.host = str(ray.util.get_node_ip_address())
        self.start = start
        try:
            self.begin()
        except FileNotFoundError:
            if not package or start.shipped is None:
                raise
            # Ray brings it to the node once, for all actors there.
            install(ray.get(package[0]), start.shipped)
            self.begin()

    def begin(self) -> None:
        """Starts the process."""
        self.worker = NodeWorker(self.start, self.host, self.host)

    def restart(self) -> None:
        """Starts another process in place of one that ended."""
        if self.worker.state().exit is not None:
            self.begin()

    def state(self) -> dict[str, Any]:
        """The worker now."""
        return dataclasses.asdict(self.worker.state())

    def stop(self) -> None:
        """Ends the process."""
        self.worker.stop()


class RayLauncher(Launcher):
    """A number of actors with a worker each. Ray starts an actor again elsewhere when its node goes."""

    cluster = "Ray"

    def __init__(
        self,
        workers: int,
        threads: int,
        *,
        address: str | None,
        memory: int | str | None,
        program: Program,
        options: dict[str, Any],
        ship: bool = False,
    ) -> None:
        super().__init__(threads=threads, memory=memory, program=program, ship_package=ship)
        self.wanted = _arguments.count("workers", workers, 1, 2**16)
        self.address = address
        self.options = options
        self.actors: list[Any] = []
        self.states: list[WorkerState] = []
        self.asked: dict[int, Any] = {}
        self.dead: set[int] = set()
        self.connected = False
        self.archive: list[Any] = []

    def start(self, credentials: str) -> None:
        self.ray = ray = library("ray", self.cluster, 'pip install "ray"')
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False)
            self.connected = True
        # Nodes may lack this package: what runs there is sent.
        for module in (node, sys.modules[__name__]):
            ray.cloudpickle.register_pickle_by_value(module)
        options = {"num_cpus": self.threads, "max_restarts": -1, "scheduling_strategy": "SPREAD", **self.options}
        actor = ray.remote(RayWorker).options(**options)
        archive = self.package()
        # In a list, a reference is no value yet: an actor asks for it where its node lacks the program.
        self.archive = [] if archive is None else [ray.put(archive)]
        start = self.worker_start(credentials)
        self.asked, self.dead = {}, set()
        self.actors = [actor.remote(start, self.archive) for _ in range(self.wanted or 1)]
        self.states = [WorkerState(f"{number} of Ray") for number in range(len(self.actors))]

    def workers(self) -> list[WorkerState]:
        for number, actor in enumerate(self.actors):
            if number not in self.asked and number not in self.dead:
                self.asked[number] = actor.state.remote()
        if self.asked:
            references = list(self.asked.values())
            ready, _ = self.ray.wait(references, num_returns=len(references), timeout=LOOK_S)
            answered = [number for number, reference in self.asked.items() if reference in ready]
            for number in answered:
                self.states[number] = self._answer(number, self.asked.pop(number))
        return self.states

    def _answer(self, number: int, reference: Any) -> WorkerState:
        name = f"{number} of Ray"
        try:
            state = WorkerState(**self.ray.get(reference))
        except self.ray.exceptions.ActorDiedError as error:
            # It will not come back: its constructor has failed, or Ray has given it up.
            self.dead.add(number)
            return WorkerState(name, exit=1, log=str(error).splitlines())
        except self.ray.exceptions.RayError:
            # Its node is gone, and Ray starts it elsewhere.
            return WorkerState(name)
        state.name = f"{name} at {state.name}"
        return state

    def restart(self, worker: WorkerState) -> bool:
        number = self.states.index(worker)
        if number in self.dead:
            return False
        self.actors[number].restart.remote()
        return True

    def stop(self) -> None:
        ends = [actor.stop.remote() for number, actor in enumerate(self.actors) if self.states[number].address]
        if ends:
            self.ray.wait(ends, num_returns=len(ends), timeout=STOP_S)
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors, self.states, self.asked, self.archive = [], [], {}, []
        if self.connected:
            self.ray.shutdown()
            self.connected = False
