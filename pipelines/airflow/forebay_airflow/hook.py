"""The hook: where forebay is, which version it has, short commands, and what lies in a state directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from forebay_airflow import events

#: The oldest forebay whose events and exit codes this package understands.
VERSION_MIN = (0, 1, 0)
#: Short commands (`--version`, `show`) end within this time.
COMMAND_S_MAX = 60.0
#: The exit code of a command whose data are missing.
NOT_THERE = 65


@dataclass(frozen=True)
class Artifact:
    """The newest artifact of a pipeline."""

    id: str
    path: str
    committed_at: datetime


class ForebayHook(BaseHook):
    """Finds and runs the forebay program.

    A connection is optional. Its fields, all of them optional too, are `forebay` (the program), `state` (the state
    directory), `memory`, `threads`, `env` (variables for the process, such as the credentials of S3) and `browse_url`
    (where the links of tasks lead). Arguments win over the connection.

    :param forebay_conn_id: a connection of type `forebay`; without one, arguments and defaults count
    :param forebay: the program, a path or a name on PATH (default: `forebay`)
    :param state: the state directory
    :param env: variables for the process, beside those of the worker
    """

    conn_name_attr = "forebay_conn_id"
    default_conn_name = "forebay_default"
    conn_type = "forebay"
    hook_name = "Forebay"

    def __init__(
        self,
        forebay_conn_id: str | None = None,
        forebay: str | None = None,
        state: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.forebay_conn_id = forebay_conn_id
        self._forebay = forebay
        self._state = state
        self._env = env or {}

    @cached_property
    def extra(self) -> dict[str, Any]:
        """The connection's fields; empty without a connection."""
        if self.forebay_conn_id is None:
            return {}
        return dict(self.get_connection(self.forebay_conn_id).extra_dejson)

    def setting(self, name: str) -> Any:
        """A field of the connection; None where it is empty."""
        return self.extra.get(name) or None

    @property
    def state(self) -> str | None:
        """The state directory, where one is set."""
        return self._state or self.setting("state")

    @property
    def env(self) -> dict[str, str]:
        """The environment of the process: the worker's, the connection's, the argument's; the last wins."""
        given = self.setting("env") or {}
        if isinstance(given, str):
            given = json.loads(given)
        if not isinstance(given, dict):
            raise AirflowException('`env` of the connection is not a map of variables, such as {"AWS_REGION": "eu"}')
        return {**os.environ, **{name: str(value) for name, value in given.items()}, **self._env}

    @cached_property
    def forebay(self) -> str:
        """The program's path; raises where there is none."""
        name = self._forebay or self.setting("forebay") or "forebay"
        found = shutil.which(name, path=self.env.get("PATH"))
        if found is None:
            raise AirflowException(
                f"`{name}` is not a program on this worker\n"
                "hint: install forebay there, or name it with `forebay=` or in the connection"
            )
        return found

    def command(self, words: Sequence[str], cwd: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a short command and waits for it."""
        return subprocess.run(
            [self.forebay, *words],
            env=self.env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )

    @cached_property
    def version(self) -> tuple[int, ...]:
        """The program's version."""
        said = self.command(["--version"]).stdout
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
        if found is None:
            raise AirflowException(f"`{self.forebay} --version` does not tell a version: {said[:200]!r}")
        return tuple(int(part) for part in found.groups())

    def check_version(self) -> None:
        """Raises if the program is too old for this package."""
        if self.version < VERSION_MIN:
            have, need = (".".join(map(str, version)) for version in (self.version, VERSION_MIN))
            raise AirflowException(f"{self.forebay} is version {have}; this package needs {need} or later")

    def test_connection(self) -> tuple[bool, str]:
        """Whether the program is there and its state directory can be read and written; and what was found."""
        try:
            self.check_version()
            version = ".".join(map(str, self.version))
            if self.state is None:
                return True, f"forebay {version}; no state directory is named"
            done = self.command(["doctor", "--state", self.state])
        except Exception as error:
            return False, str(error)
        said = next((line for line in done.stdout.splitlines() if line.startswith("state ")), done.stderr[-2000:])
        return done.returncode == 0, f"forebay {version}; state {said.removeprefix('state').strip()}"

    def newest_artifact(self, pipeline: str, state: str | None = None) -> Artifact | None:
        """The newest artifact of a pipeline in a state directory; None if there is none yet.

        A local directory is read here; `forebay show` looks into any other.
        """
        state = state or self.state or ".forebay"
        if "://" in state:
            return self._show(["--pipeline", pipeline, "--state", state])
        pointer = Path(state) / "artifacts" / f"{pipeline}.json"
        try:
            committed_s = pointer.stat().st_mtime
            artifact = json.loads(pointer.read_text())["artifact"]
        except FileNotFoundError:
            return None
        committed_at = datetime.fromtimestamp(committed_s, timezone.utc)
        return Artifact(artifact, str(pointer.with_name(artifact)), committed_at)

    def artifact(self, path: str) -> Artifact | None:
        """An artifact by its path or URL; None if there is none there."""
        return self._show([path])

    def _show(self, words: list[str]) -> Artifact | None:
        done = self.command(["show", "--json", *words])
        lines = done.stdout.splitlines()
        summary = events.parse(lines[-1]) if lines else None
        # Data that are not there yet; anything else is a mistake or a store that is away.
        if done.returncode == NOT_THERE and summary and summary["fault"]["code"] == "FB0402":
            return None
        if done.returncode != 0 or summary is None:
            raise AirflowException(f"`forebay show {' '.join(words)}` failed:\n{done.stderr[-2000:]}")
        committed_at = datetime.fromisoformat(summary["committed_at"])
        return Artifact(summary["artifact"], summary["artifact_path"], committed_at)
