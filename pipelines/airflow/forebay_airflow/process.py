"""A run as its task sees it: start it, read its events, ask it to stop. All state is in files, see `keeper`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from forebay_airflow import keeper

#: Without a heartbeat for so long, the keeper is taken for dead: its machine is gone, or it was killed.
HEARTBEAT_STALE_S = 60.0
#: Forebay promises to end within 10 seconds of SIGTERM.
GRACE_S = 20.0
#: A detached run that no triggerer watches for so long is stopped. Triggerers may be away for less.
UNWATCHED_S = 600.0
#: Bytes of standard error that are kept for the task's log.
ERRORS_BYTES_MAX = 64 * 1024


class Run:
    """One run of forebay, known by the directory of its files."""

    def __init__(self, directory: str | Path, offset: int = 0) -> None:
        self.directory = Path(directory)
        self.offset = offset

    @staticmethod
    def place(key: str, root: str | None = None) -> Path:
        """The directory of the run of a task: the same for each attempt, so that none starts beside another."""
        below = Path(root) if root else Path(tempfile.gettempdir()) / f"forebay-airflow-{os.getuid()}"
        return below / hashlib.sha256(key.encode()).hexdigest()[:32]

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        grace_s: float = GRACE_S,
        detached: bool = False,
        timeout_s: float | None = None,
        unwatched_s: float = UNWATCHED_S,
    ) -> subprocess.Popen[bytes]:
        """Starts the run, after stopping what an earlier attempt may have left.

        A detached run goes on when this process ends, as long as a triggerer calls `watch` at least every
        `unwatched_s`; any other is stopped then, however it ended. Each is stopped after `timeout_s`.
        """
        self.stop(wait_s=grace_s + 10)
        if self.alive():
            raise RuntimeError(f"an earlier run in {self.directory} does not stop")
        self.remove()
        root = self.directory.parent
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            # The owner of the directory could change the command of the run.
            raise PermissionError(f"{root} belongs to another user: name another directory with `run_directory`")
        self.directory.mkdir(mode=0o700)
        parent = None if detached else os.getpid()
        request = {
            "command": list(command),
            "cwd": cwd,
            "parent": parent,
            "grace_s": grace_s,
            "timeout_s": timeout_s,
            "unwatched_s": unwatched_s if detached else None,
        }
        keeper.write_whole(self.directory / keeper.REQUEST, json.dumps(request))
        self.offset = 0
        self.watch()
        # Until the keeper is up, this heartbeat keeps readers from taking the run for lost.
        (self.directory / keeper.HEARTBEAT).touch()
        started = subprocess.Popen(
            # Isolated: the keeper needs the standard library only, whatever the environment of the run says.
            [sys.executable, "-I", keeper.__file__, str(self.directory)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return started

    def watch(self) -> None:
        """Tells the keeper of a detached run that a triggerer still watches it."""
        with contextlib.suppress(OSError):
            (self.directory / keeper.WATCHED).touch()

    def exit_code(self) -> int | None:
        """How it ended; None while it has not."""
        try:
            return int((self.directory / keeper.EXIT_CODE).read_text())
        except FileNotFoundError:
            return None

    def alive(self) -> bool:
        """Whether a keeper is there and at work."""
        try:
            beat = (self.directory / keeper.HEARTBEAT).stat().st_mtime
        except FileNotFoundError:
            return False
        return time.time() - beat < HEARTBEAT_STALE_S and self.exit_code() is None

    def lines(self) -> Iterator[str]:
        """Whole lines of standard output since the last call."""
        try:
            file = open(self.directory / keeper.EVENTS, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.offset += len(line)
                yield line.decode(errors="replace").rstrip("\r\n")

    def last_line(self) -> str:
        """The last line of standard output; empty if there is none."""
        last = ""
        for line in Run(self.directory).lines():
            last = line or last
        return last

    def errors(self) -> str:
        """The end of standard error."""
        try:
            with open(self.directory / keeper.ERRORS, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - ERRORS_BYTES_MAX))
                return file.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def stop(self, wait_s: float) -> bool:
        """Asks the keeper to stop the run and waits so long; says whether it is gone."""
        if not self.alive():
            return True
        (self.directory / keeper.STOP).touch()
        deadline = time.monotonic() + wait_s
        while self.alive() and time.monotonic() < deadline:
            time.sleep(keeper.POLL_S)
        return not self.alive()

    def remove(self) -> None:
        """Removes the files of the run."""
        shutil.rmtree(self.directory, ignore_errors=True)
