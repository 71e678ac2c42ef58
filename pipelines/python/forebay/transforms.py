"""What steps do: a function for each transform, with the names of the YAML language.

Generated from the schema of specs by `generate_types.py`: change that, not this.
"""

# ruff: noqa

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import spec
from ._made import alone, made

__all__ = [
    "aggregate",
    "apply_buckets",
    "as_of_join",
    "bucketize",
    "cast",
    "clip",
    "cross",
    "date_parts",
    "dedupe",
    "derive",
    "diff",
    "drop",
    "ewm",
    "expanding",
    "expect",
    "explode",
    "fill_forward",
    "filter",
    "future_rows",
    "hash_bucket",
    "impute",
    "interpolate",
    "join",
    "k_bins",
    "lag",
    "log1p",
    "min_max",
    "multi_hot",
    "one_hot",
    "ordinal",
    "pct_change",
    "pooled",
    "profile",
    "quantiles",
    "rename",
    "robust_scale",
    "rolling",
    "seasonal_index",
    "seasonal_rolling",
    "select",
    "standardize",
    "violations",
    "vocabulary",
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
    `quantile` and `weighted_mean` are exact, too. `first`, `last` and `list` go by the order of the data.
    `first_by` and `last_by` go by time, and by the order of the data among rows of one time. Without keys and
    `every` there is one row, of empty data too. Takes a pass of its own, whose memory grows with the number of
    groups, for `n_unique`, `median`, `quantile` and `top_k` of distinct values in groups; it spills.
    `approx_n_unique` holds at most 4 KiB for each group. It estimates the number of distinct values by HyperLogLog
    (Flajolet and others 2007) with 4,096 registers and the estimator of Ertl (2017): the standard error is 1.04 /
    sqrt(4096) = 1.63 %, so that 95 of 100 estimates are within 3.3 %. Up to 1,023 values are counted one by one
    (Heule and others 2013): the count is exact unless two hashes agree in 26 bits, at most once in 128 groups of
    that size. The estimate depends on the values alone, not on threads or nights.

    compute: New columns by name, each `function: column` (`sum`, `mean`, `count`, `min`, `max`, `std`, `var`,
        `first`, `last`, `n_unique`, `approx_n_unique`, `median`) or one of `quantile: { column, q }`,
        `weighted_mean: { column, weight }`, `first_by: { column, time }`, `last_by: { column, time }`, `top_k: {
        column, k }` (a list, most frequent first) and `list: { column, limit, beyond }` (with `beyond: truncate` a
        longer list is cut, else it is a fault).
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

    In: a time column and key columns here and there. Keys have equal types, or are integers of any widths or
    floats; -0.0 meets 0.0. Times have equal types, or are timestamps of any units that have both a time zone or
    both none: they are compared in the finer unit, and one that it does not hold is a fault. Out: the other table's
    columns behind this table's, nullable; one row for each row, in the same order. Of the other table's rows with
    the key, the last one at or before the row's time counts (`backward`), the first one at or after it (`forward`),
    or the nearer of both (`nearest`, the earlier where both are as near); of rows with equal times the last. Rows
    there whose time or `known_at` is null are never met; a null key or time here meets nothing. Both sides may be
    larger than memory: they are sorted together by key and time, with spilling. A backward join of two sources
    whose files follow each other in time sorts nothing: it holds the last row of each key, and a new day costs the
    rows of that day. Learns nothing.

    with_: The other step or source.
    on: The key columns here; by default those that the source declares. `[]` joins by time alone.
    right_on: The key columns there, in the same order, where their names differ.
    time: The time column here; by default the one that the source declares.
    right_time: The time column there; by default the one that the other source declares, else one of the same name.
    direction: Which row there counts. Default: "backward".
    tolerance: How far away in time it may be, inclusive: a length such as `7d`; any where left out.
    exact: Whether a row of the very same time counts. Default: true.
    known_at: The column there that tells when a row became known; it is not seen before. Only backward.
    columns: The other table's columns to bring; where left out, all but its keys and times.
    prefix: Put before the names of the columns that are brought. Default: "".
    suffix: Put behind the names of the columns that are brought. Default: "".
    """
    return made("as_of_join", locals())


def bucketize(
    columns: spec.ColumnSelector,
    *,
    q: int,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The index of the bucket, of `q` buckets of about equal size: the number of boundaries that are not above x.

    In: columns of numbers. Out: `int32`, 0 to `q - 1`. Boundary k is `sorted[floor(n * k / q)]` within the rank
    error; boundaries may be equal. Null stays null, NaN goes into the last bucket and does not count, infinities
    count. Nothing seen: bucket 0. State: a sample of about `7.3 / epsilon^2` rows of 16 bytes (exact up to that
    many rows), or the distinct values, spilled beyond the budget. Follows tf.Transform's `bucketize`.

    columns: Columns of numbers.
    q: How many buckets; at least 2.
    epsilon: The rank error of boundaries, as a share of the rows; where left out, `1 / q` but at most 0.01.
    exact: Takes the boundaries exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("bucketize", locals())


def cast(
    columns: Mapping[str, spec.TypeName],
    *,
    on_error: spec.OnCastError | None = None,
) -> spec.AnyTransform:
    """Changes the types of columns in place.

    Null stays null. A value that does not fit (an integer out of range, NaN as an integer, text that is not a
    number, a time with digits that the type does not hold) is a fault unless `on_error: missing`. Fractions are cut
    toward zero; doubles beyond `float32` become infinite; numbers other than 0 are true; dates and timestamps are
    read from integers as days and ticks since 1970. Texts are read as CSV files are: `true` and `false` are
    booleans, numbers beyond the range of their type are none, dates and times are those of ISO 8601, and a time
    with an offset is that instant in UTC.

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
    instead, `float32`, for every part that comes round. Null stays null. Learns nothing. Parts of the time of day
    need timestamps.

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
    are faults, of floats infinities and NaN. Expressions see one row, and -0.0 as 0.0; functions that change from
    run to run (`random`, `now`) are refused.

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
    where a difference of integers does not fit. State per series: some 16 bytes for each row that the longest
    length reaches back over. It looks at the row itself, which a feature of its own label must not: take the `lag`
    of the difference.

    columns: Columns of numbers.
    by: How far back, in rows or time.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: What missing periods mean; has to be said where rows are counted.
    names: How the new columns are called.
    dtype: The type of differences of floats. Default: "float64".
    """
    return made("diff", locals())


def drop(
    value: spec.Drop,
) -> spec.AnyTransform:
    """Removes these columns; all others stay as they are. To remove every column is a fault.

    value: What the language has under the name.
    """
    return alone("drop", value)


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
    gaps: What missing periods mean; has to be said where rows are counted.
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

    In: columns of numbers or booleans. Out, for each statistic: `<column>_expanding_<statistic>`. Numbers are
    `dtype`, `count`, `n_unique` and `since_nonzero` by rows `int64`, `first` and `last` the column's own type.
    `slope` and `since_nonzero` are by the unit in which `gap` is written, and by rows without a gap of time. Null
    and NaN are no values; where there are fewer than `min_periods`, or too few for the statistic, the result is
    null. State per series: some 100 bytes for each column; quantiles, `n_unique` and a gap hold the values
    themselves. Follows pandas' `expanding`.

    columns: Columns of numbers or booleans.
    compute: Which statistics.
    gap: How far before the row it ends: the last so many rows, or rows later than `t - gap`, do not count.
    min_periods: How many values it takes; 1 where left out, 0 for `count`.
    ddof: `std` and `var` divide by `n - ddof`. Default: 1.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: What missing periods mean; has to be said where rows are counted.
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
    find them. With `apply`, the rows of that run are checked.

    Rules with `policy: quarantine` come first, wherever they are listed: rows that violate one of `not_null`,
    `range`, `in_set` and `sql` are taken out before anything else is learned, checked or computed, and are counted.
    A sink with `quarantined: true` writes them, with the rule and the value. Where they are more than `at_most`,
    nothing is published.

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

    In: columns of numbers, booleans, dates or times. Out: the same types. What comes before the first value of a
    series stays missing, as null. Rows are filled only where they are; none are added. State per series: some 16
    bytes per column.

    columns: Columns of numbers, booleans, dates or times.
    limit: How many rows after a value are filled at most; all where left out.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: What missing periods mean; has to be said where there is a `limit`.
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

    The rows go their own way. Statistics, splits, trainings, feeds and sinks read the known rows alone; a sink with
    `split: future` and a `predict` sink get the rows of the future, ordered by time and then by keys. So no output
    of the known rows changes because of them. `aggregate`, `dedupe` and SQL end them. With intervals, they begin at
    the end of the interval.

    State: the last row of each series, some 100 bytes and the carried columns, spilled while it is made; the rows
    are written to the state directory. Rows without a time do not count. Of rows with equal times, the one whose
    carried values are greater counts.

    horizon: How far the last row lies after the last known time: a length of time, such as `28d`.
    every: The distance between rows of a series: a length of time, such as `1d`.
    carry: Columns whose last values are carried on: what does not change in a series.
    after: Where the rows of a series begin. Default: "data".
    active_within: Leaves out series whose last row lies further before the last time of the data, such as `90d`.
        They are counted in the summary. Without it, all series go on.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them.
    """
    return made("future_rows", locals())


def hash_bucket(
    columns: spec.ColumnSelector,
    *,
    buckets: int,
    seed: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The bucket of a category's hash, 0 to `buckets - 1`.

    In: text, integers, booleans, dates (as their text), or lists of these. Out: `int64`, in lists where the input
    has lists. The 64-bit xxh3 of the text with `seed`, scaled by a multiplication, so that no bucket is favoured.
    Null stays null; the empty string is a value. Learns nothing; a value keeps its bucket for ever. 0 buckets are a
    fault.

    columns: Columns of categories.
    buckets: How many buckets.
    seed: Changes which values share a bucket. Default: 0.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("hash_bucket", locals())


def impute(
    columns: spec.ColumnSelector,
    *,
    with_: spec.ImputeStrategy,
    indicator: bool | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Fills missing values: nulls and, in columns of floats, NaN.

    In: columns of any type that is not nested; mean and median need numbers. Out: the same type, but mean and
    median of integers give `float64`. Where nothing was seen there is nothing to fill with, and values stay
    missing. Infinities are values: they make the mean infinite. State: none for a constant, 6 KiB for a mean, a
    sample or the distinct values for a median, and the distinct values with their counts for a mode (spilled beyond
    the budget).

    columns: Columns to fill.
    with_: What is filled in: `mean`, `median`, `mode`, or `constant: value`.
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
    gaps: What missing periods mean; has to be said where there is a `limit`.
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

    In: key columns of equal types here and there (integers of any width). Out: the other table's columns behind
    this table's, nullable. Rows keep their order. A null key matches nothing; NaN matches NaN, and -0.0 matches
    0.0. `left` keeps rows without a match, with nulls; `inner` removes them, counted as `filtered`; `semi` keeps
    the rows with a match and `anti` those without one, and neither brings columns. Two rows of the other table with
    one key are a fault that names the key, unless the cardinality is `many_to_many` or only the match counts.
    State: with the strategy `lookup`, the other table's keys and wanted columns, which have to fit the state's
    budget; with `shuffle`, none: both sides are partitioned by key, with spilling. Both give the same rows.

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
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The index of the bin, of `bins` bins of equal width between the minimum and the maximum, or of about equal size.

    In: columns of numbers. Out: `int32`, 0 to `bins - 1`; values outside the range that was learned fall into the
    outer bins. Null stays null, NaN goes into the last bin and does not count. An infinity leaves no bins of equal
    width and is a fault when fitting. One distinct value, or nothing seen: bin 0. Edges of bins of equal size that
    are equal, the minimum and the maximum among them, become one. State: 6 KiB, or a sample as for `bucketize`.
    Follows scikit-learn's `KBinsDiscretizer`.

    columns: Columns of numbers.
    bins: How many bins; at least 2.
    strategy: Where the edges are. Default: "uniform".
    epsilon: The rank error of edges by size, as a share of the rows; where left out, `1 / bins` but at most 0.01.
    exact: Takes the edges exactly; the state then grows with the distinct values. Default: false.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("k_bins", locals())


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

    In: columns of numbers, booleans, dates or times. Out, for each length: `<column>_lag_<by>` in the column's own
    type. By rows it is the value so many rows before; by time that of the row exactly so long before (the last one,
    if there are several), with `as_of` of the latest row at or before that. Null where there is no such row, or its
    value is null or NaN. State per series: some 16 bytes for each row that the longest lag reaches back over; with
    `as_of: true`, by time, for all of them. A row without a time is a fault, and so is a 64-bit value with the bits
    of the least integer, which stand for a missing one here.

    columns: Columns of numbers, booleans, dates or times.
    by: How far back, in rows or time.
    as_of: Takes the latest row at or before the time: `true`, or how much older it may be at most (inclusive).
        Lengths of time only. Default: false.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: What missing periods mean; has to be said where rows are counted.
    names: How the new columns are called.
    """
    return made("lag", locals())


def log1p(
    columns: spec.ColumnSelector,
    *,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The natural logarithm of `1 + x`, accurate near 0.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. As in numpy, -1 gives -inf
    and what is below gives NaN. Null stays null. Learns nothing.

    columns: Columns of numbers.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("log1p", locals())


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


def multi_hot(
    columns: spec.ColumnSelector,
    *,
    delimiter: str | None = None,
    categories: Sequence[str] | None = None,
    min_count: int | None = None,
    top_k: int | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """Several categories per row as a vector with a 1 for each.

    In: lists of text (or integers, ...: as their text), or text with a `delimiter`, of which empty parts are
    skipped. Out: a fixed-size list of `float32`, one place per category, in byte order or as listed. A category
    that comes twice counts once. Null, empty and unknown give zeros. More than 65,536 categories are a fault.
    State: the distinct values with exact counts, spilled beyond the budget; none where they are listed. Follows
    scikit-learn's `MultiLabelBinarizer`.

    columns: Columns of lists, or of text with delimiters.
    delimiter: What stands between the parts of a text; where left out, columns have to be lists.
    categories: The categories, where they are known; else they are learned.
    min_count: Categories seen less often give zeros. Default: 1.
    top_k: At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("multi_hot", locals())


def one_hot(
    columns: spec.ColumnSelector,
    *,
    categories: Sequence[str] | None = None,
    min_count: int | None = None,
    top_k: int | None = None,
    as_: spec.OneHotLayout | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """A category as a vector with a single 1.

    In: text, integers, booleans, dates (as their text). Out: a fixed-size list of `float32` whose width is the
    number of categories, or one `float32` column `<column>_<category>` each. Null and unknown values give zeros;
    the empty string is a category. More than 65,536 are a fault. Categories are those seen, in byte order as in
    scikit-learn, or those listed, in their order. State: the distinct values with exact counts, spilled beyond the
    budget; none where they are listed. Nothing seen: the width is 0.

    columns: Columns of categories.
    categories: The categories, where they are known; else they are learned.
    min_count: Categories seen less often give zeros. Default: 1.
    top_k: At most so many categories: the most frequent ones, of equally frequent ones the first in byte order.
    as_: One vector, or one column for each listed category. Default: "vector".
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

    In: text (in byte order), numbers (-0.0 is 0.0), booleans, dates (in their own order). Out: `int64` or `int32`.
    Null stays null and is not a category; the empty string is one. An unknown value is a fault that names it,
    unless `unknown` says otherwise. Nothing seen: every value is unknown. State: the distinct values with exact
    counts, spilled beyond the budget; none where they are listed. Follows scikit-learn's `OrdinalEncoder`.

    columns: Columns of categories; each has ids of its own.
    categories: The categories in order, where they are known; else they are learned.
    unknown: What becomes of values that were never seen. Default: "error".
    dtype: The type of ids. Default: "int64".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("ordinal", locals())


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
    where the earlier value is 0, null where both are. Earlier values are not filled in. State per series: some 16
    bytes for each row that the longest length reaches back over. It looks at the row itself, which a feature of its
    own label must not: take the `lag` of the change. Follows pandas' `pct_change(fill_method=None)`.

    columns: Columns of numbers.
    by: How far back, in rows or time.
    time: The event-time column, where the source does not declare it.
    keys: The columns that tell series apart, where the source does not declare them; `[]` makes all rows one
        series.
    gaps: What missing periods mean; has to be said where rows are counted.
    names: How the new columns are called.
    dtype: The type that comes out. Default: "float64".
    """
    return made("pct_change", locals())


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
    to.

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

    With `series`, also learned of rows with a time and keys: how many series there are, their lengths, the period,
    the gaps, and how many are intermittent (1.32 periods a demand and more; Syntetos, Boylan and Croston, 2005).

    State: some 650 KiB per numeric column; distinct texts with their counts, pairs of categories, and some 100
    bytes per series, spilled beyond the budget.

    columns: The columns. Default: ["*"].
    pairs: Columns of which each two are compared: at most 40.
    series: Whether and how series are measured. Rows whose source declares no `time` and no `keys`, or that no
        longer have these columns, have no series.
    """
    return made("profile", locals())


def quantiles(
    columns: spec.ColumnSelector,
    *,
    q: int | None = None,
    epsilon: float | None = None,
    exact: bool | None = None,
    suffix: str | None = None,
) -> spec.AnyTransform:
    """The rank of x in [0, 1], interpolated between the `q - 1` boundaries of `q` buckets.

    In: columns of numbers. Out: doubles stay doubles, all other numbers give `float32`. Below the first boundary 0,
    at or above the last 1, NaN 0.5; null stays null. NaN does not count, infinities do: beside an infinite boundary
    it is the rank of the boundary below. Nothing seen: 0.5. State: as for `bucketize`. Follows tf.Transform's
    `apply_buckets_with_interpolation`.

    columns: Columns of numbers.
    q: How many buckets the boundaries make; at least 2. Default: 100.
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

    columns: Columns of numbers.
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

    In: columns of numbers or booleans. Out, for each length and statistic: `<column>_<statistic>_<over>`, such as
    `qty_mean_28d`; a quantile is `q90`. Numbers are `dtype`, `count`, `n_unique` and `since_nonzero` by rows
    `int64`, `first` and `last` the column's own type. The window of time is `(t - gap - over, t - gap]`; rows of
    the same time count as far as they came before. Null and NaN are no values; where there are fewer than
    `min_periods`, or too few for the statistic, the result is null. Every result is a function of the window's
    values alone. State per series: some 16 bytes for each row that the longest window holds. Follows pandas'
    `rolling`.

    columns: Columns of numbers or booleans.
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
    gaps: What missing periods mean; has to be said where rows are counted.
    names: How the new columns are called.
    dtype: The type of computed numbers. Default: "float64".
    """
    return made("rolling", locals())


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
    gaps: What missing periods mean; has to be said where rows are counted.
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

    In: columns of numbers or booleans. Out, for each `over` and statistic:
    `<column>_seasonal_<statistic>_<season>x<over>`, such as `qty_seasonal_mean_7dx4`, of the types that `rolling`
    gives. The rows are those at `i - gap - k * season`, or at exactly the times `t - gap - k * season` (the last
    one, if there are several), for k below `over`; with no gap the row itself is among them. Null and NaN are no
    values; where there are fewer than `min_periods`, or too few for the statistic, the result is null. State per
    series: some 16 bytes for each row of `season * over`. Follows mlforecast's `SeasonalRollingMean` and others,
    whose lag is the gap.

    columns: Columns of numbers or booleans.
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
    gaps: What missing periods mean; has to be said where rows are counted.
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


def standardize(
    columns: spec.ColumnSelector,
    *,
    by: Sequence[str] | None = None,
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
    `scale_to_z_score`, scikit-learn with `zero_variance: zero`.

    columns: Columns of numbers.
    by: Key columns: statistics are taken for each of their values.
    ddof: The variance divides by `n - ddof`; where that is not above 0 the variance counts as 0. Default: 0.
    zero_variance: What comes out where the variance is 0. Default: "centre".
    suffix: Writes `<column><suffix>` instead of replacing the column.
    """
    return made("standardize", locals())


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

    In: text, integers, booleans, dates (as their text), or lists of these. Out: `int64` or `int32` ids, in lists
    where the input has lists. Reserved tokens take 0, 1, ...; then come the tokens seen, by count descending, ties
    in reverse byte order; then `oov_buckets` ids by a hash (xxh3) of the text. Null stays null and is never
    counted; the empty string is a token. State: the distinct tokens with exact counts, spilled beyond the budget;
    the vocabulary itself has to fit memory. Nothing seen: every value is out of vocabulary.

    With `stable`, ids hold still from run to run: the state directory keeps all tokens that got an id, in the order
    of their ids. Tokens keep their ids, also those that are no longer seen, and new tokens follow, also where late
    data brings them to an earlier interval. The ids of `oov_buckets` then come before those of tokens.

    Follows tf.Transform's `compute_and_apply_vocabulary`.

    columns: Columns; each has a vocabulary of its own.
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
