"""The program `forebay`, which `pip install` puts on the path."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from . import _forebay


def main() -> NoReturn:
    """Runs the command line of this process."""
    # Ctrl-C ends the process, as it ends any program that does not ask for it; runs ask, and stop in good order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _forebay.main(["forebay", *sys.argv[1:]])
    # Without Python's own farewell: threads that are still at work would be waited for.
    sys.stdout.flush()
    os._exit(code)
