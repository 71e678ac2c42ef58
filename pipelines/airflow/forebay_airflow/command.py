"""The command line of a run. Pure: values in, words out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any


def instant(value: datetime | str) -> str:
    """An instant in UTC, such as 2016-05-22T00:00:00Z; text is taken as it is."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def parameter(value: Any) -> str:
    """A value for `--param`, in the words that YAML would use."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def command_line(
    forebay: str,
    command: str,
    spec: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    interval: tuple[datetime | str, datetime | str] | None = None,
    run_id: str | None = None,
    state: str | None = None,
    memory: str | None = None,
    threads: int | str | None = None,
    deadline: datetime | str | None = None,
    signal_nothing_new: bool = False,
    signal_ladder: bool = False,
) -> list[str]:
    """The words of `forebay run SPEC ...`."""
    words = [forebay, command, spec, "--json"]
    for name, value in (parameters or {}).items():
        words += ["--param", f"{name}={parameter(value)}"]
    if interval is not None:
        words += ["--interval", instant(interval[0]), instant(interval[1])]
    for flag, option in (("--run-id", run_id), ("--state", state), ("--memory", memory), ("--threads", threads)):
        if option is not None:
            words += [flag, str(option)]
    if deadline is not None:
        words += ["--deadline", instant(deadline)]
    if signal_nothing_new:
        words.append("--signal-nothing-new")
    if signal_ladder:
        words.append("--signal-ladder")
    return words
