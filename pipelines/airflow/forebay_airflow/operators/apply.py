"""`forebay apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Context

from forebay_airflow.command import command_line, instant, pairs
from forebay_airflow.operators.base import ForebayBaseOperator


class ForebayApplyOperator(ForebayBaseOperator):
    """Writes features of new data with what an artifact learned; learns nothing.

    What exit codes mean, and the arguments that are not named here: `ForebayBaseOperator`.

    :param artifact: the artifact's directory, such as `artifact_path` of the XCom of a run (templated, as are all
        arguments down to `sink`)
    :param sources: where the sources of the pipeline are now: paths by name
    :param output_path: where the features go
    :param sink: which sink of the pipeline to write (default: the first)
    :param rows_from: the time from which on rows are written; earlier rows are history (templated)
    :param whole_history: whether the given rows are all the history that there is
    :param allow_empty: whether an output without a row is published
    """

    template_fields: Sequence[str] = (
        "artifact",
        "sources",
        "output_path",
        "sink",
        "rows_from",
        *ForebayBaseOperator.template_fields,
    )
    template_fields_renderers = {"sources": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        artifact: str,
        sources: Mapping[str, str],
        output_path: str,
        sink: str | None = None,
        rows_from: datetime | str | None = None,
        whole_history: bool = False,
        allow_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.artifact = artifact
        self.sources = sources
        self.output_path = output_path
        self.sink = sink
        self.rows_from = rows_from
        self.whole_history = whole_history
        self.allow_empty = allow_empty

    def words(self, context: Context) -> list[str]:
        """The command line."""
        options = {
            "source": pairs(self.sources),
            "output": self.output_path,
            "sink": self.sink,
            "rows_from": None if self.rows_from is None else instant(self.rows_from),
            "whole_history": self.whole_history,
            "allow_empty": self.allow_empty,
            **self.machine_options(context),
        }
        return command_line(self.hook.forebay, "apply", self.artifact, options)

    def read_places(self) -> Mapping[str, str]:
        """Where sources are."""
        return self.sources
