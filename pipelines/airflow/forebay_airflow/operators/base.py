"""What all operators share: a process of forebay, from its start to what its exit code means to Airflow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException

from forebay_airflow import events, openlineage
from forebay_airflow.command import Option, instant
from forebay_airflow.hook import ForebayHook
from forebay_airflow.links import ForebayArtifactLink, ForebayReportLink, browsable
from forebay_airflow.outcome import judge
from forebay_airflow.process import GRACE_S, UNWATCHED_S, Run
from forebay_airflow.trigger import ForebayRunTrigger

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

AUTO = "auto"
#: Seconds between looks at a run.
POLL_S = 0.5

#: Start and end, half-open.
Interval = tuple[datetime | str, datetime | str]


class ForebayBaseOperator(BaseOperator):
    """Runs a command of forebay.

    The summary of the run is the task's XCom. Exit code 98 is a run that degraded to be on time: the task is done,
    its log warns, and `ladder` in the XCom says how. 99 skips the task, 75 lets Airflow retry, 64, 65 and
    78 fail it for good. Killing the task stops the process. Each asset among the outlets gets an event with
    the artifact's id and the rows of each sink.

    :param run_id: `auto` is `<dag>.<task>.<run id>`, the same for every attempt; None leaves it out
        (templated, as are all arguments down to `run_directory`)
    :param state: the state directory: a path, or an s3:// URL
    :param memory: memory that the process may use, such as `4GiB`
    :param threads: threads
    :param forebay: the program, a path or a name on PATH
    :param env: variables for the process, beside those of the worker
    :param cwd: the directory that relative paths of the spec begin at
    :param openlineage: where lineage events go: `file:///path/of/events.jsonl` or the URL of an endpoint;
        not needed where Airflow's OpenLineage provider is configured
    :param run_directory: where files of running processes lie; shared by workers and triggerer if deferrable
    :param forebay_conn_id: a connection of type `forebay`, see `ForebayHook`
    :param deferrable: whether the task gives its worker slot back while the process runs
        (default: `[operators] default_deferrable`)
    :param poll_s: seconds between looks at the process
    :param grace_s: seconds that the process has to end when stopped; then it is killed
    :param unwatched_s: seconds after which a deferred run is stopped that no triggerer watches
    """

    template_fields: Sequence[str] = (
        "run_id",
        "state",
        "memory",
        "threads",
        "forebay",
        "env",
        "cwd",
        "openlineage",
        "run_directory",
    )
    operator_extra_links = (ForebayArtifactLink(), ForebayReportLink())
    ui_color = "#d7e8f0"

    def __init__(
        self,
        *,
        run_id: str | None = AUTO,
        state: str | None = None,
        memory: str | None = None,
        threads: int | str | None = None,
        forebay: str | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        openlineage: str | None = None,
        run_directory: str | None = None,
        forebay_conn_id: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_s: float = POLL_S,
        grace_s: float = GRACE_S,
        unwatched_s: float = UNWATCHED_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.run_id = run_id
        self.state = state
        self.memory = memory
        self.threads = threads
        self.forebay = forebay
        self.env = env
        self.cwd = cwd
        self.openlineage = openlineage
        self.run_directory = run_directory
        self.forebay_conn_id = forebay_conn_id
        self.deferrable = deferrable
        self.poll_s = poll_s
        self.grace_s = grace_s
        self.unwatched_s = unwatched_s
        #: URLs of the artifact and of the report, once the run has ended.
        self.links: dict[str, str] = {}
        self._run: Run | None = None
        self._killed = False
        #: The summary and the events of a run that has ended.
        self._ended: tuple[dict[str, Any], list[dict[str, Any]]] = ({}, [])

    def words(self, context: Context) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def check_done(self, summary: dict[str, Any]) -> None:
        """Raises where a run that ended well is not to be green."""

    def interval_of(self, context: Context) -> Interval | None:
        """The interval that the run writes, if it has one."""
        return None

    def read_places(self) -> Mapping[str, str]:
        """Where sources are, by name, where the task says so and not the spec."""
        return {}

    def report_path(self) -> str | None:
        """The page that the run writes."""
        return None

    @cached_property
    def hook(self) -> ForebayHook:
        """The hook with this task's arguments."""
        return ForebayHook(self.forebay_conn_id, self.forebay, self.state, self.env)

    def machine_options(self, context: Context) -> dict[str, Option]:
        """The options that all commands take; what the task does not say, the connection may."""
        ti = context["ti"]
        name = f"{ti.dag_id}.{ti.task_id}" + (f".{mapped}" if (mapped := _map_index(context)) >= 0 else "")
        return {
            "run_id": f"{name}.{context['run_id']}" if self.run_id == AUTO else self.run_id,
            "state": self.hook.state,
            "memory": self.memory or self.hook.setting("memory"),
            "threads": self.threads or self.hook.setting("threads"),
        }

    def execute(self, context: Context) -> dict[str, Any]:
        """Runs the command; gives the summary."""
        self.hook.check_version()
        words = self.words(context)
        self.log.info("%s", " ".join(words))
        run = self._run = Run(self._place(context))
        self._lineage(context, "START")
        # While a task is deferred, only the keeper enforces its timeout; otherwise Airflow does.
        timeout_s = self.execution_timeout.total_seconds() if self.deferrable and self.execution_timeout else None
        keeper = run.start(words, self.hook.env, self.cwd, self.grace_s, self.deferrable, timeout_s, self.unwatched_s)
        if self.deferrable:
            self.defer(
                trigger=ForebayRunTrigger(str(run.directory), self.poll_s, self.grace_s),
                method_name="execute_complete",
            )
        try:
            while keeper.poll() is None:
                self._tell(run)
                time.sleep(self.poll_s)
            self._tell(run)
        except BaseException as error:
            # Airflow's time-out and the like: it calls `on_kill` next.
            self._lineage(context, "ABORT", error=repr(error))
            raise
        return self._finish(context, run, run.exit_code())

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Goes on after the trigger: the process has ended."""
        return self._finish(context, Run(event["directory"]), event["exit_code"])

    def on_kill(self) -> None:
        """Stops the process; it gets SIGTERM, and SIGKILL after the grace time even if this task is gone by then."""
        self._killed = True
        if self._run is not None:
            self.log.info("the task is killed: stopping the run")
            gone = self._run.stop(wait_s=self.grace_s + 5)
            self.log.info("the run %s", "is stopped" if gone else "does not stop")

    def get_openlineage_facets_on_start(self) -> OperatorLineage:
        """What Airflow's OpenLineage provider asks for before the run: nothing is known yet."""
        return openlineage.operator_lineage({}, [], {}, self.cwd)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Inputs and outputs of the run, with schemas and column lineage, for Airflow's OpenLineage provider."""
        return openlineage.operator_lineage(*self._ended, self.read_places(), self.cwd)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage:
        """What is known of a run that failed: the sources that it listed."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def _finish(self, context: Context, run: Run, exit_code: int | None) -> dict[str, Any]:
        last = events.parse(run.last_line())
        summary = last if last is not None and last["event"] == "summary" else None
        if errors := run.errors():
            self.log.warning("forebay said:\n%s", errors)
        discovered = [event for line in Run(run.directory).lines() if (event := events.parse(line))]
        self._ended = (summary or {}, discovered)
        self._link(summary or {})
        try:
            done = judge(exit_code, summary, errors)
            self.check_done(done)
            if rungs := (done.get("ladder") or {}).get("rungs"):
                self.log.warning("the run degraded to be on time: %s (exit code %s)", rungs[-1], exit_code)
            self._tell_assets(context, done)
            self._lineage(context, "COMPLETE", summary=done, seen=discovered)
            return done
        except AirflowSkipException:
            self._lineage(context, "COMPLETE", summary=summary, seen=discovered)
            raise
        except Exception as error:
            self._lineage(context, "ABORT" if self._killed else "FAIL", summary, discovered, str(error))
            raise
        finally:
            run.remove()

    def _tell(self, run: Run) -> None:
        for line in run.lines():
            event = events.parse(line)
            self.log.info("%s", line if event is None else events.sentence(event))

    def _link(self, summary: dict[str, Any]) -> None:
        places = {"artifact": summary.get("artifact_path")}
        if summary.get("status") == "done":
            places["report"] = self.report_path()
        template = self.hook.setting("browse_url")
        for kind, place in places.items():
            if place:
                absolute = place if "://" in place else os.path.abspath(os.path.join(self.cwd or "", place))
                self.links[kind] = browsable(absolute, template)

    def _tell_assets(self, context: Context, summary: dict[str, Any]) -> None:
        extra = {
            "pipeline": summary.get("pipeline"),
            "artifact": summary.get("artifact"),
            "artifact_path": summary.get("artifact_path"),
            "rows": {
                output["sink"]: output["rows"] for output in summary.get("outputs", []) + summary.get("forecasts", [])
            },
        }
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(extra)

    def _place(self, context: Context) -> str:
        ti = context["ti"]
        key = f"{ti.dag_id}/{ti.task_id}/{_map_index(context)}/{context['run_id']}"
        return str(Run.place(key, self.run_directory))

    def _lineage(
        self,
        context: Context,
        kind: str,
        summary: dict[str, Any] | None = None,
        seen: Sequence[dict[str, Any]] = (),
        error: str | None = None,
    ) -> None:
        """Sends a lineage event; a lineage service that is away stops no run."""
        if not self.openlineage:
            return
        try:
            ti = context["ti"]
            interval = self.interval_of(context) if kind == "START" else None
            event = openlineage.run_event(
                kind,
                dag_id=ti.dag_id,
                task_id=ti.task_id,
                run_key=f"{context['run_id']}/{_map_index(context)}/{ti.try_number}",
                dag_run_id=context["run_id"],
                interval=(instant(interval[0]), instant(interval[1])) if interval else None,
                version=".".join(map(str, self.hook.version)),
                summary=summary,
                seen=seen,
                places=self.read_places(),
                error=error,
                cwd=self.cwd,
            )
            openlineage.emit(event, self.openlineage)
        except Exception as reason:
            self.log.warning("the lineage event %s was not sent: %s", kind, reason)


def _map_index(context: Context) -> int:
    """The index of a mapped task; -1 for others."""
    index = context["ti"].map_index
    return -1 if index is None else index
