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
    int96: spec.Int96Unit | None = None,
    formats: Mapping[str, str] | None = None,
    on_error: spec.OnReadError | None = None,
    time: spec.Time | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
    days: spec.Days | None = None,
) -> spec.Source:
    """Parquet files to read.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves. Folders are read whole, without names that begin with `_` or `.`. A link
        that leads to nothing is a fault.
    paths: Several of them, instead of `path`.
    columns: The columns to read, in this order; all when left out.
    schema: Permitted differences between the files. Default: {"widening": false, "times": "finest", "nullable":
        true, "missing": "fault", "added": "fault"}.
    partitions: Use of folders named `column=value` as columns. Default: "auto".
    int96: The unit of times of type INT96, which Spark, Hive and Impala write.
    formats: Columns of texts or whole numbers that are dates or times, with the way in which they are written:
        `%Y%m%d`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC. Where directives stand side by side, each has all of its digits. A format that goes from the
        year down lets filters and intervals skip row groups by their statistics; others do not.
    on_error: Treatment of a value that is not written as its column's format says: for all columns, or for some.
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names. A column of texts or whole numbers is given with the format in which its times are written: `{
        column: day, format: "%Y%m%d" }`.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time. By default, windows by time refuse
        them, since a key may be missing, and windows by rows warn of them; sequences of a feed do as windows.
    ready: Condition that a run waits for before it reads.
    lookback: Time before an interval within which files may still change, such as 3d: a run of an interval checks
        earlier intervals that end within this time before it, and writes them again if their files have changed.
    days: Treatment of days that have not come, have come twice, or have a column without values. By default, the
        summary warns of them.
    """
    return source("parquet", ('time', 'keys', 'duplicates', 'ready', 'lookback', 'days'), locals())


def delta(
    path: str,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    columns: Sequence[str] | None = None,
    allow_outside: Sequence[str] | None = None,
    formats: Mapping[str, str] | None = None,
    on_error: spec.OnReadError | None = None,
    time: spec.Time | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
    days: spec.Days | None = None,
) -> spec.Source:
    """A Delta table to read. One version of it is read from the beginning of a run to its end. A later run reads only
    files that commits have added since.

    path: The directory of the table, which holds `_delta_log`; local or a URL.
    version: The version to read; the latest when left out.
    timestamp: Instead of `version`: the latest version at or before this time, such as `2025-11-03` or
        `2025-11-03T06:00:00Z`. Without a zone it is UTC.
    columns: The columns to read, in this order; all when left out.
    allow_outside: Directories outside of the table of which its log may name files, as the log of a shallow clone
        does. They are of the same kind of storage. Without this, a log that names other files than the table's is
        refused.
    formats: Columns of texts or whole numbers that are dates or times, with the way in which they are written:
        `%Y%m%d`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC. Where directives stand side by side, each has all of its digits. A format that goes from the
        year down lets filters and intervals skip row groups by their statistics; others do not.
    on_error: Treatment of a value that is not written as its column's format says: for all columns, or for some.
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names. A column of texts or whole numbers is given with the format in which its times are written: `{
        column: day, format: "%Y%m%d" }`.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time. By default, windows by time refuse
        them, since a key may be missing, and windows by rows warn of them; sequences of a feed do as windows.
    ready: Condition that a run waits for before it reads.
    lookback: Time before an interval within which files may still change, such as 3d: a run of an interval checks
        earlier intervals that end within this time before it, and writes them again if their files have changed.
    days: Treatment of days that have not come, have come twice, or have a column without values. By default, the
        summary warns of them.
    """
    return source("delta", ('time', 'keys', 'duplicates', 'ready', 'lookback', 'days'), locals())


def arrow(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    schema: spec.SchemaPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    formats: Mapping[str, str] | None = None,
    on_error: spec.OnReadError | None = None,
    time: spec.Time | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
    days: spec.Days | None = None,
) -> spec.Source:
    """Arrow files to read: the file format or the stream format, distinguished by their first bytes.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    schema: Permitted differences between the files. Default: {"widening": false, "times": "finest", "nullable":
        true, "missing": "fault", "added": "fault"}.
    partitions: Use of folders named `column=value` as columns. Default: "auto".
    formats: Columns of texts or whole numbers that are dates or times, with the way in which they are written:
        `%Y%m%d`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC. Where directives stand side by side, each has all of its digits.
    on_error: Treatment of a value that is not written as its column's format says: for all columns, or for some.
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names. A column of texts or whole numbers is given with the format in which its times are written: `{
        column: day, format: "%Y%m%d" }`.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time. By default, windows by time refuse
        them, since a key may be missing, and windows by rows warn of them; sequences of a feed do as windows.
    ready: Condition that a run waits for before it reads.
    lookback: Time before an interval within which files may still change, such as 3d: a run of an interval checks
        earlier intervals that end within this time before it, and writes them again if their files have changed.
    days: Treatment of days that have not come, have come twice, or have a column without values. By default, the
        summary warns of them.
    """
    return source("arrow", ('time', 'keys', 'duplicates', 'ready', 'lookback', 'days'), locals())


def csv(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    columns: spec.ColumnTypes | None = None,
    dialect: spec.CsvDialect | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    stray_quotes: spec.StrayQuotes | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    encoding: spec.TextEncoding | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    formats: Mapping[str, str] | None = None,
    header: bool | None = None,
    same_names: spec.SameNamePolicy | None = None,
    nulls: Sequence[str] | None = None,
    quoted_nulls: bool | None = None,
    on_error: spec.OnReadError | None = None,
    infer_rows: int | None = None,
    missing: spec.MissingColumnPolicy | None = None,
    added: spec.AddedColumnPolicy | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: spec.Time | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
    days: spec.Days | None = None,
) -> spec.Source:
    """CSV files to read, also packed (`.gz`, `.zst`). Several threads read a large one that is not packed. A record
    may have 16 MiB.

    Without `columns`, the first rows give the types: numbers are integers or floats where these hold all of their
    digits, else strings, as `007` is; `true` and `false` are booleans; dates and times are those of ISO 8601, in
    nanoseconds where they have more than six digits of a fraction, and in UTC where all of them have an offset. A
    later value that does not fit the type is a fault, or null with `on_error: missing`, which the summary counts.

    In a column of texts an empty field is null, and `""` is an empty text, as DuckDB, Polars, PostgreSQL and Spark
    write them. Writers that put quotes around all fields write `""` where there is no value: `quoted_nulls: true`
    reads it as null. In columns of other types both are null.

    Blank lines are no rows. In files of one column they are rows without a value, as DuckDB, Polars and pyarrow
    write null: a blank line at the end of the file is one, too. `dialect: pandas` reads no rows from blank lines.

    A field in quotes ends with a quote; quotes elsewhere in a field are faults (`stray_quotes`), and so is text
    behind the quote that ends one. Other ways of quoting have a `dialect`.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    columns: The columns to read, and their types. When left out, all columns are read, with types taken from the
        first rows. Without a header these are all columns, in order.
    dialect: The program whose way of writing CSV the files follow.
    delimiter: The character between fields, of ASCII. Where left out, that of the dialect; a header of a single
        name in which another delimiter stands is a fault then.
    quote: The character around fields in which delimiters, line ends and, doubled, it itself may stand; `none`
        where there is no such character. Where left out, that of the dialect.
    escape: The character before a quote that belongs to a quoted field, where quotes are not doubled for that.
        Before other characters it is a letter. Without quotes, and as the dialects `mysql` and `pandas` have it, it
        may stand before any character.
    stray_quotes: Treatment of quotes where none may be: in a field that does not begin with one, and behind the one
        that ends a field. A quote that opens a field and is not closed is always a fault.
    comment: The character at the beginning of lines that are no records.
    skip_lines: Lines before the header of each file, such as a title, that are not read.
    encoding: The encoding of the files.
    decimal: The character between the whole and the fraction of a number.
    thousands: The character between groups of three digits of numbers that are written in groups: a point, an
        apostrophe, or one of the spaces, such as the narrow one (`"\\u202f"`) of Excel in France. `0.123` is not
        written in groups.
    formats: Columns of dates and times that are not written as in ISO 8601, with the way in which they are:
        `%d.%m.%Y`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC. Where directives stand side by side, as in `%Y%m%d`, each has all of its digits. A column may
        be declared as what it becomes, or as the texts or whole numbers that it is.
    header: True if the first record of each file names the columns. Where several columns have no name, these are
        called `column_3` and so on by their places. Default: true.
    same_names: Treatment of columns of one name.
    nulls: Fields that stand for null. Where left out, those of the dialect: in most, the empty field.
    quoted_nulls: True if a field in quotes may stand for null, false if it is a text: `""` is then an empty one,
        and null in columns of other types. Where left out, as the dialect has it: in most, `""` is an empty text,
        and other `nulls` stand for null in quotes, too.
    on_error: Treatment of a value that is not of its column's type: for all columns, or for some.
    infer_rows: Rows to look at for the types of columns. Default: 10000.
    missing: Treatment of a column that a file lacks. Default: "fault".
    added: Treatment of a column that only later files have. Default: "fault".
    partitions: Use of folders named `column=value` as columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names. A column of texts or whole numbers is given with the format in which its times are written: `{
        column: day, format: "%Y%m%d" }`.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time. By default, windows by time refuse
        them, since a key may be missing, and windows by rows warn of them; sequences of a feed do as windows.
    ready: Condition that a run waits for before it reads.
    lookback: Time before an interval within which files may still change, such as 3d: a run of an interval checks
        earlier intervals that end within this time before it, and writes them again if their files have changed.
    days: Treatment of days that have not come, have come twice, or have a column without values. By default, the
        summary warns of them.
    """
    return source("csv", ('time', 'keys', 'duplicates', 'ready', 'lookback', 'days'), locals())


def json(
    path: str | None = None,
    *,
    paths: Sequence[str] | None = None,
    columns: spec.ColumnTypes | None = None,
    infer_rows: int | None = None,
    added: spec.AddedColumnPolicy | None = None,
    formats: Mapping[str, str] | None = None,
    on_error: spec.OnReadError | None = None,
    partitions: spec.PartitionPolicy | None = None,
    time: spec.Time | None = None,
    keys: Sequence[str] | None = None,
    duplicates: spec.Duplicates | None = None,
    ready: spec.Ready | None = None,
    lookback: str | None = None,
    days: spec.Days | None = None,
) -> spec.Source:
    """JSON files to read: one object per line, also packed (`.gz`, `.zst`). A field that an object lacks is null; one
    that it has twice is a fault. A line may have 16 MiB.

    Without `columns`, the first rows give the fields and their types. Numbers are read as integers or floats where
    these hold all of their digits, else as strings; fields that are always null or `{}` are strings, those that are
    always `[]` lists of strings. A later value that does not fit the type is a fault, or null with `on_error:
    missing`, which the summary counts: `"1"` is a string and `1.0` a float, unless the column is declared as
    integers. A column of strings takes numbers, booleans and `{}` as they are written.

    path: A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in `[*]`, these
        characters stand for themselves.
    paths: Several of them, instead of `path`.
    columns: The fields to read, and their types; taken from the first rows when left out.
    infer_rows: Rows to look at for the types of columns. Default: 10000.
    added: Treatment of a field, also of an object inside, that the first rows do not have. `include` looks at all
        rows of all files before any is read. Fields that `columns` does not name are left out.
    formats: Columns of texts or whole numbers that are dates or times, with the way in which they are written:
        `%Y%m%d`. The directives are those of `strftime`. With a time of day they are timestamps, with an offset
        (`%z`) in UTC. Where directives stand side by side, each has all of its digits.
    on_error: Treatment of a value that is not of its column's type: for all columns, or for some.
    partitions: Use of folders named `column=value` as columns. Default: "auto".
    time: The event-time column. Files whose times do not overlap are read in order of time; others in the order of
        their names. A column of texts or whole numbers is given with the format in which its times are written: `{
        column: day, format: "%Y%m%d" }`.
    keys: The columns that identify a series.
    duplicates: Treatment of rows that have the same keys and the same time. By default, windows by time refuse
        them, since a key may be missing, and windows by rows warn of them; sequences of a feed do as windows.
    ready: Condition that a run waits for before it reads.
    lookback: Time before an interval within which files may still change, such as 3d: a run of an interval checks
        earlier intervals that end within this time before it, and writes them again if their files have changed.
    days: Treatment of days that have not come, have come twice, or have a column without values. By default, the
        summary warns of them.
    """
    return source("json", ('time', 'keys', 'duplicates', 'ready', 'lookback', 'days'), locals())
