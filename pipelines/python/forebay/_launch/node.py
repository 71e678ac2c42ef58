"""A worker process on a node of a cluster.

Launchers send this module to the nodes (pickled by value), so that a node needs no Python package of Forebay if it has
the program. It therefore imports the standard library alone.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib.util
import io
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile

#: Last lines of a worker's output that are kept for a fault.
LOG_LINES = 100
#: Seconds that a worker has to end its tasks once the run is over.
FAREWELL_S = 10.0
#: What a worker prints when it serves.
LISTENING = "listening at "
#: What starts a package that was shipped: Python finds the package beside it first.
START = "start.py"


@dataclasses.dataclass(frozen=True)
class WorkerStart:
    """How a worker starts."""

    #: The program and its first arguments; None: the package or the program of the node.
    program: tuple[str, ...] | None
    #: More arguments of `forebay worker`.
    arguments: tuple[str, ...]
    #: The line with the credentials of the run.
    credentials: str = dataclasses.field(repr=False)
    #: The digest of the package that a node without a program gets; None: it gets none.
    shipped: str | None = None

    def command(self, host: str) -> list[str]:
        """The command line of a worker that listens at a host."""
        shown = f"[{host}]" if ":" in host else host
        listen = f"--listen={shown}:0"
        program = self.program or find_program(self.shipped)
        return [*program, "worker", "--attached", "--credentials-stdin", listen, *self.arguments]


@dataclasses.dataclass
class WorkerState:
    """A worker as its launcher knows it.

    name: The node, or what the cluster calls the worker.
    address: Where it listens. None: not yet, or no longer.
    exit: Its exit code, or the signal that ended it as a negative number. None while it runs.
    log: The last lines of its output.
    """

    name: str
    address: str | None = None
    exit: int | None = None
    log: list[str] = dataclasses.field(default_factory=list)


def find_program(shipped: str | None = None) -> tuple[str, ...]:
    """The program of this node: that of its Python package, else the one on the path, else the one that was shipped."""
    if importlib.util.find_spec("forebay") is not None:
        return (sys.executable, "-m", "forebay")
    program = shutil.which("forebay")
    if program is None and shipped is not None and shipped_folder(shipped).is_dir():
        return (sys.executable, str(shipped_folder(shipped) / START))
    if program is None:
        raise FileNotFoundError(
            f"{socket.gethostname()} has neither the Python package forebay ({sys.executable}) nor a program `forebay` "
            "on its path: install the wheel on the nodes, or give `program=` or `ship=True`"
        )
    return (program,)


def shipped_folder(digest: str) -> pathlib.Path:
    """The folder of this node for a package that was shipped; runs of this user share it."""
    return pathlib.Path(tempfile.gettempdir()) / f"forebay-{os.getuid()}" / digest


def install(archive: bytes, digest: str) -> None:
    """Unpacks a package that was shipped, if this node does not have it yet."""
    folder = shipped_folder(digest)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.parent.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder.parent} belongs to another user, or others may write to it: remove it")
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        package = pathlib.Path(scratch) / "package"
        zipfile.ZipFile(io.BytesIO(archive)).extractall(package)
        try:
            package.rename(folder)
        except OSError:
            # Another worker of this node may have been first.
            if not folder.is_dir():
                raise


class NodeWorker:
    """A worker process that ends with this, and with the process that holds this."""

    def __init__(self, start: WorkerStart, host: str, name: str) -> None:
        self.name = name
        self.address: str | None = None
        self.lines: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        self.process = subprocess.Popen(
            start.command(host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Ctrl-C in the terminal of a local cluster is for the run: it ends its workers in good order.
            start_new_session=True,
        )
        self.readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self.readers:
            reader.start()
        assert self.process.stdin is not None
        # One that has ended says why in its output.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(start.credentials)
            self.process.stdin.flush()

    def _read(self, stream: object) -> None:
        for line in stream:  # type: ignore[attr-defined]
            line = line.rstrip("\n")
            if self.address is None and line.startswith(LISTENING):
                self.address = line.removeprefix(LISTENING)
            else:
                self.lines.append(line)

    def state(self) -> WorkerState:
        """The worker now."""
        code = self.process.poll()
        if code is not None:
            for reader in self.readers:
                reader.join(timeout=1.0)
        return WorkerState(self.name, self.address if code is None else None, code, list(self.lines))

    def stop(self, farewell_s: float = FAREWELL_S) -> WorkerState:
        """Ends the worker: first by the end of its input, then by force."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(farewell_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return self.state()
