"""`forebay predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import Context

from forebay_airflow.command import command_line, instant, pairs
from forebay_airflow.operators.base import ForebayBaseOperator


class ForebayPredictOperator(ForebayBaseOperator):
    """Writes what a trained model predicts for a dataset, or for its rows of the future.

    What exit codes mean, and the arguments that are not named here: `ForebayBaseOperator`.

    :param model: the directory of a `train` sink (templated, as are all arguments down to `maximum`)
    :param sources: where the sources of the pipeline are now: paths by name
    :param output_path: where the predictions go
    :param format: `parquet`, `csv` or `json`
    :param columns: columns to write beside the predictions
    :param split: a part of the split, whose rows alone are predicted; `future` are those that `future_rows` adds
    :param name: what the column of predictions is called
    :param minimum: least prediction: smaller ones become it
    :param maximum: greatest prediction: greater ones become it
    :param rows_from: the time from which on rows are predicted; earlier rows are history (templated)
    :param whole_history: whether the given rows are all the history that there is
    :param allow_empty: whether an output without a row is published
    """

    template_fields: Sequence[str] = (
        "model",
        "sources",
        "output_path",
        "format",
        "columns",
        "split",
        "name",
        "minimum",
        "maximum",
        "rows_from",
        *ForebayBaseOperator.template_fields,
    )
    template_fields_renderers = {"sources": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        model: str,
        sources: Mapping[str, str],
        output_path: str,
        format: str | None = None,
        columns: Sequence[str] | None = None,
        split: str | None = None,
        name: str | None = None,
        minimum: float | str | None = None,
        maximum: float | str | None = None,
        rows_from: datetime | str | None = None,
        whole_history: bool = False,
        allow_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.sources = sources
        self.output_path = output_path
        self.format = format
        self.columns = columns
        self.split = split
        self.name = name
        self.minimum = minimum
        self.maximum = maximum
        self.rows_from = rows_from
        self.whole_history = whole_history
        self.allow_empty = allow_empty

    def words(self, context: Context) -> list[str]:
        """The command line."""
        options = {
            "source": pairs(self.sources),
            "output": self.output_path,
            "format": self.format,
            "columns": ",".join(self.columns) if self.columns else None,
            "split": self.split,
            "name": self.name,
            "min": self.minimum,
            "max": self.maximum,
            "rows_from": None if self.rows_from is None else instant(self.rows_from),
            "whole_history": self.whole_history,
            "allow_empty": self.allow_empty,
            **self.machine_options(context),
        }
        return command_line(self.hook.forebay, "predict", self.model, options)

    def read_places(self) -> Mapping[str, str]:
        """Where sources are."""
        return self.sources
