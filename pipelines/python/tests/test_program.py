"""The program that the package brings: the same command line as the one that Cargo builds."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import sysconfig
from typing import Any

import pytest
from conftest import SPEC, Shop

import forebay

PROGRAM = pathlib.Path(sysconfig.get_path("scripts")) / "forebay"
MODULE = [sys.executable, "-m", "forebay"]


def program(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command."""
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, **more)


def test_installing_the_package_gives_the_command(tmp_path: pathlib.Path) -> None:
    assert program("--version").stdout == f"forebay {forebay.__version__}\n"
    assert subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "forebay"
    )
    wrong = program("runn", "--json")
    assert wrong.returncode == 64 and "runn" in wrong.stderr
    assert json.loads(wrong.stdout)["fault"]["code"] == "FB0111"
    lost = program("run", tmp_path / "nowhere.yaml", "--json")
    assert lost.returncode == 65 and json.loads(lost.stdout)["status"] == "failed"


def test_the_command_runs_what_the_library_runs(shop: Shop, tmp_path: pathlib.Path) -> None:
    params = [f"--param={name}={path}" for name, path in shop.params.items()]
    done = program("run", shop.spec, *params, "--state", shop.state, "--json", "--signal-nothing-new")
    assert done.returncode == 99, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["artifact_path"] == shop.artifact
    # Worker processes are this program, too.
    params = [f"--param=data={shop.params['data']}", f"--param=out={tmp_path / 'out'}"]
    options = ["--state", tmp_path / "state", "--local-workers=1", "--memory=1GiB", "--threads=2", "--json"]
    done = program("run", shop.spec, *params, *options)
    assert done.returncode == 0, done.stderr
    assert any(json.loads(line)["event"] == "worker_joined" for line in done.stdout.splitlines())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 75), (signal.SIGTERM, 75)])
def test_signals_stop_a_run_in_good_order(shop: Shop, tmp_path: pathlib.Path, number: int, code: int) -> None:
    """A run that waits for its source is asked to stop, and says so."""
    spec = tmp_path / "spec.yaml"
    ready = '  shop:\n    ready: { marker: never, timeout: 1h }\n    parquet: { path: "${data}" }'
    spec.write_text(SPEC.replace('  shop: { parquet: { path: "${data}" } }', ready))
    words = [PROGRAM, "run", spec, f"--param=data={shop.params['data']}", f"--param=out={tmp_path / 'out'}", "--json"]
    running = subprocess.Popen(
        [*map(str, words), "--state", str(tmp_path / "state")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert running.stdout is not None
    with running.stdout as lines:
        heard = [json.loads(next(lines))]
        while heard[-1]["event"] != "waiting":
            heard.append(json.loads(next(lines)))
        os.kill(running.pid, number)
        heard += [json.loads(line) for line in lines]
    assert running.wait(60) == code
    assert heard[-1]["status"] == "failed"


def terminal_text(*words: object) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen([PROGRAM, *map(str, words)], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    written = b""
    try:
        while some := os.read(ours, 4096):
            written += some
    except OSError:
        # The other side is closed.
        pass
    os.close(ours)
    faults = running.communicate()[1]
    assert running.returncode == 0, faults
    return written.decode().replace("\r\n", "\n")


# Clears the screen, and turns the direction of writing.
STEERING = "a\x1b[2J\u202eb\x9b"

ESCAPED = r"a\u{1b}[2J\u{202e}b\u{9b}"


@pytest.mark.parametrize("form", ["csv", "table", "json"])
def test_rows_do_not_steer_a_terminal(tmp_path: pathlib.Path, form: str) -> None:
    """Other programs get the characters of the data, and terminals their escapes."""
    (tmp_path / "in.csv").write_text(f"id,name\n1,{STEERING}\n", encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"version: 1\nname: shown\nsources: {{ rows: {{ csv: {{ path: {json.dumps(str(tmp_path / 'in.csv'))} }} }} }}\n"
        'steps: { named: { from: rows, do: [ derive: { next: "id + 1" } ] } }\n'
        f"sinks: {{ table: {{ from: named, csv: {{ path: {json.dumps(str(tmp_path / 'out'))} }} }} }}\n"
    )
    words = ["preview", spec, "named", f"--format={form}", "--state", tmp_path / "state"]
    shown = terminal_text(*words)
    assert not any(letter in shown for letter in "\x1b\x9b\u202e")
    # JSON has escapes of its own for some.
    assert form == "json" or ESCAPED in shown
    if form == "csv":
        assert shown == f"id,name,next\n1,{ESCAPED},2\n"
        piped = program(*words)
        assert piped.returncode == 0, piped.stderr
        assert piped.stdout == f"id,name,next\n1,{STEERING},2\n"
