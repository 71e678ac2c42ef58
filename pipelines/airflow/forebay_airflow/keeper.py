"""The keeper: a small process that stands between Airflow and one process of forebay.

It lives in a process group of its own, so that a deferred task can end while its run goes on, and it
outlives a task that Airflow kills, so that a run that does not stop when asked is killed in any case.
Both sides meet in a directory only, so they need not be on one machine if they share that directory:

    request.json  what to run (written before the keeper starts; holds no environment)
    events.jsonl  standard output of forebay
    errors.txt    standard error of forebay
    heartbeat     touched every second while the keeper lives
    watched       touched by the trigger while it watches a run that is detached from its task
    stop          its existence asks the keeper to stop the run
    exit_code     written last: the exit code, 128 + N for a process that signal N ended
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.2
HEARTBEAT_S = 1.0

REQUEST = "request.json"
EVENTS = "events.jsonl"
ERRORS = "errors.txt"
HEARTBEAT = "heartbeat"
WATCHED = "watched"
STOP = "stop"
EXIT_CODE = "exit_code"

PR_SET_PDEATHSIG = 1


def _die_with_keeper() -> None:
    """Asks Linux to end the run should the keeper itself be killed; other systems have no such request."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def write_whole(path: Path, text: str) -> None:
    """Readers see all of a file or none of it."""
    growing = path.with_name(path.name + ".part")
    growing.write_text(text)
    growing.replace(path)


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signals the run and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def unwatched(directory: Path, seconds_max: float | None) -> bool:
    """Whether no triggerer has watched a detached run for so long: its task may have gone without notice."""
    if seconds_max is None:
        return False
    try:
        return time.time() - (directory / WATCHED).stat().st_mtime > seconds_max
    except OSError:
        return True


def keep(directory: Path) -> int:
    """Runs what the request says until it ends or is asked to stop; gives the exit code."""
    request = json.loads((directory / REQUEST).read_text())
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: asked.append(number))
    heartbeat = directory / HEARTBEAT
    heartbeat.touch()
    with open(directory / EVENTS, "ab") as events, open(directory / ERRORS, "ab") as errors:
        try:
            process = subprocess.Popen(
                request["command"],
                cwd=request["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=events,
                stderr=errors,
                start_new_session=True,
                preexec_fn=_die_with_keeper,
            )
        except OSError as error:
            errors.write(f"error: `{request['command'][0]}` cannot be started: {error}\n".encode())
            # What shells say of a command that cannot be found or started.
            return 127
    parent = request["parent"]
    overdue_at = time.monotonic() + request["timeout_s"] if request["timeout_s"] else math.inf
    kill_at: float | None = None
    beat_at = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(POLL_S)
            # Whatever the run had started ends with it.
            signal_group(process, signal.SIGKILL)
            return code if code >= 0 else 128 - code
        now = time.monotonic()
        if now >= beat_at:
            with contextlib.suppress(OSError):
                heartbeat.touch()
            beat_at = now + HEARTBEAT_S
        orphaned = (parent is not None and os.getppid() != parent) or unwatched(directory, request["unwatched_s"])
        if kill_at is None and (asked or orphaned or now >= overdue_at or (directory / STOP).exists()):
            signal_group(process, signal.SIGTERM)
            kill_at = now + request["grace_s"]
        elif kill_at is not None and now >= kill_at:
            signal_group(process, signal.SIGKILL)


def main() -> None:
    """Keeps the run of the directory named on the command line."""
    directory = Path(sys.argv[1])
    code = keep(directory)
    # The directory may be gone: then no reader waits for the exit code.
    with contextlib.suppress(OSError):
        write_whole(directory / EXIT_CODE, str(code))


if __name__ == "__main__":
    main()
