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

#: The oldest forebay whose events and exit codes this package understands.
VERSION_MIN = (0, 1, 0)
#: Short commands (`--version`, `show`) end within this time.
COMMAND_S_MAX = 60.0


@dataclass(frozen=True)
class Artifact:
    """The newest artifact of a pipeline."""

    id: str
    path: str
    committed_at: datetime


class ForebayHook(BaseHook):
    """Finds and runs the forebay program.

    A connection is optional. Its extra may hold `forebay` (the program), `state` (the state directory) and
    `env` (variables for the process, such as the credentials of S3). Arguments win over the connection.

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

    @staticmethod
    def get_ui_field_behaviour() -> dict[str, Any]:
        """Only the extra of a connection means something."""
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {},
            "placeholders": {"extra": '{"forebay": "/usr/local/bin/forebay", "state": "/var/lib/forebay"}'},
        }

    @cached_property
    def extra(self) -> dict[str, Any]:
        """The connection's extra; empty without a connection."""
        if self.forebay_conn_id is None:
            return {}
        return dict(self.get_connection(self.forebay_conn_id).extra_dejson)

    @property
    def state(self) -> str | None:
        """The state directory, where one is set."""
        return self._state or self.extra.get("state")

    @property
    def env(self) -> dict[str, str]:
        """The environment of the process: the worker's, the connection's, the argument's; the last wins."""
        return {**os.environ, **self.extra.get("env", {}), **self._env}

    @cached_property
    def forebay(self) -> str:
        """The program's path; raises where there is none."""
        name = self._forebay or self.extra.get("forebay") or "forebay"
        found = shutil.which(name, path=self.env.get("PATH"))
        if found is None:
            raise AirflowException(
                f"`{name}` is not a program on this worker\n"
                "hint: install forebay there, or name it with `forebay=` or in the connection's extra"
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

    def newest_artifact(self, pipeline: str, state: str | None = None) -> Artifact | None:
        """The newest artifact of a pipeline in a local state directory; None if there is none yet."""
        state = state or self.state or ".forebay"
        if "://" in state:
            raise ValueError(f"{state} is not a local directory: name the artifact instead")
        pointer = Path(state) / "artifacts" / f"{pipeline}.json"
        try:
            committed_s = pointer.stat().st_mtime
            artifact = json.loads(pointer.read_text())["artifact"]
        except FileNotFoundError:
            return None
        committed_at = datetime.fromtimestamp(committed_s, timezone.utc)
        return Artifact(artifact, str(pointer.with_name(artifact)), committed_at)

    def shows(self, artifact: str) -> bool:
        """Whether `forebay show` can read an artifact, which may lie on S3."""
        done = self.command(["show", "--rows", "0", artifact])
        if done.returncode not in (0, 65):
            raise AirflowException(f"`forebay show {artifact}` failed:\n{done.stderr[-2000:]}")
        return done.returncode == 0
