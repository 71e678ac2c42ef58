"""What steps do: a function for each transform, with the names of the YAML language.

Generated from the schema of specs by `generate_types.py`: change that, not this.
"""

# ruff: noqa

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import spec
from ._functions import fit_estimator, map_batches
from ._made import alone, made

__all__ = [
    "aggregate",
    "apply_buckets",
    "as_of_join",
    "bag_of_tokens",
    "bucketize",
    "calendar",
    "cast",
    "clip",
    "command",
    "cross",
    "date_parts",
    "dedupe",
    "derive",
    "diff",
    "distance",
    "drop",
    "estimator",
    "ewm",
    "expanding",
    "expect",
    "explode",
    "fill_forward",
    "filter",
    "fit_estimator",
    "forecast_feature",
    "frequency_encoding",
    "future_rows",
    "g_and_h",
    "geohash",
    "group_rare",
    "hash_bucket",
    "impute",
    "interpolate",
    "join",
    "k_bins",
    "keep_best",
    "knn_impute",
    "lag",
    "list_statistics",
    "log1p",
    "map_batches",
    "max_abs",
    "min_max",
    "missing_indicator",
    "multi_hot",
    "ngrams",
    "normal_quantiles",
    "normalize",
    "normalize_text",
    "one_hot",
    "ordinal",
    "pca",
    "pct_change",
    "polynomial",
    "pooled",
    "power",
    "profile",
    "python",
    "quantiles",
    "rename",
    "robust_scale",
    "rolling",
    "sample",
    "seasonal_index",
    "seasonal_rolling",
    "select",
    "spline",
    "standardize",
    "target",
    "target_encoding",
    "tf_idf",
    "violations",
    "vocabulary",
    "winsorize",
]


def aggregate(
    *,
    compute: Mapping[str, spec.AggregateExpression],
    by: Sequence[str] | None = None,
    every: str | None = None,
    time: str | None = None,
    ddof: int | None = None,
) -> spec.AnyTransform:
    """One row for each group of rows with equal keys, and for each bucket of time.

    Out: the key columns, then `time` (the bucket's start, in the column's type), then the computed columns; rows
    sorted by keys and time, nulls last. Null is a key of its own; -0.0 and 0.0 are one key, 0.0, and so are all
    NaN. Nulls and NaN in the values are ignored; where a group has nothing else, the result is null (counts are 0).
    Sums, means, variances of floats are exact and rounded once, so that the bits do not depend on threads; sums of
    integers are `int64`, a sum that does not fit is a fault; means, `std` and `var` are `float64`. `median`,
    `quantile`, `weighted_mean` and `weighted_quantile` are exact, too. `first`, `last` and `list` go by the order
    of the data. `first_by` and `last_by` go by time, and by the order of the data among rows of one time. Without
    keys and `every` there is one row, of empty data too. Takes a pass of its own, whose memory grows with the
    number of groups, for `n_unique`, `median`, `quantile`, `weighted_quantile` and `top_k` of distinct values in
    groups; it spills. `approx_n_unique` holds at most 4 KiB for each group. It estimates the number of distinct
    values by HyperLogLog (Flajolet and others 2007) with 4,096 registers and the estimator of Ertl (2017): the
    standard error is 1.04 / sqrt(4096) = 1.63 %, so that 95 of 100 estimates are within 3.3 %. Up to 1,023 values
    are counted one by one (Heule and others 2013): the count is exact unless two hashes agree in 26 bits, at most
    once in 128 groups of that size. The estimate depends on the values alone, not on threads or nights.

    compute: New columns by name, each `function: column` (`sum`, `mean`, `count`, `min`, `max`, `std`, `var`,
        `first`, `last`, `n_unique`, `approx_n_unique`, `median`) or one of `quantile: { column, q }`,
        `weighted_mean: { column, weight }`, `weighted_quantile: { column, weight, q }`, `first_by: { column, time
        }`, `last_by: { column, time }`, `top_k: { column, k }` (a list, most frequent first) and `list: { column,
        limit, beyond }` (with `beyond: truncate` a longer list is cut, else it is a fault).
    by: The key columns.
    every: The length of a bucket of time: a whole number and `s`, `m`, `h`, `d` or `w`, such as `15m`. Buckets are
        half-open and begin at multiples of it since 1970-01-01, weeks on Mondays.
    time: The column of dates or timestamps that `every` divides.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    """
    return made("aggregate", locals())


def apply_buckets(
    columns: spec.ColumnSelector,
    *,
    boundaries: Sequence[float],
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The index of the bucket between given boundaries: the number of boundaries that are not above x.

    In: columns of numbers. Out: `int32`, 0 to the number of boundaries. Null stays null, NaN goes into the last
    bucket, infinities into the first and the last. Learns nothing. Boundaries that are not increasing are a fault.
    Follows tf.Transform's `apply_buckets`.

    columns: Columns of numbers.
    boundaries: Increasing.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("apply_buckets", locals())


def as_of_join(
    *,
    with_: str,
    on: Sequence[str] | None = None,
    right_on: Sequence[str] | None = None,
    time: str | None = None,
    right_time: str | None = None,
    direction: spec.AsOfDirection | None = None,
    tolerance: spec.Length | None = None,
    exact: bool | None = None,
    known_at: str | None = None,
    columns: spec.ColumnSelector | None = None,
    prefix: str | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Columns of another step or source as they were at the time of each row (point in time).

    In: a time column and key columns here and there. Keys have equal types, or are integers of any widths, floats,
    or times of one zone by any name; -0.0 meets 0.0. Times have equal types, or are timestamps of any units that
    have both a time zone or both none: they are compared in the finer unit, and one that it does not hold is a
    fault. Out: the other table's columns behind this table's, nullable; one row for each row, in the same order. Of
    the other table's rows with the key, the last one at or before the row's time counts (`backward`), the first one
    at or after it (`forward`), or the nearer of both (`nearest`, the earlier where both are as near); of rows with
    equal times the last. Rows there whose time or `known_at` is null are never met; a null key or time here meets
    nothing. Both sides may be larger than memory: they are sorted together by key and time, with spilling. A
    backward join of two sources whose files follow each other in time sorts nothing: it holds the last row of each
    key, and a new day costs the rows of that day. Learns nothing.

    with_: The other step or source.
    on: The key columns here; by default those that the source declares. `[]` joins by time alone.
    right_on: The key columns there, in the same order, where their names differ.
    time: The time column here; by default the one that the source declares.
    right_time: The time column there; by default the one that the other source declares, else one of the same name.
    direction: Which row there counts. Default: "backward".
    tolerance: How far away in time it may be, inclusive: a length such as `7d`; any where left out.
    exact: Whether a row of the very same time counts. Default: true.
    known_at: The column there that tells when a row became known; it is not seen before. Of rows with equal times,
        the one that became known last counts. Only backward.
    columns: The other table's columns to bring; where left out, all but its keys and times.
    prefix: Put before the names of the columns that are brought. Default: "".
    suffix: Put behind the names of the columns that are brought. Default: "".
    """
    return made("as_of_join", locals())


def bag_of_tokens(
    columns: spec.ColumnSelector,
    *,
    buckets: int,
    seed: int | None = None,
    signed: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The number of a list's tokens in each of `buckets` buckets, by their hashes.

    In: lists of strings (or of integers, ...: as their text), such as those of `ngrams`. Out: a fixed-size list of
    `float32`, one count per bucket. The bucket of a token is that of `hash_bucket` with the same `buckets` and
    `seed` (xxh3); with `signed`, another bit of a hash decides whether it counts 1 or -1, so that collisions cancel
    on average. Null, an empty list and null elements count nothing. Learns nothing. 0 buckets, or more than 65,536,
    are a fault. Follows scikit-learn's `HashingVectorizer` with `norm=None`, and `FeatureHasher`, whose hash is
    another one.

    columns: Columns of lists of tokens.
    buckets: Number of buckets, 1 to 65,536.
    seed: Changes which tokens share a bucket. Default: 0.
    signed: Counts half of the tokens as -1. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("bag_of_tokens", locals())


def bucketize(
    columns: spec.ColumnSelector,
    *,
    q: int,
    by: Sequence[str] | None = None,
    weight: str | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The index of the bucket, of `q` buckets of about equal size: the number of boundaries that are not above x.

    In: columns of numbers. Out: `int32`, 0 to `q - 1`. Boundary k is `sorted[floor(n * k / q)]` within the rank
    error; boundaries may be equal. Null stays null, NaN goes into the last bucket and does not count, infinities
    count. Nothing seen: bucket 0. State: a sample of about `7.3 / epsilon^2` rows of 16 bytes (exact up to that
    many rows), or the distinct values, spilled beyond the budget. Follows tf.Transform's `bucketize`.

    With `by`, a value falls between the boundaries of its key, exact quantiles that are interpolated linearly; `q`
    is then at most 1,000. A key that was not seen gives -1; null is a key. State: the distinct values of each key,
    spilled beyond the budget; the boundaries have to fit memory. Follows tf.Transform's `bucketize_per_key`, whose
    quantiles are approximate.

    With `weight`, buckets have about equal sums of weights: boundary k is the first value with which more than `k /
    q` of the weight is passed, within the rank error as a share of the weight. Rows without a weight (null or NaN)
    and weights of 0 do not count; a weight that is negative, infinite, below 1e-200 or above 1e200 is a fault when
    fitting. State: a sample of as many rows, of 56 bytes, which is exact up to as many rows, or the distinct values
    with the exact sums of their weights. Applying reads no weights. Follows tf.Transform's `bucketize` with
    `weights`. With `by` and `weight`, boundary k of a key is the first value with which at least `k / q` of its
    weight is passed.

    columns: Columns of numbers.
    q: How many buckets; at least 2.
    by: Key columns: boundaries are learned for each of their values.
    weight: The column of the weights of rows, which is not among `columns`; where left out, each row counts once.
    epsilon: The rank error of boundaries, as a share of the rows; where left out, `1 / q` but at most 0.01.
    exact: Takes the boundaries exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("bucketize", locals())


def calendar(
    columns: spec.ColumnSelector,
    *,
    parts: Sequence[spec.CalendarFact] | None = None,
    country: str | None = None,
    holidays: Sequence[spec.HolidayDate] | None = None,
    weekend: Sequence[spec.DayOfWeek] | None = None,
    payday: Sequence[int] | None = None,
    fourier: Sequence[spec.FourierTerms] | None = None,
    events: spec.EventTable | None = None,
) -> spec.AnyTransform:
    """Facts of the calendar about dates, which are known ahead of time.

    In: columns of dates or timestamps; those with a time zone count in its local time. Out, for each of `parts`:
    `<column>_<part>`; for `fourier`, `<column>_sin_<period>_<n>` and `_cos_`, `float32`, of the time since
    1970-01-01; for `events`, `<column>_days_since_<kind>` and `<column>_days_until_<kind>`, `int32`. Null stays
    null. Learns nothing but the days of events, which are held in memory.

    Holidays are the public ones of `country` (`DE`, or `DE-BY` of a subdivision: 250 countries, from 1990 to 2040
    or as long as they are known), with the days under `holidays`. A date beyond the known years is a fault. Dates
    of holidays that follow the moon are estimates where they lie ahead. Business days are those that are neither
    holidays nor `weekend`. A payday (`payday: [15, 31]`) is that day of the month, or its last, or the business day
    before where it is none. The holidays are those of the package `holidays` 0.109 of Python.

    Business days are no unit of a length, since each calendar has its own. `business_day_number` makes them a time:
    of its column, `5t` is five business days in every step that takes a length. `business_day_date` is its inverse,
    and has the dates of `future_rows` with that time.

    columns: Columns of dates or timestamps.
    parts: The facts.
    country: The country whose public holidays count, by its code of ISO 3166: `DE`, or `DE-BY`.
    holidays: Further holidays.
    weekend: Days of the week without business; Saturday and Sunday when left out. Default: ["saturday", "sunday"].
    payday: Days of the month on which wages are paid; 31 is the last one.
    fourier: Fourier terms.
    events: Events of another step or source.
    """
    return made("calendar", locals())


def cast(
    columns: Mapping[str, spec.TypeName],
    *,
    on_error: spec.OnCastError | None = None,
) -> spec.AnyTransform:
    """Changes the types of columns in place.

    Null stays null. A value that does not fit (an integer out of range, NaN as an integer, text that is not a
    number, a double beyond `float32`, a time with digits that the type does not hold) is a fault unless `on_error:
    missing`. Fractions are cut toward zero, and such values are counted; numbers other than 0 are true; dates and
    timestamps are read from integers as days and ticks since 1970, and a day beyond the years 1 to 9999 does not
    fit: 20240101 is a date as it is written, for which sources have `formats`. A time with a zone becomes one
    without by what the clock of its zone shows, as `CAST` in SQL does. Texts are read as CSV files are: `true` and
    `false` are booleans, numbers beyond the range of their type are none, dates and times are those of ISO 8601,
    and a time with an offset is that instant in UTC.

    columns: The new type of each column; patterns such as `qty_*` and `type:integer` are allowed.
    on_error: What becomes of a value that does not fit. Default: "error".
    """
    return made("cast", locals())


def clip(
    columns: spec.ColumnSelector,
    *,
    min: float | None = None,
    max: float | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Values below `min` become `min`, values above `max` become `max`.

    In: columns of numbers. Out: the same types; decimals give `float64`. Integers take the nearest whole numbers
    inside the bounds that their type can hold. Null stays null, NaN stays NaN, infinities are clipped. Learns
    nothing. `min > max`, neither of them, or no whole number between them for integers is a fault.

    columns: Columns of numbers.
    min: The lower bound; none where left out.
    max: The upper bound; none where left out.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("clip", locals())


def command(
    columns: spec.ColumnSelector,
    *,
    run: Sequence[str],
    returns: Mapping[str, spec.TypeName],
    nullable: Sequence[str] | None = None,
    batch_rows: int | None = None,
    timeout_seconds: int | None = None,
    revision: str | None = None,
    by: spec.FunctionBy | None = None,
    looks_ahead: spec.LookAhead | None = None,
) -> spec.AnyTransform:
    """Columns that a program computes, row by row or series by series.

    In: the chosen columns, as an Arrow IPC stream on the standard input of the program. Out: the declared columns,
    as an Arrow IPC stream on its standard output. The program answers each batch with one batch of as many rows, in
    the same order, and flushes it before it reads the next one. It ends when its input does. Without `by` it must
    be row-wise: a row's output depends on the row alone, since batches are cut differently from run to run. A
    column is then as old as its youngest input for the check of leaks. With `by` each batch is one whole series in
    order of time, as for `python`. A program must not keep anything from batch to batch.

    The columns come in Arrow's types, text as `utf8`. A returned column must have the declared type, text in any
    layout. Other columns, other numbers of rows and nulls in a column that is not `nullable` are faults, and so is
    a program that ends; the fault shows the last 8 KiB of its standard error. Standard error of a program that does
    not fail is not shown. One process runs for each thread that computes the step, on workers too; it ends with the
    run. Its memory is not part of `--memory`. A program of Python has `PYTHONHASHSEED=0`, unless the environment
    sets the variable.

    The id of the step holds the words of `run`, and the content of those that name files. Words are paths from the
    working directory, on a worker from that of the worker; no shell reads them. A worker whose files differ is
    refused. Learns nothing. A spec with this step runs programs: run only specs that you trust.

    columns: The columns that the program receives.
    run: The program and its arguments.
    returns: The columns that it returns, with their types.
    nullable: Returned columns that may be null.
    batch_rows: Most rows of a batch. A series is one batch, of any number of rows. Default: 16384.
    timeout_seconds: Most seconds for the answer to a batch. Default: 600.
    revision: Text that changes the id of the step. Change it when the program changes, if no word of `run` is its
        file.
    by: The rows of a batch: whole series by the keys of the source (`series`) or by columns.
    looks_ahead: The rows of a series that a value is computed from, for the check of leaks; with `by` only.
    """
    return made("command", locals())


def cross(
    columns: spec.ColumnSelector,
    *,
    buckets: int,
    seed: int | None = None,
    name: str | None = None,
) -> spec.AnyTransform:
    """Several columns as one category: the bucket of the hash of their values together.

    In: two or more columns of text, integers, booleans, dates (as their text). Out: one `int64` column, 0 to
    `buckets - 1`. The hash is the xxh3 with `seed` of the xxh3 of each value in order, so that ("ab", "c") and
    ("a", "bc") differ. Null where any of them is null. Learns nothing. One column, or 0 buckets, is a fault.

    columns: The columns that are crossed; their order counts.
    buckets: How many buckets.
    seed: Changes which values share a bucket. Default: 0.
    name: What the new column is called; where left out, the columns' names joined by `_x_`.
    """
    return made("cross", locals())


def date_parts(
    columns: spec.ColumnSelector,
    *,
    parts: Sequence[spec.CalendarPart],
    cyclic: bool | None = None,
) -> spec.AnyTransform:
    """Parts of dates and timestamps, beside the column.

    In: columns of dates or timestamps; those with a time zone count in its local time. Out, for each part:
    `<column>_<part>`, `int32` (`boolean` for `is_weekend`); with `cyclic`, `<column>_<part>_sin` and `_cos`
    instead, `float32`, for every part that comes round. Null stays null; a time beyond the years of the calendar is
    a fault. Learns nothing. Parts of the time of day need timestamps.

    columns: Columns of dates or timestamps.
    parts: Which parts.
    cyclic: Writes the sine and cosine of the part's place in its period instead of the number; `year` and
        `is_weekend` stay as they are. Default: false.
    """
    return made("date_parts", locals())


def dedupe(
    *,
    keys: Sequence[str] | None = None,
    keep: spec.DedupeKeep | None = None,
) -> spec.AnyTransform:
    """Keeps one row for each key, the first or the last in the order of the data.

    Columns stay as they are and rows keep their order. Null is a key of its own, -0.0 and 0.0 are one key, and so
    are all NaN. Takes a pass of its own, which reads the keys first, spilling those that memory cannot hold, and
    then the rows.

    keys: The key columns; where left out, all columns.
    keep: Which row of a key is kept. Default: "first".
    """
    return made("dedupe", locals())


def derive(
    value: spec.DeriveColumns,
) -> spec.AnyTransform:
    """New columns by name, each a SQL expression; later ones may use earlier ones.

    A name that exists already is replaced if its own expression reads it, else it is a fault. Types follow SQL:
    integers stay integers (`1 / 2` is 0), null in gives null out, integer overflow and division by zero of integers
    are faults, of floats infinities and NaN, which are counted, as are nulls that `coalesce` of a column fills.
    Expressions see one row, and -0.0 as 0.0; functions that change from run to run (`random`, `now`) are refused.

    value: What the language has under the name.
    """
    return alone("derive", value)


def diff(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[spec.Length],
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """The value less the value some rows or some time before. The seasonal difference is the one by the length of the
    season: `by: [7]` or `by: [7d]`.

    In: columns of numbers. Out, for each length: `<column>_diff_<by>`, `int64` of integers, else `dtype`. Null
    where either value is missing, where there is no row that far back (by time: exactly that long before), and
    where a difference of integers is below -(2^63 - 2) or above 2^63 - 1, which is counted. State per series: some
    16 bytes for each row that the longest length reaches back over. It looks at the row itself, which a feature of
    its own label must not: take the `lag` of the difference.

    columns: Columns of numbers.
    by: How far back, in rows or time.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type of differences of floats. Default: "float64".
    """
    return made("diff", locals())


def distance(
    *,
    from_: Sequence[str],
    to: Sequence[str],
    name: str | None = None,
    unit: spec.DistanceUnit | None = None,
    bearing: str | None = None,
) -> spec.AnyTransform:
    """The distance between two places on the Earth along a great circle (haversine), and the bearing at the first.

    In: latitude and longitude of both places in degrees, columns of numbers. Out: `float64`. The Earth is a sphere
    of the mean radius 6371.0088 km (IUGG), which is within 0.6 % of the distance on the ellipsoid. The bearing is
    in degrees clockwise from north, 0 to below 360; where both places are the same it is 0. A null gives null; NaN,
    an infinity and a latitude beyond 90 degrees are no place and give NaN, which is counted. Longitudes may have
    any number of turns. Learns nothing. Follows scikit-learn's `haversine_distances`, which takes radians.

    from_: The columns of latitude and longitude of the first place, in this order.
    to: The columns of latitude and longitude of the second place, in this order.
    name: The name of the new column. Default: "distance".
    unit: The unit of length. Default: "kilometres".
    bearing: The name of a column for the bearing; none is written where left out.
    """
    return made("distance", locals())


def drop(
    value: spec.Drop,
) -> spec.AnyTransform:
    """Removes these columns; all others stay as they are. To remove every column is a fault.

    value: What the language has under the name.
    """
    return alone("drop", value)


def estimator(
    columns: spec.ColumnSelector,
    *,
    function: str,
    returns: Mapping[str, spec.TypeName],
    nullable: Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[spec.ConstantValue] | None = None,
    method: str | None = None,
    frames: spec.FrameKind | None = None,
    code: str | None = None,
    path: Sequence[str] | None = None,
    interpreter: str | None = None,
    fit_rows: int | None = None,
    batch_rows: int | None = None,
    timeout_seconds: int | None = None,
    revision: str | None = None,
) -> spec.AnyTransform:
    """Columns that an estimator of Python computes, after it has learned from the rows: scikit-learn's `partial_fit`
    and `transform`.

    In: the chosen columns, as a matrix of NumPy in which null is NaN, or as tables of pyarrow, pandas or Polars
    (`frames`); no lists. Out: the declared columns: those of a matrix in their order, or those of a table or a dict
    by their names. Types, rows and nulls are checked as for `python`.

    `function` makes the estimator: a function without parameters, or a class. In a pass of its own, one process
    calls `partial_fit(rows)` for batches of `fit_rows` rows, in the order of the source, or `partial_fit(rows,
    y=labels)` with a `label`; rows whose label is null are not learned from. `classes` are passed on each call, as
    classifiers of scikit-learn need them. Then processes, one for each thread that computes the step, call
    `transform(rows)`, or another `method`, for batches of any size. With a split, set `fit_on: train`: an estimator
    with a label knows the labels of the rows that it learns from. A new row, or another order of files, learns from
    all rows again.

    The result is the pickled estimator, at most 64 MiB, with its digest. The artifact keeps it, `apply` and serving
    use it. It must depend on rows and settings alone: set the estimator's own `random_state`. Until all rows are
    read, the state is these columns of them, which spill to temporary files. Memory of the processes is not part of
    `--memory`. They run with `PYTHONHASHSEED=0`, as for `python`.

    A pickle is code: it runs when it is loaded. The program loads it from the state directory and from the artifact
    of the pipeline alone, if the digest is right and if the step's code is the code that fitted it. Run only specs,
    and apply only artifacts, that you trust.

    An exception of `partial_fit` is a fault with the traceback and the first rows of the batch; one of `transform`,
    with the row that raises it. `check --functions` finds estimators whose values depend on the size of batches.
    The id of the step holds the source of the module and of the modules that it imports, as for `python`: name a
    `revision` for the versions of packages. An export to ONNX refuses the step.

    columns: The columns that the estimator receives.
    function: The function that makes the estimator: `module:name`, or a name that `code` defines.
    returns: The columns that it returns, with their types.
    nullable: Returned columns that may be null.
    label: The column of labels to learn from, which is not among `columns`.
    classes: All values of the label, for a classifier.
    method: The method that computes the columns, such as `predict`. Default: "transform".
    frames: The kind of tables that the estimator receives. Default: "numpy".
    code: Code that defines the function, instead of a module.
    path: Directories in which modules are searched, from the working directory; on a worker, from that of the
        worker. Default: ["."].
    interpreter: The program that runs Python. Default: "python3".
    fit_rows: Rows of each batch that it learns from. The last one has more than half as many, and at most one and a
        half times. Default: 16384.
    batch_rows: Most rows of a batch that it transforms. Default: 16384.
    timeout_seconds: Most seconds for the answer to a batch. The first one includes the start of Python and its
        imports. Default: 600.
    revision: Text that changes the id of the step, such as the digest of a file with the versions of packages.
    """
    return made("estimator", locals())


def ewm(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.EwmStatistic],
    alpha: float | None = None,
    span: float | None = None,
    com: float | None = None,
    half_life: spec.HalfLife | None = None,
    adjust: bool | None = None,
    ignore_na: bool | None = None,
    gap: spec.Length | None = None,
    min_periods: int | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Exponentially weighted statistics of everything up to the row, or up to `gap` before it.

    In: columns of numbers. Out, for each statistic: `<column>_ewm_<statistic>_<decay>`, such as
    `qty_ewm_mean_alpha0.3` or `qty_ewm_mean_half_life7d`. Exactly one of `alpha`, `span`, `com` and `half_life`
    says how fast the past fades: `alpha = 2 / (span + 1) = 1 / (1 + com) = 1 - exp(-ln 2 / half_life)` by rows; a
    half-life of time fades by the time between rows. Null and NaN are no values: they fade the past (unless
    `ignore_na`) and repeat the last result. Null before `min_periods` values. State per series: some 60 bytes, and
    16 for each row in the gap. Follows pandas' `ewm`; `std` and `var` are those of `bias=False`.

    columns: Columns of numbers.
    compute: Which statistics.
    alpha: The weight of the newest value, above 0 and at most 1.
    span: The span in rows, at least 1.
    com: The centre of mass in rows, at least 0.
    half_life: The half-life in rows (`7`, `3.5`) or time (`7d`).
    adjust: Divides weights by their sum, which counts at the beginning of a series. Default: true.
    ignore_na: Lets missing values leave no trace in the weights. Default: false.
    gap: How far before the row it ends.
    min_periods: How many values it takes. Default: 1.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type that comes out. Default: "float64".
    """
    return made("ewm", locals())


def expanding(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.SeriesStatistic],
    gap: spec.Length | None = None,
    min_periods: int | None = None,
    ddof: int | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Statistics of everything that a series had up to the row, or up to `gap` before it.

    In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed.
    Out, for each statistic: `<column>_expanding_<statistic>`. Numbers are `dtype`, `count`, `n_unique` and
    `since_nonzero` by rows `int64`, `first` and `last` the column's own type. `slope` and `since_nonzero` are by
    the unit in which `gap` is written, and by rows without a gap of time. Null and NaN are no values; where there
    are fewer than `min_periods`, or too few for the statistic, the result is null. State per series: some 100 bytes
    for each column; quantiles, `n_unique` and a gap hold the values themselves. Follows pandas' `expanding`.

    columns: Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    compute: Which statistics.
    gap: How far before the row it ends: the last so many rows, or rows later than `t - gap`, do not count.
    min_periods: How many values it takes; 1 where left out, 0 for `count`.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type of computed numbers. Default: "float64".
    """
    return made("expanding", locals())


def expect(
    value: spec.Expect,
) -> spec.AnyTransform:
    """Expects something of the rows at this place: of a source where it comes first, of a sink where it comes last.
    Rows stay as they are, but for those that `policy: quarantine` takes out.

    Each item is one rule, with `policy` (`fail`, `warn` or `quarantine`) and `at_most`, the share of rows that may
    violate it (`0.1%`). Rules: `not_null` and `unique` (columns; NaN is a value), `range` (least and greatest
    value, or null for no bound), `in_set` (values), `sql` (a condition on a row), `rows` (least and greatest number
    of rows, and the greatest `change` since the last run), `fresh` (greatest age of the last time of a column, at
    the time of the run or the end of its interval), `drift` (how far the distribution of columns may be from that
    of a part of the split, of the last run, or of the trailing week: Jensen-Shannon divergence and share of rows
    without a value). A null violates `not_null` alone; in `unique`, it is a value. NaN is above every range.
    Without an earlier run, what is compared with one holds. Small samples do not alarm: what chance exceeds once in
    a thousand times is no drift.

    `trailing_week` compares with the rows of the runs that published on the seven days before the day of this run:
    the last day of its interval, or today (UTC). Of several runs on one day, the last one counts. A run compares
    its new rows at this place: those of files that no run of an earlier day had read. Behind windows, joins,
    aggregates and queries it compares all rows, and so it does where no new file has any, but the rows are others
    than in the last run: of a history in such files, keep the rows of the night by a `filter` before.

    A rule judges the known rows. With `where: future`, it judges those that a `future_rows` before it adds: whether
    a plan that is joined reaches as far, say. It takes no rows out then, and says nothing of distributions.

    Rules are checked in the passes that learn, before anything is published. Where one with `policy: fail` does not
    hold, nothing of the run is published (FB0216, exit 65). The fault names the rule, the number of rows, the ten
    most frequent values that violate it, and the first ten rows with their files: these rows are read once more to
    find them.

    `apply` and `predict` check `not_null`, `range`, `in_set`, `sql` and `unique` on the given rows, but for rules
    about the label and columns that only the label needs. `rows`, `fresh` and `drift` are about the rows of runs.

    Rules with `policy: quarantine` come first, wherever they are listed: rows that violate one of `not_null`,
    `range`, `in_set` and `sql` are taken out before anything else is learned, checked or computed, and are counted.
    A sink with `quarantined: true` writes them, with the rule and the value. Where they are more than `at_most`,
    nothing is published. Rows of the future pass them. Rows that are scored pass those about the label, which they
    do not have yet; rows that are only history do not.

    State: counts; for `drift` the state of `profile`; for `unique` all distinct keys with their counts, spilled
    beyond the budget.

    value: What the language has under the name.
    """
    return alone("expect", value)


def explode(
    *,
    column: str,
    keep_empty: bool | None = None,
) -> spec.AnyTransform:
    """One row for each element of a list, in order; all other columns are repeated.

    In: a column of lists. Out: the column with the elements' type. Null elements stay. A row whose list is null or
    empty goes, or stays with null where `keep_empty` is set; the change in the number of rows is counted as
    `expanded`. Learns nothing. Follows Spark's `explode` and `explode_outer`.

    column: The column of lists.
    keep_empty: Keeps rows whose list is null or empty, with null as the element. Default: false.
    """
    return made("explode", locals())


def fill_forward(
    columns: spec.ColumnSelector,
    *,
    limit: int | None = None,
    suffix: str | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
) -> spec.AnyTransform:
    """Fills missing values (null and NaN) with the last value of the series before them.

    In: columns of any type. Out: the same types. What comes before the first value of a series stays missing, as
    null. Rows are filled only where they are; none are added. State per series: some 16 bytes per column; texts,
    decimals and nested values are held once each besides.

    columns: Columns of any type.
    limit: How many rows after a value are filled at most; all where left out.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where there is a `limit`.
    """
    return made("fill_forward", locals())


def filter(
    value: spec.FilterRows,
) -> spec.AnyTransform:
    """Keeps the rows for which a SQL condition is true; false and null remove the row.

    Columns stay as they are. Learns nothing, holds nothing. NaN compares as in SQL: it equals itself and is above
    all numbers; -0.0 equals 0.0. Removed rows are counted as `filtered`.

    A condition about the label is for learning alone: `filter: { sql: "qty IS NOT NULL", when: learning }`. `run`,
    `fit` and feeds apply it. Rows that are scored have no label yet: `apply`, `predict`, rows of the future and
    loaded artifacts keep them. Rows that are only history are filtered there, too, so that windows see what they
    saw in the run.

    value: What the language has under the name.
    """
    return alone("filter", value)


def forecast_feature(
    columns: spec.ColumnSelector,
    *,
    horizon: spec.Length,
    every: spec.Length,
    season: spec.Length | None = None,
    refit: spec.Length | None = None,
    model: spec.ForecastFeatureModel | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """The forecast of each row by a statistical model of its series, as it was made `horizon` before the row: a
    feature for trees and networks.

    In: columns of numbers or booleans. Out: `<column>_<model>_<horizon>`, such as `qty_theta_7d`, of `dtype`. Time
    is divided into periods of the length `refit`, counted from 1970 or from zero. A model is fitted for each
    period, to the values of the series up to `horizon` before its begin, and forecasts all rows of the period. So
    no row is forecast from values that are nearer than `horizon`, and checks of leaks take the column like a `lag`
    by `horizon`. Periods of months begin on the day of the month of the first row of a series, or on the last day
    where that row lies on one. A row on an earlier day has a model of its own. Rows of the future have forecasts
    like others: stand behind `future_rows`, with a `horizon` that is that of the label or longer.

    Rows of a series lie in the nearest step of `every`, and the last value of a step counts. A missing or infinite
    value, and a step without a row, gets one on the line between its neighbours. Days have 24 hours, and the rows
    of a month lie in its step, whatever their day. Fewer than four known values (five with `ets`) are forecast by
    the last one. A row without any is null, as is a forecast that is not finite; where the first value comes within
    a period, each row of that period has a model of its own. Each series is held in memory as a whole, so that rows
    cannot be served and `strategy: recursive` cannot feed it. A fit takes time in proportion to the values before
    it, so that a long history with many periods is slow: raise `refit`. A row without a time is a fault, and so is
    a series with rows in less than a hundredth of more than 10,000 steps. Models are those of `train: { model:
    theta }` and `ets`.

    columns: Columns of numbers or booleans.
    horizon: Time from the last value that a model knows to the first row that it forecasts, a whole number of
        steps.
    every: The distance between rows of a series: a length of time such as `1d` or `1mo`.
    season: The length of a season, a whole number of steps. Series of fewer than two seasons have none. There are
        no seasons when left out.
    refit: The time from one fit to the next, a whole number of steps; `horizon` when left out.
    model: The kind of model. Default: "theta".
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    dtype: The type that comes out. Default: "float64".
    """
    return made("forecast_feature", locals())


def frequency_encoding(
    columns: spec.ColumnSelector,
    *,
    compute: spec.CategoryFrequency | None = None,
    min_count: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The frequency of a category: its share of all values, or its count.

    In: strings, integers, booleans, dates (as their text). Out: `float64` for shares, `int64` for counts. Null
    stays null and is never counted; the empty string is a category. A category that was never seen gives 0, and so
    does every value where nothing was seen. State: the distinct values with exact counts, spilled beyond the
    budget; those of at least `min_count` have to fit memory. Follows category_encoders' `CountEncoder`,
    feature_engine's `CountFrequencyEncoder` and the counts of NVTabular's `JoinGroupby`.

    columns: Columns of categories; each is counted by itself.
    compute: Which number is written. Default: "share".
    min_count: Categories seen less often give 0, as those that were never seen. Default: 1.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("frequency_encoding", locals())


def future_rows(
    *,
    horizon: spec.Length,
    every: spec.Length,
    carry: spec.ColumnSelector | None = None,
    after: spec.FutureStart | None = None,
    active_within: spec.Length | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
) -> spec.AnyTransform:
    """Adds rows of the future: for each series, one row for each step of `every` up to `horizon` after the last known
    time. They are what a model predicts.

    In: a time column and key columns. Out: the same columns. A row of the future has its time, the keys of its
    series, and the columns listed under `carry` as they were in the last row of the series; all other columns are
    null, the target among them. Put the step first, behind filters: steps after it treat rows of the future like
    all others. Columns that are known in advance come from them: `date_parts`, `derive`, and `join` or `as_of_join`
    with a table of plans. Windows that end at least the horizon before their row (`gap`, `lag`) see known values
    alone, so that features of a row of the future have the same bits as those that are computed once its time has
    come.

    They are kept apart from the known rows. Statistics, splits, trainings, feeds and sinks read the known rows
    alone; a sink with `split: future` and a `predict` sink get the rows of the future, ordered by time and then by
    keys. So no output of the known rows changes because of them. `aggregate`, `dedupe` and SQL end them. In a run
    of an interval, they begin at the end of the interval.

    State: the last row of each series, some 100 bytes and the carried columns, spilled while it is made; the rows
    are written to the state directory. Rows without a time do not count. A series with several rows at its last
    time lacks a key: `FB0212`, unless the source declares `duplicates: warn` or `allow`. Then the one whose carried
    values are greater counts.

    horizon: How far the last row lies after the last known time: a length of time, such as `28d` or `3mo`.
    every: The distance between rows of a series: a length of time, such as `1d`. Months (`1mo`, `1q`, `1y`) keep
        the day of the month that the rows of a series have, or its end.
    carry: Columns whose last values are carried on: what does not change in a series.
    after: Where the rows of a series begin. Default: "data".
    active_within: Leaves out series whose last row lies further before the last time of the data, such as `90d`.
        They are counted in the summary. Without it, all series go on.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them.
    """
    return made("future_rows", locals())


def g_and_h(
    columns: spec.ColumnSelector,
    *,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The z of which x is `a + b * (exp(g * z) - 1) / g * exp(h * z^2 / 2)`: if x has Tukey's g-and-h distribution, z
    is standard normal. `g` takes skewness away, and `h` heavy tails.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. The four numbers are
    learned from the median and five pairs of quantiles, those of 1/4, 1/8, 1/16, 1/32 and 1/64 from either end. `a`
    is the median, and `g` the middle one of what the pairs give; `b` and `h` come from a line through the distances
    of the pairs, whose slope `h` is at least 0 (D. C. Hoaglin, *Summarizing shape numerically: the g-and-h
    distributions*, 1985). Pairs of which one is infinite or equals the median do not count; without any, the result
    is `x - a`. With `h = 0` the distribution has an end on one side: what lies beyond it gives 10 or -10. Null, NaN
    and infinities stay; null and NaN do not count. Nothing seen: x unchanged.

    State: a sample of about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget.
    Outliers beyond these quantiles do not move the result, other than with `power`.

    columns: Columns of numbers.
    epsilon: The rank error of the quantiles, as a share of the rows. Default: 0.005.
    exact: Takes the quantiles exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("g_and_h", locals())


def geohash(
    *,
    place: Sequence[str],
    length: int | None = None,
    name: str | None = None,
) -> spec.AnyTransform:
    """The geohash of a place: a text that begins alike for places that are near each other, but for those at both
    sides of an edge of a cell.

    In: latitude and longitude in degrees, columns of numbers. Out: `string` of `length` letters and digits. Cells
    of 5 are 4.9 km wide and high at the equator, of 6 1.2 km by 0.6 km, of 7 153 m; each letter more divides a cell
    by 32. A null gives null; so do NaN, an infinity and a latitude beyond 90 degrees, which are counted as nulled.
    Longitudes may have any number of turns. Learns nothing. `vocabulary`, `target_encoding` and others take the
    texts. Follows the geohash of Niemeyer (geohash.org, 2008).

    place: The columns of latitude and longitude, in this order.
    length: Number of letters and digits, 1 to 12. Default: 6.
    name: The name of the new column. Default: "geohash".
    """
    return made("geohash", locals())


def group_rare(
    columns: spec.ColumnSelector,
    *,
    min_count: int | None = None,
    min_share: float | None = None,
    top_k: int | None = None,
    other: str | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Rare categories, and those that were never seen, become one category.

    In: strings, integers, booleans, dates (as their text). Out: `string`. A category stays if it has `min_count`
    values and `min_share` of all values that are not null, and is among the `top_k` most frequent ones (ties in
    byte order); at least one of the three is needed. Null stays null and is never counted; the empty string is a
    category. A category that is itself called like `other` joins the rare ones. Nothing seen: every value is
    `other`. State: the distinct values with exact counts, spilled beyond the budget; those that stay have to fit
    memory. Follows feature_engine's `RareLabelEncoder`, and `min_frequency` and `max_categories` of scikit-learn's
    `OneHotEncoder`.

    columns: Columns of categories; each is counted by itself.
    min_count: Categories seen less often are rare.
    min_share: Categories with a smaller share of the values are rare; a number from 0 to 1.
    top_k: All but so many of the most frequent categories are rare.
    other: The category that rare ones become. Default: "other".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("group_rare", locals())


def hash_bucket(
    columns: spec.ColumnSelector,
    *,
    buckets: int,
    seed: int | None = None,
    hash: spec.BucketHash | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The bucket of a category's hash, 0 to `buckets - 1`.

    In: strings, integers, booleans, dates (as their text), or lists of these. Out: `int64`, in lists where the
    input has lists. The 64-bit xxh3 of the text with `seed`, scaled by a multiplication, so that no bucket is
    favoured. Null stays null; the empty string is a value. Learns nothing; a value keeps its bucket for ever. 0
    buckets are a fault.

    `hash: murmur3` takes the remainder of the 32-bit MurmurHash3 (x86) of the text instead: the buckets of
    onnxruntime, so that `forebay export` writes the step into a file of ONNX. Its `seed` ends at 4,294,967,295.
    Among very many buckets, the first ones are favoured by one value in 2^32 each.

    `hash: farm` takes the remainder of FarmHash's 64-bit fingerprint, which has no `seed`: the buckets of
    TensorFlow, and of tf.Transform's `hash_strings` without a key.

    columns: Columns of categories.
    buckets: How many buckets.
    seed: Changes which values share a bucket; `farm` has none. Default: 0.
    hash: The hash function.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("hash_bucket", locals())


def impute(
    columns: spec.ColumnSelector,
    *,
    with_: spec.ImputeStrategy,
    by: Sequence[str] | None = None,
    indicator: bool | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Fills missing values: nulls and, in columns of floats, NaN.

    In: columns of any type that is not nested; mean, median and end need numbers. Out: the same type, but mean,
    median and end of integers give `float64`. Where nothing was seen there is nothing to fill with, and values stay
    missing. Infinities are values: they make the mean infinite. State: none for a constant, 6 KiB for a mean, a
    sample or the distinct values for a median, and the distinct values with their counts for a mode (spilled beyond
    the budget).

    `end_tail` fills a number beyond the values, as feature_engine's `EndTailImputer` with `"gaussian"` and, for
    `around: quartiles`, with `"iqr"`. Where there are fewer than two values, or infinite ones, values stay missing.
    State: that of a mean or a median.

    With `by`, a mean or a median is that of the values with the same key, the median exactly; null is a key. A key
    without values takes the number of all rows. State: as well, some 300 bytes or the distinct values of each key,
    spilled beyond the budget; the numbers have to fit memory.

    columns: Columns to fill.
    with_: What is filled in: `mean`, `median`, `mode`, `constant: value`, or `end_tail: {}`.
    by: Key columns: a mean or a median is learned for each of their values.
    indicator: Adds `<column>_missing` (boolean): whether the value was missing. Default: false.
    epsilon: The rank error of the median, as a share of the rows. Default: 0.01.
    exact: Takes the median exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("impute", locals())


def interpolate(
    columns: spec.ColumnSelector,
    *,
    limit: int | None = None,
    suffix: str | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Fills missing values (null and NaN) on the straight line, by time, between the value of the series before them
    and the one after them.

    It looks ahead: a value that was filled in knows a later one. Use it for covariates that are known in advance
    and for cleaning, not for features of what is forecast; `fill_forward` does not look ahead. In: columns of
    numbers. Out: `dtype`. What comes before the first value of a series and after its last stays missing, as null.
    Values of equal time are not averaged: the last one before the row and the first one after it count. Beside an
    infinity the line is infinite; between infinities of either sign there is none, and the value stays missing.
    Rows are filled only where they are; none are added. State per series: some 32 bytes per column; the series are
    read twice, forward and backward. Follows pandas' `interpolate(method="time", limit_area="inside")`.

    columns: Columns of numbers.
    limit: How many rows after a value are filled at most; all where left out.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where there is a `limit`.
    dtype: The type that comes out. Default: "float64".
    """
    return made("interpolate", locals())


def join(
    *,
    with_: str,
    on: Sequence[str],
    right_on: Sequence[str] | None = None,
    how: spec.JoinKind | None = None,
    cardinality: spec.JoinCardinality | None = None,
    columns: spec.ColumnSelector | None = None,
    prefix: str | None = None,
    suffix: str | None = None,
    strategy: spec.JoinStrategy | None = None,
) -> spec.AnyTransform:
    """Columns of the matching rows of another step or source.

    In: key columns of equal types here and there (integers of any width, zones by any name). Out: the other table's
    columns behind this table's, nullable. Rows keep their order. A null key matches nothing; NaN matches NaN, and
    -0.0 matches 0.0. `left` keeps rows without a match, with nulls; `inner` removes them, counted as `filtered`;
    `semi` keeps the rows with a match and `anti` those without one, and neither brings columns. Two rows of the
    other table with one key are a fault that names the key, unless the cardinality is `many_to_many` or only the
    match counts. State: with the strategy `lookup`, the other table's keys and wanted columns, which have to fit
    the state's budget; with `shuffle`, none: both sides are partitioned by key, with spilling. Both give the same
    rows.

    A range join is `many_to_many` with a `filter` of both times behind it, as the last example shows: it computes
    all pairs of equal keys. `as_of_join` brings the nearest row in time alone, and `rolling` is a window over the
    rows of one step.

    with_: The other step or source.
    on: The key columns here.
    right_on: The key columns there, in the same order, where their names differ.
    how: What becomes of rows with and without a match. Default: "left".
    cardinality: How many rows may meet each other; checked. Of `left` and `inner` only. Default: "many_to_one".
    columns: The other table's columns to bring; where left out, all but its keys.
    prefix: Put before the names of the columns that are brought. Default: "".
    suffix: Put behind the names of the columns that are brought. Default: "".
    strategy: How rows meet; `auto` where left out. Of no effect with `many_to_many`.
    """
    return made("join", locals())


def k_bins(
    columns: spec.ColumnSelector,
    *,
    bins: int,
    strategy: spec.BinStrategy | None = None,
    label: str | None = None,
    weight: str | None = None,
    min_rows: int | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The index of the bin, of `bins` bins of equal width between the minimum and the maximum, of about equal size,
    around the centers of clusters, or with labels as equal as possible.

    In: columns of numbers. Out: `int32`, 0 to `bins - 1`; values outside the range that was learned fall into the
    outer bins. Null stays null, NaN goes into the last bin and does not count. An infinity leaves no bins of equal
    width and is a fault when fitting. One distinct value, or nothing seen: bin 0. Edges of bins of equal size that
    are equal, the minimum and the maximum among them, become one. `k_means` finds the centers in one pass, in a
    sample that is all rows up to about `7.3 / epsilon^2`; infinities do not count, and fewer distinct values than
    bins have a bin each. State: 6 KiB, or a sample as for `bucketize`. Follows scikit-learn's `KBinsDiscretizer`.

    `strategy: tree` grows a decision tree over each column by itself. It adds the edge that lowers the sum of
    squared distances between a `label` and its mean in each bin most, until there are `bins` bins or no edge lowers
    it. The label is a number or boolean; rows where it is null or NaN do not count, and an infinite one is a fault.
    Edges are tried at the least values of `1 / epsilon` buckets of about equal size, which takes two passes, and
    with `exact` in the middle between any two values. State: a sample, and some 300 bytes for each bucket, or for
    each distinct value with `exact`, spilled beyond the budget; a table of some 150 bytes each has to fit memory.
    With `exact`, follows scikit-learn's `DecisionTreeRegressor` with `max_leaf_nodes`, and its
    `DecisionTreeClassifier` for two classes. Edges know the labels of the rows that they are learned from: with a
    split, set `fit_on: train`.

    `strategy: quantile` takes a `weight`. Edges are then the first values with which at least each share of the
    weight is passed, without interpolation, as scikit-learn's `sample_weight` with
    `quantile_method="inverted_cdf"`. The outer edges, which merge edges that are equal to them, are the least and
    the greatest value with a weight. Rows that do not count, faults and the state are as for `bucketize` with
    `weight`.

    columns: Columns of numbers.
    bins: Number of bins; at least 2, and at most 1,000 with `k_means` and `tree`.
    strategy: Where the edges are. Default: "uniform".
    label: The column of labels for `tree`, of numbers or booleans, which is not among `columns`.
    weight: The column of the weights of rows for `quantile`, which is not among `columns`; where left out, each row
        counts once.
    min_rows: Least number of rows with a label in a bin of `tree`; 1 where left out.
    epsilon: The rank error of edges that a sample gives, as a share of the rows; where left out, `1 / bins` but at
        most 0.01, and for `tree` 1 / 256.
    exact: Takes the edges exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("k_bins", locals())


def keep_best(
    columns: spec.ColumnSelector,
    *,
    score: spec.ColumnScore | None = None,
    label: str | None = None,
    count: int | None = None,
    above: float | None = None,
    correlation_max: float | None = None,
) -> spec.AnyTransform:
    """Keeps the columns that vary most or tell most of a label, as `fit_on` shows it. The other ones of `columns`
    become null.

    In: columns of numbers, and for all scores but the variance and the share of values a label. Out: the same
    columns and types, since which columns a table has cannot depend on data: boosted trees pass over columns of
    nulls, and `missing: 0` makes them constants for other models. Values that become null are counted by column,
    which names the columns.

    Null and NaN do not count, and neither do rows without a label. A column without a score becomes null: it has no
    values or infinite ones, or it is constant, which gives no score but the variance 0 and the share of values.
    Where no column has a score, all stay. If none is above `above`, that is a fault. Of equal scores the later
    column is the better one. State: 6 KiB for each column, or some 300 bytes for each column and class of the
    label, and with `mutual_information` and `information_value` for each of its values there, spilled beyond the
    budget. Follows scikit-learn's `VarianceThreshold`, its `SelectKBest` with `f_regression`, `f_classif`, `chi2`
    and `mutual_info_classif`, and feature_engine's `SelectByInformationValue`.

    With `correlation_max`, columns come from the best on, and one that correlates more with a column that stays
    becomes null, before `count` counts. A pair of columns is compared in the rows where both have a value; constant
    columns and those with infinities correlate with none. State: some 3 KiB for each pair, of at most 100 columns.
    Follows feature_engine's `SmartCorrelatedSelection` by variance or by the correlation with the label.

    columns: Columns of numbers.
    score: The number by which columns are compared. Default: "variance".
    label: The column of labels, which is not among `columns`.
    count: Number of columns that are kept at most.
    above: The number that a score has to exceed.
    correlation_max: Greatest absolute value of Pearson's correlation between two columns that stay; from 0 to below
        1.
    """
    return made("keep_best", locals())


def knn_impute(
    columns: spec.ColumnSelector,
    *,
    neighbors: int | None = None,
    weights: spec.NeighborWeights | None = None,
    sample_rows: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Replaces nulls and NaN by the mean of the column in the `neighbors` rows that are nearest, of those that have a
    value there.

    In: columns of numbers, at most 256, which tell together how far rows are from each other. Out: a column for
    each; floats stay floats, all other numbers give `float64`. The squared distance of two rows is the sum of the
    squared differences in the columns in which both have a value, times the number of columns, divided by the
    number of these. Rows without a common column are no neighbors; where there are none, the mean of the column is
    filled in. Of rows at equal distance, the one with smaller values, column by column, counts. `standardize`
    columns of different units before. Infinities stay and count as missing values. Nothing seen of a column: null
    and NaN stay.

    Neighbors are rows of a sample, which is learned: all rows up to `sample_rows`, else so many by their row keys.
    Each row with a missing value is compared with all of them. State: 32 bytes for each row of the sample and
    column. The artifact holds the sample. Follows scikit-learn's `KNNImputer`, which takes all rows and drops
    columns without values.

    columns: Columns of numbers, of which the others tell how near two rows are.
    neighbors: Number of nearest rows. Default: 5.
    weights: Weights of their values in the mean. Default: "uniform".
    sample_rows: Most rows of the sample, at most 100,000. Default: 10000.
    suffix: Writes `<column><suffix>` instead of replacing the columns.
    """
    return made("knn_impute", locals())


def lag(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[spec.Length],
    as_of: spec.AsOf | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
) -> spec.AnyTransform:
    """The value that a series had some rows or some time ago.

    In: columns of any type. Out, for each length: `<column>_lag_<by>` in the column's own type. By rows it is the
    value so many rows before; by time that of the row exactly so long before (the last one, if there are several),
    with `as_of` of the latest row at or before that. Null where there is no such row, or its value is null or NaN.
    State per series: some 16 bytes for each row that the longest lag reaches back over; with `as_of: true`, by
    time, for all of them. Texts, decimals and nested values are held once each besides. A row without a time is a
    fault, and so is a 64-bit value with the bits of the least integer, which stand for a missing one here.

    columns: Columns of any type.
    by: How far back, in rows or time.
    as_of: Takes the latest row at or before the time: `true`, or how much older it may be at most (inclusive).
        Lengths of time only. Default: false.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    """
    return made("lag", locals())


def list_statistics(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.ListStatistic],
) -> spec.AnyTransform:
    """The mean, the sum and other numbers of a list's elements: a list of any length as columns.

    In: lists of numbers. Out: `<column>_<statistic>` for each, `float64`; the columns stay. Sums are of doubles, in
    the order of the list. Null elements and NaN do not count, infinities do. A null list gives null. An empty list,
    and one without numbers, has the sum and the count 0, and no mean, minimum, maximum or last element. Learns
    nothing. Follows the pooling of sequences in NVTabular and Merlin Models.

    columns: Columns of lists of numbers.
    compute: The numbers, each of which is a column.
    """
    return made("list_statistics", locals())


def log1p(
    columns: spec.ColumnSelector,
    *,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The natural logarithm of `1 + x`, accurate near 0.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. As in numpy, -1 gives -inf
    and what is below gives NaN; such values are counted. Null stays null. Learns nothing.

    columns: Columns of numbers.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("log1p", locals())


def max_abs(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[str] | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """`x / max(|x|)`, over all values or for each key: 0 stays 0, and what was seen comes out in [-1, 1].

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed in doubles and
    rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key, spilled beyond the budget.

    Null stays null and NaN stays NaN; neither counts. An infinity in the data makes all finite values 0; `clip`
    first. Values beyond what was learned come out beyond [-1, 1]. Where all values are 0, nothing was seen, or a
    key was never seen, x stays unchanged; null is a key of its own. Follows scikit-learn's `MaxAbsScaler`.

    columns: Columns of numbers.
    by: Key columns: the greatest absolute value is taken for each of their values.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("max_abs", locals())


def min_max(
    columns: spec.ColumnSelector,
    *,
    lo: float | None = None,
    hi: float | None = None,
    by: Sequence[str] | None = None,
    zero_range: spec.ZeroRange | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """`(x - min) / (max - min) * (hi - lo) + lo`, over all values or for each key.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed in doubles and
    rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key, spilled beyond the budget.

    Null stays null and NaN stays NaN; neither counts. An infinity in the data is its minimum or maximum and gives 0
    times the range or NaN; `clip` first. Values outside the range that was learned come out outside `lo..hi`. Where
    min equals max, nothing was seen, or a key was never seen, `zero_range` decides. `lo >= hi` is a fault. Follows
    tf.Transform's `scale_by_min_max`.

    columns: Columns of numbers.
    lo: What the minimum becomes. Default: 0.0.
    hi: What the maximum becomes. Default: 1.0.
    by: Key columns: statistics are taken for each of their values.
    zero_range: What comes out where min equals max. Default: "sigmoid".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("min_max", locals())


def missing_indicator(
    columns: spec.ColumnSelector,
    *,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Adds `<column>_missing` for each column: true where the value is null or, in columns of floats, NaN.

    In: columns of any type that is not nested. Out: the columns as they are, and a `boolean` beside each, never
    null. Infinities and the empty string are values. An empty suffix is a fault. Learns nothing, so that the
    columns are those of the spec whatever the data holds. Follows scikit-learn's `MissingIndicator` with
    `features="all"`. `impute` with `indicator: true` adds the same column to the one that it fills.

    columns: Columns whose missing values are marked.
    suffix: The end of the names of the new columns. Default: "_missing".
    """
    return made("missing_indicator", locals())


def multi_hot(
    columns: spec.ColumnSelector,
    *,
    delimiter: str | None = None,
    categories: Sequence[str] | None = None,
    min_count: int | None = None,
    top_k: int | None = None,
    as_: spec.OneHotLayout | None = None,
    columns_max: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Several categories per row as a vector with a 1 for each.

    In: lists of strings (or integers, ...: as their text), or strings with a `delimiter`, of which empty parts are
    skipped. Out: a fixed-size list of `float32`, one place per category, in byte order or as listed, or one
    `float32` column `<column>_<category>` each. A category that comes twice counts once. Null, empty and unknown
    give zeros. More than 65,536 categories are a fault. Columns of learned categories are numbered as those of
    `one_hot`: with `columns_max: 3`, `<column>_0` to `<column>_2` are of the three most frequent categories, in
    byte order, and columns beyond the categories are 0. State: the distinct values with exact counts, spilled
    beyond the budget; none where they are listed. Follows scikit-learn's `MultiLabelBinarizer`.

    columns: Columns of lists, or of strings with delimiters.
    delimiter: The text between the parts of a string; where left out, columns have to be lists.
    categories: The categories, where they are known; else they are learned.
    min_count: Categories seen less often give zeros. Default: 1.
    top_k: At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    as_: One vector, which is the default, or one column for each category: a listed one, or one of `columns_max`.
    columns_max: Number of columns that `as: columns` gives categories which are not listed: at most 1,000.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("multi_hot", locals())


def ngrams(
    columns: spec.ColumnSelector,
    *,
    by: spec.NgramUnit | None = None,
    min: int | None = None,
    max: int | None = None,
    min_length: int | None = None,
    separator: str | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The words of a text, its characters, and runs of `min` to `max` of them that follow each other.

    In: strings (other types: as their text), or lists of strings, whose elements are the words. Out: a list of
    strings: the shortest runs first, each length in the order of the text; runs that come twice are there twice. A
    word is a run of letters, digits and `_`; a character is a Unicode code point, white space and punctuation
    included. Case and accents stay: `normalize_text` before. Null stays null, and null elements of lists are no
    words; a text without words gives an empty list. Learns nothing. `vocabulary`, `hash_bucket`, `multi_hot` and
    `bag_of_tokens` take the lists. Follows the analyzers `word` and `char` of scikit-learn's `CountVectorizer`,
    whose words have two letters (`min_length: 2`), and tf.Transform's `ngrams`.

    columns: Columns of strings, or of lists of strings.
    by: The parts of runs. Default: "words".
    min: The length of the shortest runs; at least 1. Default: 1.
    max: The length of the longest runs; at most 32. Default: 1.
    min_length: Words of fewer characters are left out. Default: 1.
    separator: The text between the words of a run. Default: " ".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("ngrams", locals())


def normal_quantiles(
    columns: spec.ColumnSelector,
    *,
    q: int | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The rank of x among the data as a value of the standard normal distribution: the median gives 0, and about two
    thirds of the values lie in [-1, 1], whatever their distribution was.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. The rank is interpolated
    between `q` quantiles from the least to the greatest value; equal values have the middle of their ranks. What
    lies at or beyond the least and the greatest value, or nearer to it than 1e-7, gives -5.1993 and 5.1993, the
    values of the ranks 1e-7 and 1 - 1e-7: `standardize` columns of such small numbers before. Null stays null and
    NaN stays NaN; neither counts, infinities do. Nothing seen: 0. State: a sample of about `7.3 / epsilon^2` rows
    of 16 bytes, or the distinct values, spilled beyond the budget. Follows scikit-learn's `QuantileTransformer`
    with `output_distribution="normal"`.

    columns: Columns of numbers.
    q: Number of quantiles, the least and the greatest value among them; 2 to 100,000. Default: 1000.
    epsilon: The rank error of the quantiles, as a share of the rows. Default: 0.01.
    exact: Takes the quantiles exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("normal_quantiles", locals())


def normalize(
    columns: spec.ColumnSelector,
    *,
    norm: spec.VectorNorm | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Divides the columns of each row by their norm: `x_i / |x|`.

    In: columns of numbers, which are one vector per row. Out: a column for each; doubles stay doubles, all other
    numbers give `float32`, computed in doubles and rounded once. Null stays null and NaN stays NaN; neither counts
    toward the norm. A row whose norm is 0, and one without any value, stays as it is. An infinity makes the finite
    values of its row 0 and itself NaN. Learns nothing. Follows scikit-learn's `Normalizer`, which refuses missing
    values.

    columns: Columns of numbers.
    norm: The length of a row. Default: "l2".
    suffix: Writes `<column><suffix>` instead of replacing the columns.
    """
    return made("normalize", locals())


def normalize_text(
    columns: spec.ColumnSelector,
    *,
    form: spec.UnicodeForm | None = None,
    case: spec.LetterCase | None = None,
    accents: spec.AccentPolicy | None = None,
    punctuation: spec.PunctuationPolicy | None = None,
    collapse_spaces: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Texts in one form: Unicode normal form, case, accents, punctuation and white space, in this order.

    In: strings, or lists of strings (other types: as their text). Out: `string`, in lists where the input has
    lists. Null stays null; a text of which nothing stays is the empty string. Lower case is that of Unicode without
    a language: `I` is `i` in Turkish as well. Punctuation is Unicode's (general category P), to which `$`, `+` and
    `<` do not belong. Learns nothing. `form: nfc` and `case: lower` are Python's `unicodedata.normalize("NFC",
    text.lower())`.

    columns: Columns of strings, or of lists of strings.
    form: The normal form. Default: "nfc".
    case: The case of letters. Default: "lower".
    accents: Treatment of accents. Default: "keep".
    punctuation: Treatment of punctuation. Default: "keep".
    collapse_spaces: Makes one space of each run of white space, and none at both ends. Default: true.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("normalize_text", locals())


def one_hot(
    columns: spec.ColumnSelector,
    *,
    categories: Sequence[str] | None = None,
    min_count: int | None = None,
    top_k: int | None = None,
    as_: spec.OneHotLayout | None = None,
    columns_max: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """A category as a vector with a single 1.

    In: strings, integers, booleans, dates (as their text). Out: a fixed-size list of `float32` whose width is the
    number of categories, or one `float32` column `<column>_<category>` each. Null and unknown values give zeros;
    the empty string is a category. More than 65,536 are a fault. Columns are known before anything is learned. So
    columns of learned categories are numbered: with `columns_max: 3`, `<column>_0` to `<column>_2` are of the three
    most frequent categories, in byte order, and columns beyond the categories are 0. `forebay show` lists them in
    that order. Categories are those seen, in byte order as in scikit-learn, or those listed, in their order. State:
    the distinct values with exact counts, spilled beyond the budget; none where they are listed. Nothing seen: the
    width is 0.

    columns: Columns of categories.
    categories: The categories, where they are known; else they are learned.
    min_count: Categories seen less often give zeros. Default: 1.
    top_k: At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    as_: One vector, or one column for each category: a listed one, or one of `columns_max`. Default: "vector".
    columns_max: Number of columns that `as: columns` gives categories which are not listed: at most 1,000.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("one_hot", locals())


def ordinal(
    columns: spec.ColumnSelector,
    *,
    categories: Sequence[str] | None = None,
    unknown: spec.UnknownPolicy | None = None,
    dtype: spec.IdType | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Categories to ids 0, 1, ... in the order of their values.

    In: strings (in byte order), numbers (-0.0 is 0.0), booleans, dates (in their own order). Out: `int64` or
    `int32`. Null stays null and is not a category; the empty string is one. An unknown value is a fault that names
    it, unless `unknown` says otherwise. Nothing seen: every value is unknown. State: the distinct values with exact
    counts, spilled beyond the budget; none where they are listed. Follows scikit-learn's `OrdinalEncoder`.

    columns: Columns of categories; each has ids of its own.
    categories: The categories in order, where they are known; else they are learned.
    unknown: What becomes of values that were never seen. Default: "error".
    dtype: The type of ids. Default: "int64".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("ordinal", locals())


def pca(
    columns: spec.ColumnSelector,
    *,
    components: int,
    name: str | None = None,
    center: bool | None = None,
    whiten: bool | None = None,
) -> spec.AnyTransform:
    """Principal components: `components` new columns, the coordinates of a row along the directions in which the
    columns vary most.

    In: columns of numbers, at most 256. Out: `<name>_1`, `<name>_2`, ... in the order of their variances, `float64`
    if a column is, else `float32`; the columns stay. A direction is an eigenvector of the covariance matrix, whose
    entry with the greatest absolute value is positive. `standardize` columns of different units before. With
    `center: false` the directions are those of the products of the values as they are, as a truncated singular
    value decomposition has them.

    A row with a null gives null, one with NaN or an infinity NaN or an infinity; none of them counts. Nothing seen:
    the first columns as they are. A covariance that no double holds is a fault. The covariances are exact sums of
    one pass. State: at most 600 bytes for each pair of columns. Follows scikit-learn's `PCA` and `TruncatedSVD`,
    and tf.Transform's `pca`, whose signs may differ.

    columns: Columns of numbers, which are one vector per row.
    components: Number of new columns, at most that of the columns.
    name: The begin of the names of the new columns. Default: "pca".
    center: Subtracts the means. Default: true.
    whiten: Divides each component by its standard deviation (ddof 1), unless that is 0 to rounding. Default: false.
    """
    return made("pca", locals())


def pct_change(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[spec.Length],
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """The value divided by the value some rows or some time before, less one.

    In: columns of numbers. Out, for each length: `<column>_pct_change_<by>`. A share: 0.1 is ten percent. Null
    where either value is missing or there is no row that far back (by time: exactly that long before); infinite
    where the earlier value is 0, null where both are, and both counted. Earlier values are not filled in. State per
    series: some 16 bytes for each row that the longest length reaches back over. It looks at the row itself, which
    a feature of its own label must not: take the `lag` of the change. Follows pandas'
    `pct_change(fill_method=None)`.

    columns: Columns of numbers.
    by: How far back, in rows or time.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type that comes out. Default: "float64".
    """
    return made("pct_change", locals())


def polynomial(
    columns: spec.ColumnSelector,
    *,
    degree: int | None = None,
    interactions_only: bool | None = None,
) -> spec.AnyTransform:
    """The products of 2 to `degree` columns, with repetition: `a * a`, `a * b`, `b * b`, ...

    In: columns of numbers. Out: a column for each product, called after its factors: `a_2` is `a * a`, `a_2_x_b` is
    `a * a * b`; `float64` if a factor is, else `float32`, computed in doubles and rounded once. The columns stay.
    Null in a factor gives null, NaN gives NaN; a product beyond the type is infinite. `standardize` before keeps
    products of large numbers apart. Learns nothing. More than 4,096 products are a fault. Follows scikit-learn's
    `PolynomialFeatures`, which has the columns and a column of ones as well.

    columns: Columns of numbers.
    degree: Most factors of a product, 2 to 8. Default: 2.
    interactions_only: Leaves out products in which a column comes twice. Default: false.
    """
    return made("polynomial", locals())


def pooled(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.SeriesStatistic],
    by: Sequence[str] | None = None,
    over: Sequence[spec.Length] | None = None,
    gap: spec.Length | None = None,
    aggregate: spec.TimeAggregate | None = None,
    closed: spec.ClosedWindow | None = None,
    min_periods: int | None = None,
    ddof: int | None = None,
    time: str | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Statistics of a window of time over all series, or over those of the row's group.

    In: columns of numbers. Out, for each length and statistic: `<column>_<by>_<statistic>_<over>`, such as
    `qty_category_mean_28d`, `qty_all_sum_7d` without `by`, and with `aggregate` `qty_category_sum_mean_28d`;
    without `over` `qty_category_expanding_mean`. Numbers are `dtype`, `count` and `n_unique` `int64`. Rows are
    aggregated for each group and time first, and windows are ranges of time, `(t - gap - over, t - gap]`, so that
    the result does not depend on how many rows a time has, in which order they come or how they are divided;
    without a gap the rows of the same time count, those that come later too. By default a statistic is of all rows'
    values: `mean`, `sum`, `count`, `std`, `var`, `min`, `max`. With `aggregate` it is of one number for each time,
    and may be any. To split a window by a column's value, put the column into `by`.

    Null and NaN are no values; null in `by` is a group of its own; a group that was never seen has an empty window,
    and a row without a time gets null. State: a table of some 60 bytes for each group and time that occurs, and
    some 300 while it is made, spilled beyond the budget. It is learned from the rows that the step is fitted on: an
    artifact that is applied uses the table that it was made with, and knows nothing of the rows that it is applied
    to. With `fit_on` a part of a split by time, windows of later rows are empty: use a step of its own without
    `fit_on`.

    columns: Columns of numbers.
    compute: Which statistics.
    by: The columns that tell groups apart; all rows are one group where left out.
    over: How long windows are, lengths of time; everything up to `t - gap` where left out.
    gap: How far before the row windows end, a length of time: a feature then uses data at or before `t - gap` only.
    aggregate: Makes one number of a group's rows of each time first: the total demand of a day, say.
    closed: Which ends belong to the window. Default: "right".
    min_periods: How many values it takes (with `aggregate`, times); 1 where left out, 0 for `count`.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    time: The event-time column, where the source does not declare it.
    dtype: The type of computed numbers. Default: "float64".
    """
    return made("pooled", locals())


def power(
    columns: spec.ColumnSelector,
    *,
    method: spec.PowerMethod | None = None,
    standardize: bool | None = None,
    epsilon: float | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """A power of x that makes the column most like a normal distribution, with mean 0 and variance 1.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. `yeo_johnson` takes all
    numbers: `((1 + x)^l - 1) / l` from 0 on, `-((1 - x)^(2 - l) - 1) / (2 - l)` below. `box_cox` takes numbers
    above 0: `(x^l - 1) / l`. The exponent l, from -10 to 10, is the one with the greatest likelihood; it, the mean
    and the variance (ddof 0) are those of a sample, which is all rows up to about `7.3 / epsilon^2`.

    Null stays null and NaN stays NaN; neither counts, and neither do infinities. For `box_cox`, a value of 0 or
    less is a fault where it is learned from, and gives -inf or NaN elsewhere, which is counted. Values that are all
    equal have the exponent 1 and give 0. Nothing seen: the exponent 1, and neither centred nor scaled. Powers that
    no double holds are a fault. State: a sample of rows of 16 bytes. Follows scikit-learn's `PowerTransformer`.

    columns: Columns of numbers.
    method: The transformation. Default: "yeo_johnson".
    standardize: Subtracts the mean of the transformed values and divides by their standard deviation. Default:
        true.
    epsilon: The rank error of the sample, as a share of the rows. Default: 0.01.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("power", locals())


def profile(
    *,
    columns: spec.ColumnSelector | None = None,
    pairs: spec.ColumnSelector | None = None,
    series: spec.ProfileSeries | None = None,
) -> spec.AnyTransform:
    """Learns what columns hold, for `forebay profile` and drift: rows stay as they are.

    In: columns of any type. Out: the same. Learned per column: rows and nulls; of numbers, dates and times also
    NaN, infinities, zeros, negative values, least, greatest, mean, variance and the quantiles 0, 0.01 to 1 (within
    2 % of the rank, exact up to 18,136 rows); of texts and lists the lengths; the number of distinct values of
    numbers, texts, booleans, dates and times (HyperLogLog, 0.8 %) and five examples; of lists and binary values
    five examples: the first elements, or the first bytes in hexadecimal; of texts, booleans and integers of one
    byte the 100 most frequent values with exact counts.

    With `pairs`, also learned for each two of these columns: Pearson's correlation where both are numbers, Cramér's
    V where both are categories (texts, booleans, integers of one byte). Rows where either is missing do not count.

    With `series`, also learned of rows with a time and keys: how many series there are, their lengths, the period
    (months where all times of each series lie whole months apart), the gaps, and how many are intermittent (1.32
    periods a demand and more; Syntetos, Boylan and Croston, 2005).

    State: some 650 KiB per numeric column; distinct texts with their counts, pairs of categories, and some 150
    bytes per series, spilled beyond the budget.

    columns: The columns. Default: ["*"].
    pairs: Columns of which each two are compared: at most 40.
    series: Whether and how series are measured. Rows whose source declares no `time` and no `keys`, or that no
        longer have these columns, have no series.
    """
    return made("profile", locals())


def python(
    columns: spec.ColumnSelector,
    *,
    function: str,
    returns: Mapping[str, spec.TypeName],
    nullable: Sequence[str] | None = None,
    frames: spec.FrameKind | None = None,
    code: str | None = None,
    path: Sequence[str] | None = None,
    interpreter: str | None = None,
    batch_rows: int | None = None,
    timeout_seconds: int | None = None,
    revision: str | None = None,
    by: spec.FunctionBy | None = None,
    looks_ahead: spec.LookAhead | None = None,
) -> spec.AnyTransform:
    """Columns that a function of Python computes, row by row or series by series.

    In: the chosen columns, as a `pyarrow.RecordBatch`, or as a data frame of pandas or Polars, or a matrix of NumPy
    (`frames`). Out: the declared columns. The function returns a table or a data frame of them, or a dict of
    columns; where one column is declared, the column alone will do. Columns are arrays of Arrow, NumPy or pandas,
    series of Polars, or lists. Integers and floats of another width are converted where each value fits (floats are
    rounded), and whole floats of lists and of NumPy and pandas become integers; other types are a fault. pandas has
    NaN for null in numbers, in both directions.

    Without `by`, the function must be row-wise: a row's output depends on the row alone, since batches are cut
    differently from run to run. A column is then as old as its youngest input for the check of leaks. With `by:
    series` the function is called once for each series of the source, as in pandas' `groupby(keys).apply`: it
    receives all rows of the series in order of time, those of equal times in the order of the source, and returns
    as many rows in the same order. `by: [store]` names other keys: `by: []` makes all rows one series, and rows
    without a declared time keep their order. Rows whose keys are null are a series, too. The rows of the step stay
    where they are: they are sorted by series with spilling, and the results are sorted back. One series at a time
    must fit into a sixteenth of `--memory`, else the fault FB0301 names it. A function by series may look at later
    rows: next to a label its columns are a leak, unless `looks_ahead: none` states that each value is computed from
    rows up to its own. Serving refuses the step, and a new row computes all rows of a sink again.

    A function must not keep anything from batch to batch. It is `module:name`, with the module in a directory of
    `path` or of `PYTHONPATH`; or a name that `code` defines. It runs in processes of `interpreter`, which need
    pyarrow: one for each thread that computes the step, on workers too. They end with the run, and their memory is
    not part of `--memory`. What the function prints is not shown unless it fails. Hashes of texts, and with them
    the order of sets, are alike in all processes: these run with `PYTHONHASHSEED=0`, unless the environment sets
    the variable. It is no part of the id.

    An exception is a fault with the traceback and the row that raises it, or the first rows of the batch where no
    row does so alone. So are other columns, another number of rows, and nulls in a column that is not `nullable`.
    `check` finds a missing module or function without running any code; `check --functions` runs functions on the
    first rows, and finds those whose values depend on the size of batches.

    The id of the step holds the source of the module and of the modules that it imports from the same directories,
    by `import` statements. It does not hold installed packages, files that the function reads and modules that are
    imported by other means: name a `revision` for them. A worker whose source differs is refused. Learns nothing. A
    spec with this step runs code: run only specs that you trust.

    columns: The columns that the function receives.
    function: The function: `module:name`, or a name that `code` defines.
    returns: The columns that it returns, with their types.
    nullable: Returned columns that may be null.
    frames: The kind of tables that the function receives. Default: "arrow".
    code: Code that defines the function, instead of a module.
    path: Directories in which modules are searched, from the working directory; on a worker, from that of the
        worker. Default: ["."].
    interpreter: The program that runs Python. Default: "python3".
    batch_rows: Most rows of a batch. A series is one batch, of any number of rows. Default: 16384.
    timeout_seconds: Most seconds for the answer to a batch. The first one includes the start of Python and its
        imports. Default: 600.
    revision: Text that changes the id of the step, such as the digest of a file with the versions of packages.
    by: The rows that the function receives at once: whole series by the keys of the source (`series`) or by
        columns.
    looks_ahead: The rows of a series that a value is computed from, for the check of leaks; with `by` only.
    """
    return made("python", locals())


def quantiles(
    columns: spec.ColumnSelector,
    *,
    q: int | None = None,
    weight: str | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The rank of x in [0, 1], interpolated between the `q - 1` boundaries of `q` buckets.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Below the first boundary 0,
    at or above the last 1, NaN 0.5; null stays null. NaN does not count, infinities do: beside an infinite boundary
    it is the rank of the boundary below. Nothing seen: 0.5. State: as for `bucketize`, and so are the boundaries of
    rows with a `weight`. Follows tf.Transform's `apply_buckets_with_interpolation`, and its `quantiles` with
    `weights`.

    columns: Columns of numbers.
    q: How many buckets the boundaries make; at least 2. Default: 100.
    weight: The column of the weights of rows, which is not among `columns`; where left out, each row counts once.
    epsilon: The rank error of boundaries, as a share of the rows; where left out, `1 / q` but at most 0.01.
    exact: Takes the boundaries exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("quantiles", locals())


def rename(
    value: spec.RenameColumns,
) -> spec.AnyTransform:
    """Other names for columns, old to new. Columns keep their places; names may be exchanged. Two columns of one name
    are a fault.

    value: What the language has under the name.
    """
    return alone("rename", value)


def robust_scale(
    columns: spec.ColumnSelector,
    *,
    spread: spec.RobustSpread | None = None,
    lower: float | None = None,
    upper: float | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """`(x - median) / (upper - lower)`, where lower and upper are quantiles, by default the quartiles.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Null and NaN stay and do
    not count; infinities count as values. Where upper equals lower, `x - median`. Nothing seen: x unchanged. State:
    a sample of about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget. Follows
    scikit-learn's `RobustScaler`.

    With `spread: mad`, the divisor is the median absolute deviation: the median of `|x - median|`, divided by
    0.6745, so that it is the standard deviation of a normal distribution. Where it is 0, `x - median`. The
    deviations are read after the median is known, and have a state of their own. Follows scipy's
    `median_abs_deviation` with `scale="normal"`.

    columns: Columns of numbers.
    spread: The number by which distances from the median are divided.
    lower: The lower quantile, as a probability. Default: 0.25.
    upper: The upper quantile, as a probability. Default: 0.75.
    epsilon: The rank error, as a share of the rows. Default: 0.01.
    exact: Takes the quantiles exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("robust_scale", locals())


def rolling(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.SeriesStatistic],
    over: Sequence[spec.Length],
    gap: spec.Length | None = None,
    closed: spec.ClosedWindow | None = None,
    min_periods: spec.MinPeriods | None = None,
    ddof: int | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Statistics of a window that ends at the row, or `gap` before it.

    In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed.
    Out, for each length and statistic: `<column>_<statistic>_<over>`, such as `qty_mean_28d`; a quantile is `q90`.
    Numbers are `dtype`, `count`, `n_unique` and `since_nonzero` by rows `int64`, `first` and `last` the column's
    own type. The window of time is `(t - gap - over, t - gap]`; rows of the same time count as far as they came
    before. Null and NaN are no values; where there are fewer than `min_periods`, or too few for the statistic, the
    result is null. Every result is a function of the window's values alone. State per series: some 16 bytes for
    each row that the longest window holds. Follows pandas' `rolling`.

    columns: Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    compute: Which statistics.
    over: How long windows are, in rows or time.
    gap: How far before the row windows end: a feature then uses data at or before `t - gap` only.
    closed: Which ends belong to the window. Default: "right".
    min_periods: How many values it takes: a count, or a share of the rows such as `50%`. Where left out, the whole
        window by rows and 1 by time; 0 for `count`.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type of computed numbers. Default: "float64".
    """
    return made("rolling", locals())


def sample(
    *,
    share: float,
    by: Sequence[str] | None = None,
    of: str | None = None,
    weight: str | None = None,
    seed: int | None = None,
    when: spec.FilterScope | None = None,
) -> spec.AnyTransform:
    """Keeps a share of the rows, or of those for which a condition is true, chosen by the hash of key columns.

    Rows of equal keys are kept together, in each run and on each machine: `by: [user]` keeps users as a whole. With
    `of`, rows for which the condition is not true all stay: `of: "clicked = 0"` thins out the rows without a click,
    and a step for each class gives each its share. Keys are hashed (xxh3) as their text, independently of a split
    by hash; null is a key. The share of the rows is `share` on average over the keys. `weight` adds a column of
    `float64` that makes up for it: `1 / share` in the rows of the condition, else 1. It tells the condition: keep
    it out of the features where the condition is about the label.

    Samples are to learn from, unless `when: always`: rows that are scored all stay, with the weight 1, as for
    `filter`. Removed rows are counted as `unsampled`. Learns nothing, holds nothing. A share that is not above 0
    and at most 1 is a fault. Follows Spark's `sampleBy` and the negative down-sampling of click models.

    share: The share of the keys that is kept, above 0 and at most 1.
    by: Columns whose values are the key of a row; where left out, the keys and the time that the source declares.
    of: The condition of the rows that are sampled; where left out, all are.
    weight: The name of a column of weights; none is written where left out.
    seed: Changes which keys are kept. Default: 0.
    when: The rows that the step is for. Default: "learning".
    """
    return made("sample", locals())


def seasonal_index(
    columns: spec.ColumnSelector,
    *,
    period: spec.SeasonalPeriod,
    gap: spec.Length | None = None,
    min_periods: int | None = None,
    shrink: spec.IndexShrinkage | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """The mean of the series in the row's slot (its day of the week, say), divided by the mean of the series in all
    slots, both over the rows up to `gap` before.

    In: columns of numbers. Out: `<column>_<period>_index`, such as `qty_day_of_week_index`
    (`<column>_seasonal_index` of an expression). Null and NaN are no values, and rows without a slot do not count.
    With n values in the slot and `shrink`, the index is `(n * index + strength * parent) / (n + strength)`; the
    parent is 1, or the index of all series of a group. Where the slot has fewer than `min_periods` values, or the
    whole mean is 0, the result is the parent, or null without `shrink`.

    State per series: 16 bytes for each slot that occurred, and 24 for each row in the gap. The parent's table has
    some 60 bytes for each group, slot and time, and some 300 while it is made, spilled beyond the budget. It is
    learned from the rows that the step is fitted on; an artifact that is applied uses the table that it was made
    with.

    columns: Columns of numbers.
    period: What comes round: `day_of_week`, `month`, ..., or `expression: "..."`.
    gap: How far before the row the past ends.
    min_periods: How many values the slot takes. Default: 1.
    shrink: Draws the index of slots with few values toward a parent's.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    dtype: The type that comes out. Default: "float64".
    """
    return made("seasonal_index", locals())


def seasonal_rolling(
    columns: spec.ColumnSelector,
    *,
    compute: Sequence[spec.SeriesStatistic],
    season: spec.Length,
    over: Sequence[int],
    gap: spec.Length | None = None,
    min_periods: spec.MinPeriods | None = None,
    ddof: int | None = None,
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
    names: spec.FeatureNaming | None = None,
    dtype: spec.FloatType | None = None,
) -> spec.AnyTransform:
    """Statistics of every season-th row: the mean of the last four Mondays, say.

    In: columns of numbers or booleans; of any type where only `first`, `last`, `count` and `n_unique` are computed.
    Out, for each `over` and statistic: `<column>_seasonal_<statistic>_<season>x<over>`, such as
    `qty_seasonal_mean_7dx4`, of the types that `rolling` gives. The rows are those at `i - gap - k * season`, or at
    exactly the times `t - gap - k * season` (the last one, if there are several), for k below `over`; with no gap
    the row itself is among them. Null and NaN are no values; where there are fewer than `min_periods`, or too few
    for the statistic, the result is null. State per series: some 16 bytes for each row of `season * over`. Follows
    mlforecast's `SeasonalRollingMean` and others, whose lag is the gap.

    columns: Columns of numbers or booleans; of any type for `first`, `last`, `count` and `n_unique`.
    compute: Which statistics.
    season: The distance from one season to the next, in rows or time.
    over: Over how many seasons.
    gap: How far before the row the last one is.
    min_periods: How many values it takes: a count, or a share of `over` such as `50%`. Where left out, `over` by
        rows and 1 by time; 0 for `count`.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: Meaning of missing periods; required where rows are counted.
    names: How the new columns are called.
    dtype: The type of computed numbers. Default: "float64".
    """
    return made("seasonal_rolling", locals())


def select(
    value: spec.SelectColumns,
) -> spec.AnyTransform:
    """Keeps these columns, in this order, and drops all others. Rows stay as they are.

    value: What the language has under the name.
    """
    return alone("select", value)


def spline(
    columns: spec.ColumnSelector,
    *,
    knots: int | None = None,
    degree: int | None = None,
    strategy: spec.KnotStrategy | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The values of B-splines at x: `knots + degree - 1` numbers from 0 to 1 with the sum 1, of which `degree + 1` are
    not 0. A linear model of them is a smooth curve of x.

    In: columns of numbers. Out: a fixed-size list of `float32`. The knots lie between the least and the greatest
    value, at equal distances or at quantiles, and continue beyond them at the outer distances. Values beyond the
    knots that were learned have the numbers of the nearest one. Null and NaN give zeros; neither counts. An
    infinity leaves no knots and is a fault when fitting, as are values whose distances no double holds (1e308,
    1e-310). One distinct value, or nothing seen: knots at the distance 1. State: 6 KiB, or a sample of about `7.3 /
    epsilon^2` rows of 16 bytes. Follows scikit-learn's `SplineTransformer`.

    columns: Columns of numbers.
    knots: Number of knots, the least and the greatest value among them; 2 to 1,000. Default: 5.
    degree: The degree of the curves between knots, 1 to 8. Default: 3.
    strategy: The places of knots. Default: "uniform".
    epsilon: The rank error of quantiles, as a share of the rows. Default: 0.01.
    exact: Takes the quantiles exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("spline", locals())


def standardize(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[str] | None = None,
    spread: spec.MeanSpread | None = None,
    ddof: int | None = None,
    zero_variance: spec.ZeroVariance | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The z-score, `(x - mean) / sqrt(var)`, over all values or for each key.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`, computed in doubles and
    rounded once. State: about 6 KiB per column; with `by`, some 300 bytes per key, spilled beyond the budget.

    Null stays null and NaN stays NaN; neither counts. An infinity in the data makes the mean infinite and the
    result NaN or infinite. Values whose squares no double holds (1e200) are a fault. Nothing seen: mean 0, variance
    0. A key that was not seen leaves x unchanged; null is a key of its own. Follows tf.Transform's
    `scale_to_z_score`, scikit-learn with `zero_variance: zero`. With `spread: range`, the divisor is `max - min`,
    as in feature_engine's `MeanNormalizationScaler`, which refuses columns whose values are all equal.

    columns: Columns of numbers.
    by: Key columns: statistics are taken for each of their values.
    spread: The number by which distances from the mean are divided.
    ddof: The variance divides by `n - ddof`; where that is not above 0 the variance counts as 0. Default: 0.
    zero_variance: What comes out where the variance is 0. Default: "centre".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("standardize", locals())


def target(
    *,
    column: str,
    do: Sequence[spec.TargetOperation],
    time: str | None = None,
    keys: Sequence[str] | None = None,
    gaps: spec.GapPolicy | None = None,
) -> spec.AnyTransform:
    """Transforms the target that a model learns. Forecasts and predictions are in the units of the rows: they undo it.

    In: a column of numbers, behind `future_rows`. Out: the column itself, in doubles, and hidden columns with the
    numbers that undo it. Steps before see the values of the rows, steps after it the transformed ones: put `lag`
    and `rolling` of the target behind it, as mlforecast does, or before it for features in the units of the rows.

    The operations of `do` follow each other:

    - `difference: [1, 7d]`: the value less the one so many rows, or so long, before; one difference for each
    length. `difference: auto`: from row to row, for series that a test of stationarity rejects (Kwiatkowski et al.,
    1992); `difference: { auto: 2 }`: up to two. - `seasonal_difference: 7d`: a difference by the length of the
    season. `seasonal_difference: { auto: 12 }`: by 12 rows, for series whose seasonal strength is above 0.64 (Wang,
    Smith and Hyndman, 2006). - `scale: standard | min_max | robust`: `(x - centre) / scale` with the mean and
    standard deviation (ddof 0), the least value and range, or the median and distance of quartiles of each series.
    Statistics are learned as those of other steps: of all rows, or of the part `fit_on` names. A series of one
    value gives 0. A series that was not learned takes the statistics of all rows. - `log1p`: `ln(1 + x)`. - `power:
    0.5`: `x^0.5`, of values of at least 0. - `box_cox: 0.3`: `(x^0.3 - 1) / 0.3`, `ln x` for 0 (Box and Cox, 1964).
    `box_cox: likelihood` and `box_cox: { guerrero: 12 }` choose the exponent of each series, from 0 to 2; a `scale`
    behind it makes their values alike.

    A forecast undoes them in reverse order. A difference adds the value so long before: the one of the rows where
    it is known, else the point forecast of that time; so predictions feed later rows of the future, one time after
    the other, in one thread, unless every difference reaches back over the whole horizon. Quantiles are undone like
    the point forecast: under a difference, they are those of the change of the step, around the point forecasts of
    the steps before. Bounds (`min`, `max`) hold for what is undone.

    Null stays null. Rows before the first difference of a series have no target: rows to learn from go without
    them, counted as `filtered`. A value outside of the domain of an operation is a fault. State per series: 16
    bytes for each row that a difference reaches back over; for scales some 300 bytes; for `auto`, `robust` and
    fitted exponents 60 bytes for each row while they are learned, spilled beyond the budget. Follows the target
    transforms of mlforecast.

    column: The column that is predicted.
    do: The operations, in order.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them.
    gaps: Meaning of missing periods; required where differences count rows.
    """
    return made("target", locals())


def target_encoding(
    columns: spec.ColumnSelector,
    *,
    label: str,
    compute: spec.TargetStatistic | None = None,
    cross_fit: spec.CrossFit | None = None,
    smoothing: spec.TargetSmoothing | None = None,
    folds: int | None = None,
    fold_by: Sequence[str] | None = None,
    gap: spec.Length | None = None,
    time: str | None = None,
    dtype: spec.FloatType | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Categories to the mean of a label, drawn toward the mean of all labels. A row never sees its own label.

    In: columns of categories that are not nested, and a label, a column of numbers or booleans. Out: `dtype`. The
    encoding is `(sum of the category's labels + s * mean) / (labels + s)`, where `mean` is that of all labels that
    the row may see, and s is `smoothing`. With `smoothing: auto`, as in scikit-learn (empirical Bayes), s is the
    variance of the category's labels divided by that of all labels (both with ddof 0). A category without labels
    gives `mean`; null is a category. A null or NaN label does not count.

    - `cross_fit: folds`: rows are divided into `folds` by a hash (xxh3) of the columns `fold_by`, and a row sees
    the labels of the other folds. A row has the same encoding in training, validation and serving. Labels of other
    folds may be later than the row: refused where the label has a `horizon`. - `cross_fit: time`: a row sees the
    labels of strictly earlier rows, with `gap` those at or before `t - gap`. An artifact that is applied knows the
    labels that it was learned from.

    With `compute: woe`, the encoding of a boolean label is the weight of evidence, `ln(((t + s) / (T + 2s)) / ((f +
    s) / (F + 2s)))`: t and f are the true and false labels of the category, T and F those of all, and s is
    `smoothing`, 1 for `auto`. A category without labels gives 0.

    Null where no label may be seen: before the first labels, with a null time, or where all labels are in one fold.
    Such values are counted. State: some 300 bytes for each category and fold or time that occurs, spilled beyond
    the budget; the table of some 60 bytes each has to fit memory. Follows scikit-learn's `TargetEncoder`; a number
    as `smoothing` is the `m` of category_encoders' `MEstimateEncoder`; `woe` is its `WOEEncoder`, which gives
    categories with one label 0.

    columns: Columns of categories; each is encoded by itself.
    label: The column of labels.
    compute: The number of a category.
    cross_fit: The labels that a row may see. Default: "folds".
    smoothing: Number of labels that the mean of all counts as, or `auto`. For `woe`, number of labels that each
        class has more. Default: "auto".
    folds: Number of folds, 2 to 1,000; 5 where left out.
    fold_by: Columns whose values divide rows into folds; where left out, the keys and the time that the source
        declares.
    gap: Distance before the row at which the labels end, a length of time; where left out, labels of strictly
        earlier rows count.
    time: The event-time column, where the source does not declare it.
    dtype: The type of the encoding. Default: "float64".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("target_encoding", locals())


def tf_idf(
    columns: spec.ColumnSelector,
    *,
    min_count: int | None = None,
    top_k: int | None = None,
    counts: spec.TokenCounts | None = None,
    smooth: bool | None = None,
    norm: spec.TokenNorm | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The counts of a row's tokens, each times a weight that is greater the fewer rows have the token: `ln((1 + rows)
    / (1 + rows with the token)) + 1`.

    In: lists of strings (or of integers, ...: as their text), such as those of `ngrams`. Out: a fixed-size list of
    `float32`, one place per learned token in byte order, divided by its norm. Null, an empty list, null elements
    and unknown tokens give zeros; a null row does not count, one with an empty list does. More than 65,536 tokens
    are a fault. State: the distinct tokens with exact counts, spilled beyond the budget. Follows scikit-learn's
    `TfidfVectorizer`; with `counts: share` and `norm: none` tf.Transform's `tfidf`.

    columns: Columns of lists of tokens.
    min_count: Tokens of fewer rows give no place. Default: 1.
    top_k: At most so many tokens: those of the most rows, of equal numbers of rows the first in byte order.
    counts: The number that the weight multiplies. Default: "count".
    smooth: Counts one row more that has every token, so that no weight is infinite; else the weight is `ln(rows /
        rows with the token) + 1`. Default: true.
    norm: The length of a row's vector that divides it. Default: "l2".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("tf_idf", locals())


def violations(
    value: spec.Violations,
) -> spec.AnyTransform:
    """Keeps the rows that violate one of the rules, and adds `violated_rule` and `violating_value` (texts): the first
    of the rules, in their order, that the row violates, and its value there. Rules are those of `expect` that tell
    of single rows: `not_null`, `range`, `in_set` and `sql`.

    A sink with `quarantined: true` reads such a step of its own.

    value: What the language has under the name.
    """
    return alone("violations", value)


def vocabulary(
    columns: spec.ColumnSelector,
    *,
    joint: bool | None = None,
    min_count: int | None = None,
    top_k: int | None = None,
    reserved: Sequence[str] | None = None,
    oov_buckets: int | None = None,
    default: int | None = None,
    order: spec.VocabularyOrder | None = None,
    stable: bool | None = None,
    dtype: spec.IdType | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Categories to ids: the most frequent first, out-of-vocabulary values last or `default`.

    In: strings, integers, booleans, dates (as their text), or lists of these. Out: `int64` or `int32` ids, in lists
    where the input has lists. Reserved tokens take 0, 1, ...; then come the tokens seen, by count descending, ties
    in reverse byte order; then `oov_buckets` ids by a hash (xxh3) of the text. Null stays null and is never
    counted; the empty string is a token. State: the distinct tokens with exact counts, spilled beyond the budget;
    the vocabulary itself has to fit memory. Nothing seen: every value is out of vocabulary.

    With `stable`, ids hold still from run to run: the state directory keeps all tokens that got an id, in the order
    of their ids. Tokens keep their ids, also those that are no longer seen, and new tokens follow, also where late
    data brings them to an earlier interval. The ids of `oov_buckets` then come before those of tokens.

    With `joint`, the columns have one vocabulary, of the tokens of all of them: a station has the same id as origin
    and as destination.

    Follows tf.Transform's `compute_and_apply_vocabulary`, and with `joint` NVTabular's `Categorify` of groups of
    columns.

    columns: Columns; each has a vocabulary of its own, unless they have a joint one.
    joint: Counts the tokens of all columns together, and gives equal tokens one id.
    min_count: Tokens seen less often are out of vocabulary. Default: 1.
    top_k: At most so many tokens after `min_count`: the most frequent ones. Equally frequent ones are taken in the
        `order` of ids, for `value` in byte order.
    reserved: Tokens that take the first ids, in this order, whether they occur or not.
    oov_buckets: So many ids after the vocabulary for out-of-vocabulary values; 0 gives `default` instead. Default:
        0.
    default: The id of out-of-vocabulary values where `oov_buckets` is 0. Default: -1.
    order: The order of ids. Default: "count_then_reverse".
    stable: Keeps the ids of earlier runs, and gives new tokens the ids after them. `top_k` then limits the tokens
        of one run.
    dtype: The type of ids. Default: "int64".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("vocabulary", locals())


def winsorize(
    columns: spec.ColumnSelector,
    *,
    around: spec.BoundCenter | None = None,
    lower: float | None = None,
    upper: float | None = None,
    fold: float | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Values below a learned quantile become that quantile, and values above another one become that one.

    In: columns of numbers. Out: the same types; decimals give `float64`. Bounds of integers are rounded outward to
    whole numbers. Null stays null and NaN stays NaN; neither counts. Infinities count and are moved to the bounds,
    unless a bound is infinite itself. Nothing seen: x unchanged. Values that are moved are counted as clipped.
    Quantiles are interpolated linearly, as in numpy and pandas. With `fold`, the bounds lie beyond the quantiles,
    by so many of their distances: `lower: 0.25, upper: 0.75, fold: 1.5` are the whiskers of a box plot. State: a
    sample of about `7.3 / epsilon^2` rows of 16 bytes, or the distinct values, spilled beyond the budget. Follows
    feature_engine's `Winsorizer` with quantiles and, with `fold`, with `"iqr"`.

    `around: mean` bounds by `fold` standard deviations (ddof 0) from the mean, 3 where left out, as
    feature_engine's `"gaussian"` does; values with an infinity have no such bounds, and stay. `around: median`
    bounds by `fold` median absolute deviations, divided by 0.6745, from the median, 3.29 where left out, as its
    `"mad"` does. A spread of 0 moves nothing.

    columns: Columns of numbers.
    around: The number from which the bounds are counted.
    lower: The lower quantile, as a probability; 0 bounds by the least value that was seen. Default: 0.05.
    upper: The upper quantile, as a probability; 1 bounds by the greatest value that was seen. Default: 0.95.
    fold: The distance of the bounds from the quantiles, in distances of the quantiles from each other; none where
        left out. From the mean or the median, it is in spreads.
    epsilon: The rank error, as a share of the rows; in the tails of the distribution it is smaller. Default: 0.01.
    exact: Takes the quantiles exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("winsorize", locals())
