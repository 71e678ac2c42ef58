"""`forebay backfill`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from forebay_airflow.command import civil, command_line, instant, pairs
from forebay_airflow.operators.base import ForebayBaseOperator, Interval


class ForebayBackfillOperator(ForebayBaseOperator):
    """Runs a Forebay pipeline for consecutive intervals, in one task; those that are there are left alone.

    What exit codes mean, and the arguments that are not named here: `ForebayBaseOperator`. `intervals` in the XCom
    tells of each interval its rows and whether it was there.

    :param spec: the spec, a YAML file on the worker (templated, as are all arguments down to `deadline`)
    :param start: the start of the first interval
    :param end: the end of the last interval: none goes beyond it
    :param every: how long an interval is, such as `1d`, `12h`, `1w` or `1mo`
    :param beside: how many intervals are at work at a time at most
    :param parameters: values for `--param`
    :param on: a cluster that starts workers for the backfill and ends them with it, as `--on` takes it
    :param deadline: when all intervals should be done
    :param signal_nothing_new: whether a backfill whose intervals were all there skips the task
    """

    template_fields: Sequence[str] = (
        "spec",
        "start",
        "end",
        "every",
        "beside",
        "parameters",
        "on",
        "deadline",
        *ForebayBaseOperator.template_fields,
    )
    template_fields_renderers = {"parameters": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        spec: str,
        start: datetime | str,
        end: datetime | str,
        every: str = "1d",
        beside: int | str | None = None,
        parameters: Mapping[str, Any] | None = None,
        on: str | None = None,
        deadline: datetime | str | None = None,
        signal_nothing_new: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        self.start = start
        self.end = end
        self.every = every
        self.beside = beside
        self.parameters = parameters
        self.on = on
        self.deadline = deadline
        self.signal_nothing_new = signal_nothing_new

    def words(self, context: Context) -> list[str]:
        """The command line."""
        options = {
            "param": pairs(self.parameters),
            "from": civil(self.start),
            "to": civil(self.end),
            "every": self.every,
            "beside": self.beside,
            **self.machine_options(context),
            "on": self.on,
            "deadline": None if self.deadline is None else instant(self.deadline),
        }
        return command_line(self.hook.forebay, "backfill", self.spec, options)

    def interval_of(self, context: Context) -> Interval | None:
        """From the first interval to the last."""
        return f"{civil(self.start)}Z", f"{civil(self.end)}Z"

    def check_done(self, summary: dict[str, Any]) -> None:
        """A backfill that had nothing to do is skipped, if asked."""
        if self.signal_nothing_new and summary.get("nothing_new"):
            raise AirflowSkipException("nothing is new: all intervals were there already")
