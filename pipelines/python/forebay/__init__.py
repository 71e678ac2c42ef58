"""Forebay: the features and mini-batches that a model trains on, from a large history.

:class:`Loader` delivers mini-batches, :func:`run` and :func:`fit` run pipelines, :func:`dataset` opens what they
wrote, and :func:`load` applies what a fit learned to tables and rows. Faults are exceptions with a stable ``code``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from . import _forebay
from ._dataset import Dataset, dataset
from ._fault import DataFault, ExternalFault, Fault, ResourceFault, SpecFault
from ._forebay import Batch, Table
from ._loader import Loader, _text

__all__ = [
    "Artifact",
    "Batch",
    "DataFault",
    "Dataset",
    "ExternalFault",
    "Fault",
    "Loader",
    "ResourceFault",
    "SpecFault",
    "Table",
    "dataset",
    "fit",
    "load",
    "run",
]


class Artifact:
    """What a fit learned, ready to be applied: the same bits as in the run."""

    def __init__(self, path: str | os.PathLike[str], step: str | None = None) -> None:
        self._artifact = _forebay.Artifact(os.fspath(path), step)

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
        ``__arrow_c_stream__``. Rows that the pipeline filters are missing in the result, which
        ``pyarrow.table(...)``, ``polars.DataFrame(...)`` and others take."""
        return self._artifact.apply(table)

    def apply_row(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Applies the steps to one row; None where the pipeline filters it. Fields that are absent are null. A
        field that the source does not have is a fault."""
        applied = self._artifact.apply_row(json.dumps(dict(row)))
        return None if applied is None else json.loads(applied)


def load(path: str | os.PathLike[str], step: str | None = None) -> Artifact:
    """Loads an artifact from its directory. ``step`` is the step whose columns are made; without it, what
    the first sink writes."""
    return Artifact(path, step)


def run(
    spec: str | os.PathLike[str],
    params: Mapping[str, object] | None = None,
    *,
    state: str | os.PathLike[str] = ".forebay",
    memory_bytes: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Learns, commits the artifact and writes all sinks of a spec. Gives what ``forebay run --json`` ends
    with: ``artifact``, ``artifact_path``, ``outputs``, ``passes``, ``nothing_new``."""
    return _report(_forebay.run(os.fspath(spec), _texts(params), os.fspath(state), memory_bytes, threads))


def fit(
    spec: str | os.PathLike[str],
    params: Mapping[str, object] | None = None,
    *,
    state: str | os.PathLike[str] = ".forebay",
    memory_bytes: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Learns and commits the artifact of a spec; writes no sinks."""
    return _report(_forebay.fit(os.fspath(spec), _texts(params), os.fspath(state), memory_bytes, threads))


def _report(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    return report


def _texts(params: Mapping[str, object] | None) -> dict[str, str]:
    return {name: _text(value) for name, value in (params or {}).items()}
