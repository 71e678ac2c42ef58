"""The sensor: waits for an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from forebay_airflow.hook import ForebayHook


class ForebayArtifactSensor(BaseSensorOperator):
    """Waits until a pipeline has an artifact; gives it as XCom: `artifact`, `path`, `committed_at`.

    Either `pipeline`, whose newest artifact in a local state directory counts, or `artifact`, one that is
    known by its path or s3:// URL and is asked for with `forebay show`.

    :param pipeline: the pipeline's name (templated, as are all but the last)
    :param artifact: the directory of one artifact
    :param state: the state directory of `pipeline`
    :param newer_than: only an artifact that was committed at or after this instant counts (ISO 8601 with a
        time zone); `interval` is the end of the run's data interval
    :param forebay: the program
    :param forebay_conn_id: a connection of type `forebay`, see `ForebayHook`
    """

    template_fields: Sequence[str] = ("pipeline", "artifact", "state", "newer_than", "forebay")
    ui_color = "#e6f1f5"

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        artifact: str | None = None,
        state: str | None = None,
        newer_than: str | None = None,
        forebay: str | None = None,
        forebay_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (pipeline is None) == (artifact is None):
            raise ValueError("name either `pipeline` or `artifact`")
        if artifact is not None and newer_than is not None:
            raise ValueError("`newer_than` goes with `pipeline`: an artifact of a given path never changes")
        self.pipeline = pipeline
        self.artifact = artifact
        self.state = state
        self.newer_than = newer_than
        self.forebay = forebay
        self.forebay_conn_id = forebay_conn_id

    @cached_property
    def hook(self) -> ForebayHook:
        """The hook with this task's arguments."""
        return ForebayHook(self.forebay_conn_id, self.forebay, self.state)

    def poke(self, context: Context) -> PokeReturnValue:
        """Looks once."""
        if self.artifact is not None:
            there = self.hook.shows(self.artifact)
            self.log.info("%s is %s", self.artifact, "there" if there else "not there yet")
            return PokeReturnValue(there, {"path": self.artifact} if there else None)
        assert self.pipeline is not None
        newest = self.hook.newest_artifact(self.pipeline)
        if newest is None:
            self.log.info("%s has no artifact yet", self.pipeline)
            return PokeReturnValue(False)
        since = self._since(context)
        done = since is None or newest.committed_at >= since
        self.log.info("the newest artifact of %s is %s of %s", self.pipeline, newest.id, newest.committed_at)
        found = {"artifact": newest.id, "path": newest.path, "committed_at": newest.committed_at.isoformat()}
        return PokeReturnValue(done, found if done else None)

    def _since(self, context: Context) -> datetime | None:
        if self.newer_than is None:
            return None
        if self.newer_than == "interval":
            return context.get("data_interval_end")
        since = datetime.fromisoformat(self.newer_than)
        if since.tzinfo is None:
            raise ValueError(f"`newer_than` {self.newer_than} has no time zone")
        return since
