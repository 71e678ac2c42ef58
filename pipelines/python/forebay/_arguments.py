"""Arguments of any kind as requests to the compiled half; wrong ones are faults that name the argument."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

from ._fault import SpecFault

BAD_VALUE = "FB0104"
COUNT_MAX = 2**63 - 1

#: Where rows come from or go to.
Path = str | os.PathLike[str]
#: A time of the data.
Moment = str | date | datetime
#: Start and end of an interval; the end is no part of it.
Interval = tuple[Moment, Moment]
#: Addresses of workers, or a mapping with `addresses` and how to speak to them.
Workers = Sequence[str] | Mapping[str, Any]


#: Characters of a value that a fault shows.
SHOWN_CHARS_MAX = 200


def wrong(name: str, value: object, wanted: str, hint: str | None = None) -> SpecFault:
    """The fault of a wrong argument."""
    return SpecFault(BAD_VALUE, f"`{name}` is {_shown(value)}, not {wanted}", hint)


def _shown(value: object) -> str:
    """A value in one line; of tables and other large ones the type alone."""
    text = repr(value)
    if "\n" in text or len(text) > SHOWN_CHARS_MAX:
        return f"of type {type(value).__module__}.{type(value).__qualname__}"
    return text


def count(name: str, value: object, least: int = 0, most: int = COUNT_MAX) -> int:
    """A whole number within limits; numpy's and others' count, too."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong(name, value, "a whole number") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise wrong(name, value, f"a whole number from {least} to {most}")
    return number


def optional_count(name: str, value: object, least: int = 0, most: int = COUNT_MAX) -> int | None:
    """The same, or None."""
    return None if value is None else count(name, value, least, most)


def number(name: str, value: object) -> float | None:
    """A finite number, or None."""
    if value is None:
        return None
    try:
        given = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise wrong(name, value, "a number") from None
    if not math.isfinite(given):
        raise wrong(name, value, "a finite number")
    return given


def choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of several words."""
    if value not in choices:
        raise wrong(name, value, f"one of {', '.join(map(repr, choices))}")
    return str(value)


def path(name: str, value: object) -> str:
    """A path or a URL."""
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise wrong(name, value, "a path") from None
    return os.fsdecode(text)


def mapping(name: str, value: object) -> object:
    """A mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise wrong(name, value, "a mapping of fields to values")
    return value


def paths(name: str, values: Mapping[str, Any] | None) -> dict[str, str]:
    """Paths by name."""
    mapping(name, values)
    return {str(key): path(f"{name}[{key!r}]", value) for key, value in (values or {}).items()}


def moment(name: str, value: Moment) -> str:
    """A time in the words of the command line; one with a zone becomes one of UTC."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value
    raise wrong(name, value, "a date, a time or a text such as '2016-05-22'")


def interval(value: Interval | None) -> list[str] | None:
    """Start and end, or None."""
    if value is None:
        return None
    if isinstance(value, str) or len(value) != 2:
        raise wrong("interval", value, "a pair of start and end")
    return [moment("interval", value[0]), moment("interval", value[1])]


def deadline_text(value: object) -> str | None:
    """When to be done: a text, an instant, or how long from now."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return f"{max(0, round(value.total_seconds()))}s"
    if isinstance(value, datetime) and value.tzinfo is None:
        raise wrong("deadline", value, "an instant: it has no time zone", "give `datetime(..., tzinfo=timezone.utc)`")
    if isinstance(value, datetime):
        return moment("deadline", value)
    if isinstance(value, str):
        return value
    raise wrong("deadline", value, "a time of day, an instant or a length of time such as '45m'")


def params(values: Mapping[str, object] | None) -> dict[str, str]:
    """Values of parameters, in the words that YAML would use."""
    mapping("params", values)
    return {str(name): _text(value) for name, value in (values or {}).items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return moment("params", value)
    return os.fsdecode(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def length(name: str, value: timedelta) -> str:
    """A length of time in the words of specs."""
    if value < timedelta(0) or value.microseconds:
        raise wrong(name, value, "a length of whole seconds from 0 on")
    seconds = value.days * 86_400 + value.seconds
    for unit, word in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds % unit == 0:
            return f"{seconds // unit}{word}"
    return f"{seconds}s"


def plain(name: str, value: Any) -> Any:
    """A value as JSON has it; numpy's numbers and arrays, paths, times and lengths of time become plain ones."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, date):
        return moment(name, value)
    if isinstance(value, timedelta):
        return length(name, value)
    if isinstance(value, os.PathLike):
        return path(name, value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(f"{name}[{at}]", inner) for at, inner in enumerate(value)]
    # Arrays of numpy, and columns and indexes of pandas.
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0:
        return plain(name, value.tolist())
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        given = float(value)
    except (TypeError, ValueError):
        raise wrong(name, value, "a value that JSON has") from None
    if not math.isfinite(given):
        raise wrong(name, value, "a finite number")
    return given


def machine(
    *,
    state: Path | None,
    memory: int | str | None,
    threads: int | None,
    workers: Workers | None = None,
    local_workers: int | None = None,
    run_id: str | None = None,
    deadline: object = None,
    allow_empty: bool = False,
) -> dict[str, Any]:
    """How a session works."""
    return {
        "state": None if state is None else path("state", state),
        "memory": memory if isinstance(memory, str) else optional_count("memory", memory, 1),
        "threads": optional_count("threads", threads, 1, 2**16),
        "workers": None if workers is None else plain("workers", workers),
        "local_workers": optional_count("local_workers", local_workers, 0, 2**10),
        "run_id": run_id,
        "deadline": deadline_text(deadline),
        "allow_empty": bool(allow_empty),
    }


def dumps(request: Any) -> str:
    """A request as text."""
    return json.dumps(request, allow_nan=False)
