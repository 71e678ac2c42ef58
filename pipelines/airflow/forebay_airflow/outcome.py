"""What an exit code means to Airflow."""

from __future__ import annotations

import signal
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from forebay_airflow.events import fault_text

DONE = 0
USAGE = 64
DATA = 65
TRY_AGAIN = 75
CONFIGURATION = 78
DEGRADED = 98
NOTHING_NEW = 99

#: Trying again gives the same: the spec, the command line or the data have to change first.
LASTING = {USAGE: "the command line is wrong", DATA: "the data are at fault", CONFIGURATION: "the spec is at fault"}

#: Characters of standard error in an exception; all of it is in the log.
ERRORS_CHARS_MAX = 2000


def judge(exit_code: int | None, summary: dict[str, Any] | None, errors: str) -> dict[str, Any]:
    """The summary of a run that is done; raises what Airflow needs to hear of any other.

    98 is a run that degraded to be on time: it is done, and its summary says how. 99 skips the task; 75 and
    whatever is unknown fail this attempt, and Airflow retries; 64, 65 and 78 fail the task for good.
    No exit code means that the process is gone without a last message.
    """
    if exit_code in (DONE, DEGRADED):
        if summary is None:
            raise AirflowException("forebay ended well but printed no summary: is it older than this package?")
        return summary
    if exit_code == NOTHING_NEW:
        raise AirflowSkipException("nothing is new: nothing was read, nothing was written")
    fault = (summary or {}).get("fault")
    said = fault_text(fault) if fault else errors[-ERRORS_CHARS_MAX:] or "nothing was said"
    if exit_code in LASTING:
        raise AirflowFailException(f"{LASTING[exit_code]} (exit code {exit_code})\n{said}")
    if exit_code == TRY_AGAIN:
        raise AirflowException(f"to be tried again (exit code {exit_code})\n{said}")
    raise AirflowException(f"{ending(exit_code)}\n{said}")


def ending(exit_code: int | None) -> str:
    """An unexpected end in words."""
    if exit_code is None:
        return "the run is lost: its machine went away or its keeper was killed; a retry continues it"
    if exit_code > 128:
        try:
            return f"the run was ended by {signal.Signals(exit_code - 128).name}; a retry continues it"
        except ValueError:
            pass
    return f"the run failed with exit code {exit_code}"
