"""The sensor: waits for an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from forebay_airflow.artifact_wait import ArtifactWait
from forebay_airflow.trigger import ForebayArtifactTrigger


class ForebayArtifactSensor(BaseSensorOperator):
    """Waits until a pipeline has an artifact; gives it as XCom: `artifact`, `path`, `committed_at`.

    Either `pipeline`, whose newest artifact in the state directory counts, or `artifact`, one that is known by its
    path or URL. Local state directories are read; `forebay show` looks into others, and needs the program
    on the worker, or on the triggerer if deferrable.

    :param pipeline: the pipeline's name (templated, as are all down to `forebay`)
    :param artifact: the directory of one artifact
    :param state: the state directory of `pipeline`
    :param newer_than: only an artifact that was committed at or after this instant counts (ISO 8601 with a
        time zone); `interval` is the end of the run's data interval
    :param forebay: the program
    :param forebay_conn_id: a connection of type `forebay`, see `ForebayHook`
    :param deferrable: whether the task gives its worker slot back while it waits
        (default: `[operators] default_deferrable`)
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
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
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
        self.deferrable = deferrable

    def wait(self, context: Context) -> ArtifactWait:
        """What is waited for."""
        since = self._since(context)
        return ArtifactWait(
            self.pipeline,
            self.artifact,
            self.state,
            None if since is None else since.isoformat(),
            self.forebay,
            self.forebay_conn_id,
        )

    def execute(self, context: Context) -> Any:
        """Waits, in a trigger if deferrable."""
        if not self.deferrable:
            return super().execute(context)
        wait = self.wait(context)
        found, _ = wait.look()
        if found is None:
            self.defer(
                trigger=ForebayArtifactTrigger(wait, self.poke_interval),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return found

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Goes on after the trigger."""
        if "error" in event:
            raise AirflowException(event["error"])
        return event["found"]

    def poke(self, context: Context) -> PokeReturnValue:
        """Looks once."""
        found, text = self.wait(context).look()
        self.log.info("%s", text)
        return PokeReturnValue(found is not None, found)

    def _since(self, context: Context) -> datetime | None:
        if self.newer_than is None:
            return None
        if self.newer_than == "interval":
            return context.get("data_interval_end")
        since = datetime.fromisoformat(self.newer_than)
        if since.tzinfo is None:
            raise ValueError(f"`newer_than` {self.newer_than} has no time zone")
        return since
