"""What is told of a run: to a function, to a terminal, and to a log."""

from __future__ import annotations

import os
import pathlib
import pty
import subprocess
import sys
from typing import Any

import pytest
from conftest import SPEC, Shop

import forebay
from forebay import _progress


def fresh(shop: Shop, tmp_path: pathlib.Path) -> dict[str, Any]:
    """Arguments of a run that has everything to do."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    return {"spec": spec, "params": {**shop.params, "out": tmp_path / "out"}, "state": tmp_path / "state"}


def test_a_function_hears_each_event(shop: Shop, tmp_path: pathlib.Path) -> None:
    heard: list[dict[str, Any]] = []
    summary = forebay.run(**fresh(shop, tmp_path), progress=heard.append)
    kinds = [event["event"] for event in heard]
    assert kinds[0] == "discovered" and kinds.count("pass_started") == kinds.count("pass_done") == 2
    read = sum(event["rows"] for event in heard if event["event"] == "progress")
    assert read >= summary["outputs"][0]["rows"]


def test_what_a_function_raises_stops_the_run(shop: Shop, tmp_path: pathlib.Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        raise KeyError(event["event"])

    with pytest.raises(KeyError, match="discovered"):
        forebay.run(**fresh(shop, tmp_path), progress=stop)


EVENTS = [
    {"event": "pass_started", "number": 2, "total": 3, "label": "write features", "bytes": 4000},
    {"event": "pass_reads", "bytes": 1000, "of": 4000},
    {"event": "progress", "rows": 1200, "bytes": 250},
    {"event": "eta", "seconds_left": 125.0, "end": "x"},
    {"event": "warning", "message": "late"},
    {"event": "something_new"},
]


class Line(_progress.ProgressLine):
    """Keeps what is shown."""

    every_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def draw(self, line: str) -> None:
        self.shown.append(line)

    def note(self, text: str) -> None:
        self.shown.append(f"note {text}")


def test_the_line() -> None:
    line = Line()
    line.hear({"event": "discovered", "source": "shop", "spans": 1, "rows": 10, "bytes": 100})
    assert line.shown == []
    for event in EVENTS:
        line.hear(event)
    assert line.shown[0] == "pass 2 of 3: write features"
    assert line.shown[2].startswith("pass 2 of 3: write features, 25 %, 1.2 k rows, ")
    assert line.shown[3].endswith(" rows/s, 2 min left")
    assert "note warning: late" in line.shown
    # Bytes of another pass do not count.
    line.hear({"event": "pass_started", "number": 3, "total": 3, "label": "train", "bytes": None})
    assert line.shown[-1] == "pass 3 of 3: train, 2 min left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (125, "2 min"), (3900, "65 min"), (9000, "2 h 30 min")]
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert _progress.clock(seconds) == text


RUN = "import sys, forebay; forebay.run(sys.argv[1], {'data': sys.argv[2], 'out': sys.argv[3]}, state=sys.argv[4]"


def words(shop: Shop, tmp_path: pathlib.Path, more: str) -> list[str]:
    """A process that runs the pipeline."""
    fresh(shop, tmp_path)
    places = ["spec.yaml", "out", "state"]
    spec, out, state = (str(tmp_path / place) for place in places)
    return [sys.executable, "-c", RUN + more, spec, str(shop.params["data"]), out, state]


@pytest.mark.parametrize(
    ("more", "lines"), [(")", []), (", progress=True)", ["pass 1 of 2: ", "pass 2 of 2: "]), (", progress=False)", [])]
)
def test_without_a_terminal(shop: Shop, tmp_path: pathlib.Path, more: str, lines: list[str]) -> None:
    done = subprocess.run(words(shop, tmp_path, more), capture_output=True, text=True, check=True)
    assert done.stdout == ""
    said = done.stderr.splitlines()
    assert len(said) == len(lines) and all(line.startswith(begin) for line, begin in zip(said, lines, strict=True))


def test_in_a_terminal(shop: Shop, tmp_path: pathlib.Path) -> None:
    """The line is written again, fits, and is gone in the end."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "40"}
    running = subprocess.Popen(words(shop, tmp_path, ")"), stderr=theirs, stdout=subprocess.PIPE, env=env)
    os.close(theirs)
    said = b""
    try:
        while some := os.read(ours, 4096):
            said += some
    except OSError:
        # The other side is closed.
        pass
    assert running.wait() == 0 and running.stdout is not None and running.stdout.read() == b""
    running.stdout.close()
    os.close(ours)
    drawn = [line.removeprefix("\x1b[2K") for line in said.decode().split("\r") if line]
    assert drawn[0].startswith("pass 1 of 2: ") and drawn[-1] == ""
    assert all(len(line) < 40 for line in drawn)
