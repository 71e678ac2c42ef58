"""Outputs and tables as readers should see them."""

from __future__ import annotations

import os
from typing import Any

from . import _arguments, _forebay, _html


class Dataset:
    """The rows of an output, or of a Delta table, as one run left them: a run that publishes in the meantime changes
    nothing of them. Anything that knows Arrow's C interface takes them: ``pyarrow.table(it)``,
    ``polars.DataFrame(it)``, and ``it`` in a query of DuckDB.

    path: The path of a sink, or the directory of a Delta table; local or a URL.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _arguments.path("path", path)
        self._dataset = _forebay.Dataset(self._path)

    @property
    def files(self) -> list[str]:
        """The files, in row order, as paths or URLs. The run after the next one may remove them."""
        return self._dataset.files

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return self._dataset.column_names

    def __repr__(self) -> str:
        columns = self.column_names
        return f"<forebay.Dataset {self._path}: {len(self.files):,} files, {len(columns):,} columns>"

    def _repr_html_(self) -> str:
        head = f"<p><b>{_html.escape(self._path)}</b>: {len(self.files):,} files</p>"
        return head + _html.table("columns", ["name"], [(name,) for name in self.column_names])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._dataset.__arrow_c_stream__(requested_schema)

    def to_pyarrow(self) -> Any:
        """All rows as a pyarrow Table."""
        import pyarrow  # type: ignore[import-untyped]

        return pyarrow.table(self)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame; this needs pyarrow, too."""
        return self.to_pyarrow().to_pandas()


def dataset(path: str | os.PathLike[str]) -> Dataset:
    """Opens what a run wrote. In a bucket, a listing may show files of two results; this shows those of one.

    path: The path of a sink, or the directory of a Delta table; local or a URL.
    """
    return Dataset(path)
