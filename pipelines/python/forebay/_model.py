"""Trained models, and their forecasts of series."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from . import _arguments, _forebay
from ._forebay import Table


class Model:
    """A trained model of rows of the future, ready to forecast series: the same bits as in the forecast that a run with
    the same state publishes.

    path: The directory of a ``train`` sink, or one of its ``_data`` directories.
    state: The state directory of its run, which has the last rows of all series: the spec declares ``serving``. A path
        or a URL. Default: that of the settings, else ``.forebay``.
    name: What the column of predictions is called. Default: ``prediction``.
    columns: Source columns in addition to keys and time: those that ``future_rows`` carries on.
    minimum: Least prediction: smaller ones become it.
    maximum: Greatest prediction: greater ones become it.
    states: A directory of this user for the states of series. Processes of a machine share its files, which the system
        maps into each. Default: memory of this process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        columns: Sequence[str] = (),
        minimum: float | None = None,
        maximum: float | None = None,
        states: str | os.PathLike[str] | None = None,
    ) -> None:
        request = {
            "path": _arguments.path("path", path),
            "state": None if state is None else _arguments.path("state", state),
            "name": name,
            "columns": _arguments.plain("columns", list(columns)),
            "minimum": _arguments.number("minimum", minimum),
            "maximum": _arguments.number("maximum", maximum),
            "states": None if states is None else _arguments.path("states", states),
        }
        self._model = _forebay.Model(_arguments.dumps(request))

    @property
    def id(self) -> str:
        """Names the training."""
        return self._model.id

    @property
    def keys(self) -> list[str]:
        """The columns that name a series."""
        return self._model.keys

    @property
    def outputs(self) -> list[str]:
        """The columns of a forecast."""
        return self._model.outputs

    @property
    def facts(self) -> list[str]:
        """The columns that :meth:`append` needs."""
        return self._model.facts

    @property
    def values(self) -> list[str]:
        """The columns that :meth:`forecast` takes besides the keys: first the time of a row of the future, then what
        may be known of it, such as prices. Empty where forecasts depend on no such column."""
        return self._model.values

    def forecast(self, series: object) -> Any:
        """Forecasts the whole horizon of the series that rows name, in order of time and then of series, as published
        forecasts are. Each begins after the last row of its series, appended facts included. A series that the state
        does not have is a fault.

        The result is what was given: a pyarrow Table, a pandas or Polars DataFrame. Of other tables it is a
        :class:`Table`. The GIL is released, and threads can share a model.

        Rows may give what is known of the future: keys, a time of the horizon and the columns :attr:`values`. Such
        values take the place of those that joins find. A column of ``known`` without a value is a fault, which names
        the first time without one.

        series: The key columns: a pyarrow Table, a pandas or Polars DataFrame, or anything else with
            ``__arrow_c_stream__``. Columns besides the keys and :attr:`values` are ignored.
        """
        return _in_form_of(series, self._model.forecast(series))

    def forecast_by_series(self, series: object) -> Any:
        """Like :meth:`forecast`, with one row for each row of the table, in its order: what differs from step to step,
        such as times and predictions, is a list with an item for each step.

        series: The rows, as for :meth:`forecast`.
        """
        return _in_form_of(series, self._model.forecast_by_series(series))

    def append(self, table: object) -> int:
        """Makes the rows of a table part of the next forecasts, and returns their number. Each is a row of the source,
        later than the newest of its series. They are on the disk when this returns. Of facts that are refused, none is
        taken.

        table: The facts, with the columns :attr:`facts`.
        """
        return self._model.append(table)

    @property
    def state(self) -> dict[str, Any] | None:
        """What is known of the rows before: ``as_of``, ``series`` and ``bytes``."""
        state: dict[str, Any] | None = json.loads(self._model.state())
        return state

    def __repr__(self) -> str:
        return f"<forebay.Model {self.id}>"


def _in_form_of(example: object, table: Table) -> Any:
    """A table in the form of another one."""
    library = type(example).__module__.partition(".")[0]
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        return table.to_polars()
    if library == "pyarrow":
        return table.to_pyarrow()
    return table
