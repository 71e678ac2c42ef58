"""`forebay run` and `forebay fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from forebay_airflow.command import command_line, instant, pairs
from forebay_airflow.operators.base import AUTO, ForebayBaseOperator, Interval

#: What may become of a run whose interval has no rows.
EMPTY_INTERVAL = ("skip", "fail", "accept")


class ForebayRunOperator(ForebayBaseOperator):
    """Runs a Forebay pipeline. What exit codes mean, and the arguments that are not named here:
    `ForebayBaseOperator`.

    :param spec: the spec, a YAML file on the worker (templated, as are all arguments down to `command`)
    :param parameters: values for `--param` (`params` is a word of Airflow's own)
    :param interval: `auto` is the data interval of the DAG run, where it has one; or a pair of start and end,
        half-open; None leaves it out
    :param deadline: when the run should be done: a time of day, an instant or a length such as `45m`
    :param report: a file for a page about the run, which the task links to
    :param on: a cluster that starts workers for the run and ends them with it, as `--on` takes it:
        `ray://head:10001?workers=16`; the Airflow worker needs the Python package of Forebay
    :param command: `run` or `fit`
    :param empty_interval: what becomes of the task if no sink has a row of the interval: `skip`; `fail`, so that
        Airflow retries, for data that may be late; or `accept`
    :param signal_nothing_new: whether a run that finds nothing new skips the task
    :param signal_ladder: whether a run that degraded to be on time exits with 98
    """

    template_fields: Sequence[str] = (
        "spec",
        "parameters",
        "interval",
        "deadline",
        "report",
        "on",
        "command",
        *ForebayBaseOperator.template_fields,
    )
    template_fields_renderers = {"parameters": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        spec: str,
        parameters: Mapping[str, Any] | None = None,
        interval: str | tuple[str, str] | list[str] | None = AUTO,
        deadline: datetime | str | None = None,
        report: str | None = None,
        on: str | None = None,
        command: str = "run",
        empty_interval: str = "skip",
        signal_nothing_new: bool = True,
        signal_ladder: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if empty_interval not in EMPTY_INTERVAL:
            raise ValueError(f"`empty_interval` is one of {', '.join(EMPTY_INTERVAL)}, not {empty_interval!r}")
        self.spec = spec
        self.parameters = parameters
        self.interval = interval
        self.deadline = deadline
        self.report = report
        self.on = on
        self.command = command
        self.empty_interval = empty_interval
        self.signal_nothing_new = signal_nothing_new
        self.signal_ladder = signal_ladder

    def words(self, context: Context) -> list[str]:
        """The command line."""
        interval = self.interval_of(context)
        if interval is None and self.interval == AUTO:
            self.log.warning(
                "this DAG run has no data interval, so --interval is left out; scheduled runs have one if their "
                "schedule is CronDataIntervalTimetable or DeltaDataIntervalTimetable, manual runs if they also "
                "have a logical date"
            )
        options = {
            "param": pairs(self.parameters),
            "interval": None if interval is None else (instant(interval[0]), instant(interval[1])),
            **self.machine_options(context),
            "deadline": None if self.deadline is None else instant(self.deadline),
            "report": self.report,
            "on": self.on,
            "signal_nothing_new": self.signal_nothing_new,
            "signal_ladder": self.signal_ladder,
        }
        return command_line(self.hook.forebay, self.command, self.spec, options)

    def check_done(self, summary: dict[str, Any]) -> None:
        """An interval without a row is skipped or fails, as asked."""
        written = [*summary.get("outputs", []), *summary.get("forecasts", [])]
        if self.empty_interval == "accept" or not summary.get("interval") or not written:
            return
        if any(output["rows"] for output in written):
            return
        text = f"no sink has a row of the interval {summary['interval']['from']} .. {summary['interval']['to']}"
        if self.empty_interval == "skip":
            raise AirflowSkipException(text)
        raise AirflowException(f"{text}: the data may be late; a retry looks again")

    def report_path(self) -> str | None:
        """The page that the run writes."""
        return self.report

    def interval_of(self, context: Context) -> Interval | None:
        """The interval that the run writes, if it has one."""
        if self.interval is None:
            return None
        if self.interval != AUTO:
            if isinstance(self.interval, str) or len(self.interval) != 2:
                raise ValueError(f"`interval` is `auto`, None, or a pair of start and end, not {self.interval!r}")
            return self.interval[0], self.interval[1]
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        return None if start is None or end is None or start >= end else (start, end)
