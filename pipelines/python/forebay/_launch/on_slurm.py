"""Workers as a job step of Slurm."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from typing import Any

from .. import _arguments
from . import node
from .launcher import Launcher, Program, failed
from .node import LISTENING, WorkerState

#: What each task runs: it names its node and its step, and becomes the worker.
SCRIPT = 'echo "node $SLURMD_NODENAME $SLURM_JOB_ID.$SLURM_STEP_ID"; exec "$@"'
#: A line of a task.
LABELLED = re.compile(r"\s*(\d+): (.*)")
#: The end of tasks, in the words of srun: `srun: error: n[1-3]: tasks 0-2: Exited with exit code 1`.
ENDED = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): (.*)")
#: Seconds that the step has to end, by itself and after it was cancelled: the run is over, and its workers are idle.
STOP_S = 5.0
CANCEL_S = 2.0


class SlurmLauncher(Launcher):
    """One worker on each node of a step, which `srun` starts: in a job of its own, or in the allocation around it."""

    cluster = "Slurm"

    def __init__(
        self,
        nodes: int,
        *,
        partition: str | None,
        threads: int | None,
        memory: int | str | None,
        options: list[str],
        program: Program,
    ) -> None:
        super().__init__(threads=threads, memory=memory, program=program)
        self.wanted = _arguments.count("nodes", nodes, 1, 2**16)
        self.partition = partition
        self.options = [str(option) for option in options]
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        self.readers: list[threading.Thread] = []
        self.tasks: dict[int, WorkerState] = {}
        self.log: collections.deque[str] = collections.deque(maxlen=node.LOG_LINES)
        self.step: str | None = None

    def command(self) -> list[str]:
        """The command line of `srun`, up to that of the worker."""
        wanted = ["srun", f"--nodes={self.wanted}", f"--ntasks={self.wanted}", "--ntasks-per-node=1"]
        if self.threads is not None:
            wanted.append(f"--cpus-per-task={self.threads}")
        if self.partition is not None:
            wanted.append(f"--partition={self.partition}")
        # A node that fails ends its own worker alone; all tasks read the input.
        wanted += ["--no-kill", "--kill-on-bad-exit=0", "--input=all", "--unbuffered", "--label"]
        return [*wanted, *self.options, "sh", "-c", SCRIPT, "sh"]

    def start(self, credentials: str) -> None:
        if shutil.which("srun") is None:
            raise failed(self.cluster, "there is no program `srun` here", "run this on a login node of the cluster")
        begin = self.worker_start(credentials)
        # The nodes of a cluster of Slurm see the same file systems.
        program = self.program or (sys.executable, "-m", "forebay")
        worker = [*program, "worker", "--attached", "--credentials-stdin", "--listen=0.0.0.0:0", *begin.arguments]
        self.tasks, self.step = {}, None
        self.log.clear()
        self.process = subprocess.Popen(
            [*self.command(), *worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        streams = (self.process.stdout, self.process.stderr)
        self.readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()
        assert self.process.stdin is not None
        # Where it has ended, its output says why.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(credentials)
            self.process.stdin.flush()

    def _read(self, stream: Any) -> None:
        for line in stream:
            with self.lock:
                self._hear(line.rstrip("\n"))

    def _hear(self, line: str) -> None:
        labelled = LABELLED.fullmatch(line)
        ended = ENDED.fullmatch(line)
        if ended is not None:
            self.log.append(line)
            for number in numbers(ended[1]):
                self._end(number, ended[2])
        elif labelled is None:
            self.log.append(line)
        elif labelled[2]:
            self._hear_task(int(labelled[1]), labelled[2])

    def _hear_task(self, number: int, line: str) -> None:
        task = self.tasks.setdefault(number, WorkerState(f"task {number} of Slurm"))
        if line.startswith("node ") and task.address is None:
            _, name, self.step = line.split()
            task.name = f"{name} of Slurm"
        elif line.startswith(LISTENING) and task.address is None:
            port = line.rpartition(":")[2]
            task.address = f"{node_address(task.name.split()[0])}:{port}"
        else:
            task.log = [*task.log, line][-node.LOG_LINES :]

    def _end(self, number: int, how: str) -> None:
        task = self.tasks.setdefault(number, WorkerState(f"task {number} of Slurm"))
        code = re.search(r"exit code (\d+)", how)
        task.exit = int(code[1]) if code else -9
        task.address = None
        task.log = [*task.log, how]

    def workers(self) -> list[WorkerState]:
        with self.lock:
            return list(self.tasks.values())

    def end(self) -> str | None:
        if self.process is None or self.process.poll() is None:
            return None
        with self.lock:
            words = "\n".join(self.log)
        return f"srun ended with {self.process.returncode}\n{words}".strip()

    def cancelled(self) -> str:
        """What `scancel` ends: the step in an allocation of others, the whole job where it is the step's own."""
        step = self.step or ""
        return step if "SLURM_JOB_ID" in os.environ else step.partition(".")[0]

    def stop(self) -> None:
        process = self.process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        # Where a node was lost, srun waits for its task without end.
        if not ends_within(process, STOP_S):
            if self.step is not None:
                subprocess.run(["scancel", self.cancelled()], capture_output=True, check=False)
            process.terminate()
            if not ends_within(process, CANCEL_S):
                process.kill()
                process.wait()
        for reader in self.readers:
            reader.join(timeout=1.0)
        self.process = None


def ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    """Whether a process ends in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def numbers(text: str) -> list[int]:
    """The numbers of a list of Slurm, such as `0,2-4`."""
    listed: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        listed += range(int(first), int(last or first) + 1)
    return listed


def node_address(name: str) -> str:
    """Where a node can be reached."""
    command = ["scontrol", "show", "node", name, "--oneliner"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    address = re.search(r"\bNodeAddr=(\S+)", shown.stdout)
    return address[1] if address else name
