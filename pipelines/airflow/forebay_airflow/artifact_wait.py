"""What a sensor waits for; its trigger looks for the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay_airflow.hook import ForebayHook


@dataclass(frozen=True)
class ArtifactWait:
    """The newest artifact of `pipeline` in `state`, or the one at `artifact`; the rest as `ForebayHook` takes it."""

    pipeline: str | None
    artifact: str | None
    state: str | None
    #: Only an artifact that was committed at or after this instant counts.
    since: str | None
    forebay: str | None
    forebay_conn_id: str | None

    def look(self) -> tuple[dict[str, Any] | None, str]:
        """What was found, if it counts, and a sentence about it."""
        hook = ForebayHook(self.forebay_conn_id, self.forebay, self.state)
        name = self.artifact or self.pipeline or ""
        newest = hook.artifact(name) if self.artifact is not None else hook.newest_artifact(name)
        if newest is None:
            return None, f"{name}: no artifact yet"
        text = f"{name}: artifact {newest.id}, committed at {newest.committed_at}"
        if self.since is not None and newest.committed_at < datetime.fromisoformat(self.since):
            return None, f"{text}, is older than {self.since}"
        return {"artifact": newest.id, "path": newest.path, "committed_at": newest.committed_at.isoformat()}, text
