"""The progress of a run: a line that is written again in a terminal, a line of a notebook, or plain lines."""

from __future__ import annotations

import html
import importlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

#: Takes the events of a run, as `forebay run --json` prints them.
Listener = Callable[[dict[str, Any]], object]

#: Seconds between two states of a line that is written again, and between two plain lines.
REDRAW_S = 0.2
PLAIN_S = 10.0


def listener(progress: bool | Listener | None) -> tuple[Callable[[str], object] | None, Callable[[], None]]:
    """What the compiled half calls with each event, and what is called when the run has ended.

    True shows progress anywhere, None where someone can see it: in a terminal and in a notebook.
    """
    if callable(progress):
        hear = progress
        return lambda text: hear(json.loads(text)), lambda: None
    if progress is False:
        return None, lambda: None
    shown: ProgressLine
    if in_notebook():
        shown = NotebookLine()
    elif sys.stderr is not None and sys.stderr.isatty():
        shown = TerminalLine(sys.stderr)
    elif progress:
        shown = PlainLines(sys.stderr)
    else:
        return None, lambda: None
    return lambda text: shown.hear(json.loads(text)), shown.close


def in_notebook() -> bool:
    """Whether the code runs in a cell of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def short(count: float) -> str:
    """A count as people say it: `950`, `1.2 k`, `3.4 M`."""
    for unit in ("", " k", " M", " G"):
        if count < 1000 or unit == " G":
            break
        count /= 1000
    return f"{count:.0f}" if unit == "" else f"{count:.1f}{unit}"


def clock(seconds: float) -> str:
    """A length of time: `45 s`, `3 min`, `1 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class ProgressLine:
    """One line about the pass at work."""

    every_s = REDRAW_S

    def __init__(self) -> None:
        self.label = ""
        self.message = ""
        self.planned_bytes: int | None = None
        self.read_bytes = 0
        self.rows = 0
        self.left_s: float | None = None
        self.begun = self.drawn = time.monotonic()

    def hear(self, event: dict[str, Any]) -> None:
        """Takes an event."""
        kind = event["event"]
        urgent = False
        if kind == "pass_started":
            self.label = f"pass {event['number']} of {event['total']}: {event['label']}"
            self.planned_bytes, self.read_bytes, self.rows, self.message = event.get("bytes"), 0, 0, ""
            self.begun, urgent = time.monotonic(), True
        elif kind == "pass_reads" and self.planned_bytes is not None:
            self.planned_bytes += event["bytes"] - event["of"]
        elif kind == "progress":
            self.rows += event["rows"]
            self.read_bytes += event["bytes"]
        elif kind == "eta":
            self.left_s = event["seconds_left"]
        elif kind == "training_step":
            self.message = f"{event['sink']}: step {event['step']} of {event['steps']}, loss {event['loss']:.4g}"
        elif kind == "warning":
            self.note(f"warning: {event['message']}")
        if self.label and (urgent or time.monotonic() - self.drawn >= self.every_s):
            self.drawn = time.monotonic()
            self.draw(self.line())

    def line(self) -> str:
        """What is known of the pass."""
        parts = [self.label]
        if self.planned_bytes and self.read_bytes:
            parts.append(f"{min(100, self.read_bytes * 100 // self.planned_bytes)} %")
        if self.rows:
            seconds = max(time.monotonic() - self.begun, 1e-3)
            parts.append(f"{short(self.rows)} rows, {short(self.rows / seconds)} rows/s")
        if self.message:
            parts.append(self.message)
        if self.left_s is not None:
            parts.append(f"{clock(self.left_s)} left")
        return ", ".join(part for part in parts if part)

    def draw(self, line: str) -> None:
        """Shows the line."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        raise NotImplementedError

    def close(self) -> None:
        """Takes the line away."""


class TerminalLine(ProgressLine):
    """A line of a terminal."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.out = out

    def draw(self, line: str) -> None:
        columns = shutil.get_terminal_size().columns
        self.out.write(f"\r\x1b[2K{line[: columns - 1]}")
        self.out.flush()

    def note(self, text: str) -> None:
        self.out.write(f"\r\x1b[2K{text}\n")

    def close(self) -> None:
        self.out.write("\r\x1b[2K")
        self.out.flush()


class PlainLines(ProgressLine):
    """Lines of a log."""

    every_s = PLAIN_S

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self.out = out

    def draw(self, line: str) -> None:
        self.out.write(f"{line}\n")
        self.out.flush()

    def note(self, text: str) -> None:
        self.draw(text)


class NotebookLine(ProgressLine):
    """An output of a cell."""

    def __init__(self) -> None:
        super().__init__()
        display: Any = importlib.import_module("IPython.display")
        self.html = display.HTML
        self.display = display.display
        self.handle = self.display(self.html(""), display_id=True)

    def draw(self, line: str) -> None:
        self.handle.update(self.html(f"<code>{html.escape(line)}</code>"))

    def note(self, text: str) -> None:
        self.display(self.html(f"<code>{html.escape(text)}</code>"))

    def close(self) -> None:
        self.handle.update(self.html(""))
