"""Command lines of forebay. Pure: values in, words out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

#: A value of an option: true is the flag alone, None and false leave the option out, a list repeats it, and a tuple
#: gives it several values.
Option = str | int | float | bool | list[str] | tuple[str, ...] | None


def instant(value: datetime | str) -> str:
    """An instant in UTC, such as 2016-05-22T00:00:00Z; text is taken as it is."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def civil(value: datetime | str) -> str:
    """A date and time of UTC without a zone, as `--from` and `--to` of a backfill take it."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        # Forebay says what is wrong with it.
        return str(value)
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    return moment.isoformat()


def parameter(value: Any) -> str:
    """A value for `--param`, in the words that YAML would use."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def pairs(values: Mapping[str, Any] | None) -> list[str]:
    """`NAME=VALUE` for each entry, as `--param` and `--source` take it."""
    return [f"{name}={parameter(value)}" for name, value in (values or {}).items()]


def command_line(forebay: str, command: str, subject: str, options: Mapping[str, Option]) -> list[str]:
    """The words of `forebay COMMAND SUBJECT --json ...`; options have forebay's names, with `_` for `-`."""
    words = [forebay, command, subject, "--json"]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, tuple):
            words += [flag, *value]
        elif isinstance(value, list):
            for item in value:
                words += [flag, item]
        else:
            words += [flag, str(value)]
    return words
