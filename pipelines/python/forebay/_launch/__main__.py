"""The launcher of ``forebay run --on``: a line of JSON in asks for workers, lines of JSON out say where they are."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any, TextIO

from .._fault import Fault
from .follow import Follower
from .of_text import launcher_of


class SetAtTheOtherEnd:
    """The workers of a run, which the process of the run holds."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def replace(self, addresses: list[str]) -> None:
        """Sets the addresses of the workers that run now."""
        self._tell({"addresses": addresses})

    def end(self, reason: str) -> None:
        """Reports that no worker will come any more, and why."""
        self._tell({"end": reason})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self.out.write(json.dumps(message) + "\n")
            self.out.flush()
        except BrokenPipeError:
            pass  # The run is over, and so is this in a moment.


def main() -> int:
    """Launches until the standard input ends."""
    # Signals to the whole group, as Ctrl-C, tini and schedulers send them, are for the run: it stops in good order, and
    # ends this by the end of the input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr, level=logging.WARNING)
    # Libraries print to the standard output, too: theirs goes to the error output.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workers = SetAtTheOtherEnd(out)
    request = json.loads(sys.stdin.readline())
    try:
        launcher = launcher_of(request["on"])
    except Fault as fault:
        workers.end(str(fault))
        return 1
    follower = Follower(launcher, workers)
    try:
        launcher.start(request["credentials"])
        follower.start()
        sys.stdin.read()
    except Fault as fault:
        workers.end(str(fault))
        return 1
    finally:
        follower.stop()
        launcher.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
