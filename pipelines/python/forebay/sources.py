"""Where data comes from: a function for each format.

Generated from the schema of specs by `generate_types.py`: change that, not this.
"""

# ruff: noqa

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import spec
from ._made import source

__all__ = [
    "arrow",
    "csv",
    "delta",
    "json",
    "parquet",
]


def parquet(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    schema: spec.SchemaPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
) -> spec.Source:
    """Parquet files to read.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves. Folders are read whole, without names that begin with `_` or `.`. A link
        that leads to nothing is a fault.
    paths: Several of them, instead of `path`.
    columns: The columns to read, in this order; all when left out.
    schema: How much the files may differ. Default: {"widening": false, "nullable": true, "missing": "fault",
        "added": "fault"}.
    partitions: Whether folders named `column=value` give columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names.
    keys: The columns that tell series apart.
    duplicates: What windows do with rows that have the same keys and the same time. By default, windows by time
        refuse them, since a key may be missing, and windows by rows warn of them.
    ready: What a run waits for before it reads.
    lookback: How long before an interval files may still change, such as 3d: with an interval, those that are there
        and end less than this before it are looked at again, and written again where something changed.
    """
    return source("parquet", ('time', 'keys', 'duplicates', 'ready', 'lookback'), locals())


def delta(
    path: str,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    columns: Sequence[str] | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
) -> spec.Source:
    """A Delta table to read. One version of it is read from the beginning of a run to its end. A later run reads only
    files that commits have added since.

    path: The directory of the table, which holds `_delta_log`; local or a URL.
    version: The version to read; the latest when left out.
    timestamp: Instead of `version`: the latest version at or before this time, such as `2025-11-03` or
        `2025-11-03T06:00:00Z`. Without a zone it is UTC.
    columns: The columns to read, in this order; all when left out.
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names.
    keys: The columns that tell series apart.
    duplicates: What windows do with rows that have the same keys and the same time. By default, windows by time
        refuse them, since a key may be missing, and windows by rows warn of them.
    ready: What a run waits for before it reads.
    lookback: How long before an interval files may still change, such as 3d: with an interval, those that are there
        and end less than this before it are looked at again, and written again where something changed.
    """
    return source("delta", ('time', 'keys', 'duplicates', 'ready', 'lookback'), locals())


def arrow(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    schema: spec.SchemaPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
) -> spec.Source:
    """Arrow files to read: the file format or the stream format, told apart by their first bytes.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    schema: How much the files may differ. Default: {"widening": false, "nullable": true, "missing": "fault",
        "added": "fault"}.
    partitions: Whether folders named `column=value` give columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names.
    keys: The columns that tell series apart.
    duplicates: What windows do with rows that have the same keys and the same time. By default, windows by time
        refuse them, since a key may be missing, and windows by rows warn of them.
    ready: What a run waits for before it reads.
    lookback: How long before an interval files may still change, such as 3d: with an interval, those that are there
        and end less than this before it are looked at again, and written again where something changed.
    """
    return source("arrow", ('time', 'keys', 'duplicates', 'ready', 'lookback'), locals())


def csv(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    columns: spec.ColumnTypes | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    encoding: spec.TextEncoding | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    formats: Mapping[str, str] | None = None,
    header: bool | None = None,
    same_names: spec.SameNamePolicy | None = None,
    nulls: Sequence[str] | None = None,
    infer_rows: int | None = None,
    missing: spec.MissingColumnPolicy | None = None,
    added: spec.AddedColumnPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
) -> spec.Source:
    """CSV files to read, also packed (`.gz`, `.zst`). Several threads read a large one that is not packed. A record
    may have 16 MiB.

    Without `columns`, the first rows give the types: numbers are integers or floats where these hold all of their
    digits, else strings, as `007` is; `true` and `false` are booleans; dates and times are those of ISO 8601, in
    nanoseconds where they have more than six digits of a fraction, and in UTC where all of them have an offset. A
    later value that does not fit the type is a fault.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    columns: The columns to read, and their types. When left out, all columns are read, with types taken from the
        first rows. Without a header these are all columns, in order.
    delimiter: What stands between fields; one ASCII character. Default: ",".
    quote: The character around fields in which delimiters, line ends and, doubled, it itself may stand.
    escape: The character before a quote that belongs to a quoted field, where quotes are not doubled for that.
    comment: The character at the beginning of lines that are no records.
    encoding: The encoding of the files.
    decimal: The character between the whole and the fraction of a number.
    thousands: The character between groups of three digits of numbers that are written in groups.
    formats: Columns of dates and times that are not written as in ISO 8601, with the way in which they are:
        `%d.%m.%Y`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC.
    header: True if the first record of each file names the columns. Where several columns have no name, these are
        called `column_3` and so on by their places. Default: true.
    same_names: Treatment of columns of one name.
    nulls: Fields that stand for null. Default: [""].
    infer_rows: Rows to look at for the types of columns. Default: 10000.
    missing: What to do about a column that a file lacks. Default: "fault".
    added: What to do about a column that only later files have. Default: "fault".
    partitions: Whether folders named `column=value` give columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names.
    keys: The columns that tell series apart.
    duplicates: What windows do with rows that have the same keys and the same time. By default, windows by time
        refuse them, since a key may be missing, and windows by rows warn of them.
    ready: What a run waits for before it reads.
    lookback: How long before an interval files may still change, such as 3d: with an interval, those that are there
        and end less than this before it are looked at again, and written again where something changed.
    """
    return source("csv", ('time', 'keys', 'duplicates', 'ready', 'lookback'), locals())


def json(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    columns: spec.ColumnTypes | None = None,
    infer_rows: int | None = None,
    added: spec.AddedColumnPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
) -> spec.Source:
    """JSON files to read: one object per line, also packed (`.gz`, `.zst`). A field that an object lacks is null. A
    line may have 16 MiB.

    Without `columns`, the first rows give the fields and their types. Numbers are read as integers or floats where
    these hold all of their digits, else as strings; fields that are always null or `{}` are strings, those that are
    always `[]` lists of strings. A later value that does not fit the type is a fault.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    columns: The fields to read, and their types; taken from the first rows when left out.
    infer_rows: Rows to look at for the types of columns. Default: 10000.
    added: Treatment of a field, also of an object inside, that the first rows do not have. `include` looks at all
        rows of all files before any is read. Fields that `columns` does not name are left out.
    partitions: Whether folders named `column=value` give columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names.
    keys: The columns that tell series apart.
    duplicates: What windows do with rows that have the same keys and the same time. By default, windows by time
        refuse them, since a key may be missing, and windows by rows warn of them.
    ready: What a run waits for before it reads.
    lookback: How long before an interval files may still change, such as 3d: with an interval, those that are there
        and end less than this before it are looked at again, and written again where something changed.
    """
    return source("json", ('time', 'keys', 'duplicates', 'ready', 'lookback'), locals())
