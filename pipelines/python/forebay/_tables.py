"""Tables of this process as sources of pipelines: kept as files in the state directory, by their content."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from . import _arguments, _forebay
from ._fault import Fault, SpecFault

if TYPE_CHECKING:
    from . import spec


@runtime_checkable
class ArrowStream(Protocol):
    """A table of any library that knows Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


#: Rows that are a source: a table, a stream of batches, or dictionaries.
Rows: TypeAlias = ArrowStream | Sequence[Mapping[str, Any]]


class TableSource:
    """A table as the source of a pipeline; :func:`forebay.table` makes it.

    rows: A table, a stream of batches, or dictionaries.
    fields: Fields of the source beside the rows, such as ``time`` and ``keys``.
    """

    def __init__(self, rows: Rows, fields: Mapping[str, Any]) -> None:
        self._rows = _as_arrow(rows)
        self._fields = {name: _arguments.plain(name, value) for name, value in fields.items() if value is not None}
        self._path: str | None = None

    def _source(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """The source of the file that holds the rows, which is written where it is not there."""
        if self._path is None or not self._is_final():
            _refuse_periods(self._rows)
            self._path = _kept(self._rows, machine)
        return {"parquet": {"path": self._path}, **self._fields}

    def _shown(self) -> dict[str, Any]:
        """The source as notebooks show it: without its file."""
        return {"parquet": {"path": f"({type(self._rows).__name__})"}, **self._fields}

    def _is_final(self) -> bool:
        """Whether the file that was written holds the rows still."""
        if not _is_table(self._rows):
            # A stream gives its rows once.
            return True
        # Tables of pyarrow cannot be changed; frames of pandas and others can.
        is_fixed = type(self._rows).__module__.startswith("pyarrow")
        return is_fixed and self._path is not None and os.path.exists(self._path)


def table(
    rows: Rows,
    *,
    time: str | Mapping[str, str] | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
) -> TableSource:
    """A table as a source of a :class:`Pipeline`: ``sources={"demand": forebay.table(frame, time="date")}``. A table
    without a time can be given as it is: ``sources={"stores": frame}``.

    Its rows are written to the state directory when the pipeline is first used, as a file that is named after its
    content: what was learned from equal tables is not learned again, and worker processes read it. A frame that can be
    changed is looked at anew each time; a stream is read once. ``forebay cache gc`` removes old files.

    rows: A pandas, Polars or pyarrow table, a relation of DuckDB, a stream of Arrow batches, or dictionaries (these
        need pyarrow; fields that a dictionary lacks are null).
    time: The event-time column.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time.
    """
    return TableSource(rows, {"time": time, "keys": None if keys is None else list(keys), "duplicates": duplicates})


def as_source(name: str, value: object) -> dict[str, Any] | TableSource:
    """A source of a pipeline: fields as in a spec, or a table."""
    if isinstance(value, TableSource):
        return value
    if isinstance(value, Mapping):
        return cast("dict[str, Any]", _arguments.plain(name, value))
    if isinstance(value, str | os.PathLike):
        hint = f"a path needs its format: `forebay.sources.csv({os.fspath(value)!r})`, or `parquet`, `json`, `delta`"
        raise _arguments.wrong(f"sources.{name}", value, "a source", hint)
    return TableSource(cast("Rows", value), {})


def _kept(rows: object, machine: Mapping[str, Any]) -> str:
    """The file of a table in the state directory."""
    try:
        return _forebay.keep_table(rows, _arguments.dumps(machine))
    except (Fault, MemoryError):
        raise
    except Exception as error:
        # Of pyarrow and pandas: a column of several types, two columns of one name.
        message = f"the rows of a source cannot be read: {error}"
        hint = "give each column one type and a name of its own"
        raise SpecFault(_arguments.BAD_VALUE, message, hint) from error


def _refuse_periods(rows: object) -> None:
    """Refuses periods of pandas: Arrow has no such type, and their columns would be whole numbers."""
    if not type(rows).__module__.startswith("pandas"):
        return
    for column, dtype in getattr(rows, "dtypes", {}).items():
        if str(dtype).startswith("period["):
            message = f"column `{column}` holds periods, which Arrow has no type for"
            hint = f"give their first days: `frame[{column!r}].dt.to_timestamp()`"
            raise SpecFault(_arguments.BAD_VALUE, message, hint)


def _is_table(rows: object) -> bool:
    """Whether rows can be read more than once."""
    return hasattr(rows, "__len__")


def _as_arrow(rows: object) -> object:
    """Something that knows Arrow's C interface."""
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return rows
    is_list = isinstance(rows, Sequence) and not isinstance(rows, str | bytes)
    if is_list and all(isinstance(row, Mapping) for row in cast("Sequence[object]", rows)):
        return _table_of_mappings(cast("Sequence[Mapping[str, Any]]", rows))
    raise _arguments.wrong(
        "sources",
        rows,
        "a source",
        "give a function of `forebay.sources`, a pandas, Polars or pyarrow table, a relation of DuckDB, "
        "or a list of dictionaries",
    )


def _table_of_mappings(rows: Sequence[Mapping[str, Any]]) -> object:
    """A table with the fields of all rows, in the order in which they first appear."""
    import pyarrow  # type: ignore[import-untyped]

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pyarrow.table({name: [row.get(name) for row in rows] for name in names})
