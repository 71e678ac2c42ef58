"""Forebay: the features and mini-batches that a model trains on, from a large history.

:class:`Pipeline` is a pipeline, written in Python or opened from a spec, over files or tables (:func:`table`);
:func:`run`, :func:`backfill`, :func:`fit`, :func:`check`, :func:`explain`, :func:`preview`, :func:`collect` and
:func:`predict` are what is done with it. :class:`Loader` delivers mini-batches, :func:`dataset` opens what runs wrote,
:func:`load` applies what a fit learned to tables and rows, and :class:`Model` forecasts series.
:mod:`forebay.sklearn` has a transformer for scikit-learn.
Faults are exceptions with a stable ``code``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from . import _arguments, _forebay, _html, sinks, sources, spec, transforms
from ._commands import backfill, check, collect, explain, fit, predict, preview, run
from ._dataset import Dataset, dataset
from ._fault import DataFault, ExternalFault, Fault, ResourceFault, SpecFault
from ._forebay import Batch, Table
from ._launch import Launcher, WorkerState, dask, kubernetes, ray, slurm, spark
from ._loader import Loader
from ._model import Model
from ._pipeline import Pipeline
from ._summary import Explanation, Summary
from ._tables import TableSource, table

__version__: str = _forebay.version

__all__ = [
    "Artifact",
    "Batch",
    "DataFault",
    "Dataset",
    "Explanation",
    "ExternalFault",
    "Fault",
    "Launcher",
    "Loader",
    "Model",
    "Pipeline",
    "ResourceFault",
    "SpecFault",
    "Summary",
    "Table",
    "TableSource",
    "WorkerState",
    "__version__",
    "backfill",
    "check",
    "collect",
    "dask",
    "dataset",
    "explain",
    "fit",
    "kubernetes",
    "load",
    "predict",
    "preview",
    "ray",
    "run",
    "sinks",
    "slurm",
    "sources",
    "spark",
    "spec",
    "table",
    "transforms",
]


def __dir__() -> list[str]:
    """The names for users: completion in a notebook shows these alone."""
    return sorted(__all__)


class Artifact:
    """What a fit learned, ready to be applied: the same bits as in the run.

    path: The directory of the artifact, as runs tell it.
    step: The step whose columns are made. Default: what the first sink writes.
    states: A directory of this user for the states of series that windows need. Processes of a machine share its files,
        which the system maps into each. Default: memory of this process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        step: str | None = None,
        states: str | os.PathLike[str] | None = None,
    ) -> None:
        directory = None if states is None else _arguments.path("states", states)
        self._artifact = _forebay.Artifact(_arguments.path("path", path), step, directory)

    @property
    def id(self) -> str:
        """Names what was learned."""
        return self._artifact.id

    @property
    def inputs(self) -> list[str]:
        """The columns that tables must have; others are ignored. Those of :attr:`optional_inputs` may be absent."""
        return self._artifact.inputs

    @property
    def optional_inputs(self) -> list[str]:
        """The inputs that no step uses, such as a label: what lacks one gives a result without it."""
        return self._artifact.optional_inputs

    @property
    def outputs(self) -> list[str]:
        """The columns that come out."""
        return self._artifact.outputs

    def apply(self, table: object) -> Table:
        """Applies the steps to a table: a pyarrow Table, a Polars or pandas DataFrame, or anything else with
        ``__arrow_c_stream__``. Rows that the pipeline filters are missing in the result (filters with
        ``when: learning`` take none), which
        ``pyarrow.table(...)``, ``polars.DataFrame(...)`` and others take.

        table: The rows.
        """
        return self._artifact.apply(table)

    def apply_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Applies the steps to one row. Fields that are absent are null. A field that the source does not have is a
        fault. So is a row that a filter takes: the fault (FB0218) names the filter. Filters with ``when: learning``
        take none.

        row: Values by column.
        """
        if not isinstance(row, Mapping):
            raise _arguments.wrong("row", row, "a mapping of columns to values")
        text = self._artifact.apply_row(_arguments.dumps(_arguments.plain("row", row)))
        applied: dict[str, Any] = json.loads(text)
        return applied

    def inverse(self, table: object) -> Table:
        """Columns of the source from those that the steps made of them: numbers from scaled ones, categories from ids.

        Steps that keep all values are undone: scalers without ``by``, ``log1p``, ids of ``vocabulary`` and ``ordinal``,
        and new names. Columns that no step changed stay. A column of another step is a fault that names it: leave it
        out of the table. Unknown ids give null, and whole numbers are rounded.

        table: Columns of the result of ``apply``, or predictions of them, under their names.
        """
        return self._artifact.inverse(table)

    def append(self, table: object) -> int:
        """Makes the rows of a table part of the next answers, and returns their number.

        Each is a row of the source, later than the newest of its series. They are on the disk when this returns:
        another process that loads the artifact has them, too. Of facts that are refused, none is taken. Needs
        ``serving`` in the spec.

        table: The facts, as for ``apply``.
        """
        return self._artifact.append(table)

    @property
    def state(self) -> dict[str, Any] | None:
        """What windows know of the rows before: ``as_of``, ``series`` and ``bytes``. ``None`` where the spec has no
        ``serving``, or where no step needs it."""
        state: dict[str, Any] | None = json.loads(self._artifact.state())
        return state

    def __repr__(self) -> str:
        return f"<forebay.Artifact {self.id}>"

    def _repr_html_(self) -> str:
        told = json.loads(self._artifact.summary())
        findings = [
            (one["step"], one["analyzer"], ", ".join(one["columns"]), one["part"] or "", f"{one['rows']:,}")
            for one in told["findings"]
        ]
        return (
            f"<p><b>{_html.escape(told['pipeline'])}</b>, artifact <code>{_html.escape(self.id)}</code></p>"
            + _html.table("learned", ["step", "statistic", "columns", "part", "entries"], findings)
            + _html.table("columns", ["in", "out"], [(", ".join(self.inputs), ", ".join(self.outputs))])
        )


def load(
    path: str | os.PathLike[str], step: str | None = None, states: str | os.PathLike[str] | None = None
) -> Artifact:
    """Loads an artifact.

    path: Its directory, as runs tell it.
    step: The step whose columns are made. Default: what the first sink writes.
    states: A directory of this user for the states of series that windows need. Processes of a machine share its files,
        which the system maps into each. Default: memory of this process.
    """
    return Artifact(path, step, states)
