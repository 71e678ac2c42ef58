"""Where output goes: a function for each format.

Generated from the schema of specs by `generate_types.py`: change that, not this.
"""

# ruff: noqa

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import spec
from ._made import sink

__all__ = [
    "arrow",
    "csv",
    "delta",
    "json",
    "parquet",
    "predict",
    "train",
]


def parquet(
    path: str,
    *,
    from_: str,
    partition_by: Sequence[str] | None = None,
    sort_by: Sequence[str] | None = None,
    file_bytes_target: int | None = None,
    group_rows_max: int | None = None,
    compression: spec.ParquetCompression | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """Parquet files to write. Their pages and their footers have checksums.

    path: The folder or URL that the output goes to.
    from_: The step or source to write.
    partition_by: Columns that become folders named `column=value` and are left out of the files. They hold no
        lists, structs, bytes or durations, which are not read back from names.
    sort_by: Columns by which rows are sorted inside each file.
    file_bytes_target: A file is closed when it has reached this size. Default: 134217728.
    group_rows_max: Rows per row group at most. Default: 122880.
    compression: Compression of pages. Default: "snappy".
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("parquet", ('from', 'split', 'quarantined', 'optional'), locals())


def delta(
    path: str,
    *,
    from_: str,
    mode: spec.DeltaMode | None = None,
    partition_by: Sequence[str] | None = None,
    added_columns: spec.AddedTableColumns | None = None,
    sort_by: Sequence[str] | None = None,
    file_bytes_target: int | None = None,
    compact_below_bytes: int | None = None,
    group_rows_max: int | None = None,
    compression: spec.ParquetCompression | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """A Delta table to write. Each run is one commit: readers see the table before it or after it. A table that is not
    there is made.

    path: The directory of the table, local or a URL.
    from_: The step or source to write.
    mode: Treatment of the rows that the table already has. Default: "overwrite".
    partition_by: Columns by whose values the files of the table are divided. A table keeps those that it was made
        with.
    added_columns: Reaction to columns of a run that the table lacks. Default: "refuse".
    sort_by: Columns by which rows are sorted inside each file.
    file_bytes_target: A file is closed when it has reached this size. Default: 134217728.
    compact_below_bytes: Size in bytes below which the files of a partition are merged into one after each run. This
        is for tables that runs append to, or whose partitions are those of intervals.
    group_rows_max: Rows per row group at most. Default: 122880.
    compression: Compression of pages. Default: "snappy".
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("delta", ('from', 'split', 'quarantined', 'optional'), locals())


def arrow(
    path: str,
    *,
    from_: str,
    partition_by: Sequence[str] | None = None,
    sort_by: Sequence[str] | None = None,
    file_bytes_target: int | None = None,
    group_rows_max: int | None = None,
    compression: spec.ArrowCompression | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """Arrow files to write, in the file format.

    path: The folder or URL that the output goes to.
    from_: The step or source to write.
    partition_by: Columns that become folders named `column=value` and are left out of the files. They hold no
        lists, structs, bytes or durations, which are not read back from names.
    sort_by: Columns by which rows are sorted inside each file.
    file_bytes_target: A file is closed when it has reached this size. Default: 134217728.
    group_rows_max: Rows that are encoded together at most. Default: 122880.
    compression: Compression of buffers. Default: "none".
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("arrow", ('from', 'split', 'quarantined', 'optional'), locals())


def csv(
    path: str,
    *,
    from_: str,
    partition_by: Sequence[str] | None = None,
    file_bytes_target: int | None = None,
    group_rows_max: int | None = None,
    null_text: str | None = None,
    compression: spec.TextCompression | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """CSV files to write: a header, fields in quotes where they need them, null as `null_text`, dates and times in ISO
    8601, decimals with all of their digits. Numbers have as many digits as tell all their bits.

    A value is written so that a CSV source reads it back equal where its column is declared, or where it is
    declared `string` and then `cast`. An empty text is `""`, and null an empty field without quotes, or the
    `null_text`, which the source that reads the files names in its `nulls`. In files of one column that field is a
    blank line, which pandas and Spark skip. Others are refused: lists, objects, bytes and lengths of time, years
    beyond 0 to 9999, and a text that is the `null_text`.

    path: The folder or URL that the output goes to.
    from_: The step or source to write.
    partition_by: Columns that become folders named `column=value` and are left out of the files. They hold no
        lists, structs, bytes or durations, which are not read back from names.
    file_bytes_target: A file is closed when it has reached this size. Default: 134217728.
    group_rows_max: Rows that are encoded together at most. Default: 122880.
    null_text: The text that is written for null. Name it in the `nulls` of the source that reads the files.
    compression: Compression of the files.
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("csv", ('from', 'split', 'quarantined', 'optional'), locals())


def json(
    path: str,
    *,
    from_: str,
    partition_by: Sequence[str] | None = None,
    sort_by: Sequence[str] | None = None,
    file_bytes_target: int | None = None,
    group_rows_max: int | None = None,
    compression: spec.TextCompression | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """JSON lines to write: an object for each row, with all of its fields, null where there is no value. Numbers have
    as many digits as tell all their bits; dates and times are texts in ISO 8601.

    A value is written so that a JSON source reads it back equal where its column is declared, or where it is a text
    that is then `cast`. What JSON has no form for is written by one rule: floats that are no numbers are the texts
    `"NaN"`, `"Infinity"` and `"-Infinity"`, decimals of more than 15 digits or of a negative scale are texts, and a
    map is a list of objects with `key` and `value`. Bytes, lengths of time, objects without fields and years beyond
    0 to 9999 are refused.

    A file without rows names no columns: declare them where it is read.

    path: The folder or URL that the output goes to.
    from_: The step or source to write.
    partition_by: Columns that become folders named `column=value` and are left out of the files. They hold no
        lists, structs, bytes or durations, which are not read back from names.
    sort_by: Columns by which rows are sorted inside each file.
    file_bytes_target: A file is closed when it has reached this size. Default: 134217728.
    group_rows_max: Rows that are encoded together at most. Default: 122880.
    compression: Compression of the files. Default: "none".
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("json", ('from', 'split', 'quarantined', 'optional'), locals())


def train(
    path: str | None = None,
    *,
    from_: str,
    model: spec.ModelKind | spec.BoostedModelKind | spec.SeriesModelKind | None = None,
    hidden: Sequence[int] | None = None,
    loss: spec.LossFunction | spec.BoostingLoss | None = None,
    label: str | None = None,
    dense: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    embeddings: Mapping[str, int] | None = None,
    weight: str | None = None,
    missing: float | None = None,
    non_finite: spec.OnNonFinite | None = None,
    validation: str | None = None,
    refit: str | None = None,
    start: spec.TrainingStart | None = None,
    replay: float | None = None,
    epochs: int | None = None,
    batch_rows: int | None = None,
    window_rows: int | None = None,
    cache: spec.FeedCache | None = None,
    seed: int | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    decay: spec.LearningRateDecay | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    patience_epochs: int | None = None,
    checkpoint_steps: int | None = None,
    device: spec.TrainOn | None = None,
    precision: spec.Precision | None = None,
    mlflow: spec.MlflowTracking | None = None,
    strategy: spec.ForecastStrategy | None = None,
    by: Sequence[str] | None = None,
    min_rows: int | None = None,
    fallback: spec.GroupFallbackKind | None = None,
    sample_rows: int | None = None,
    quantiles: Sequence[float] | None = None,
    intervals: spec.ForecastIntervals | spec.SeriesIntervals | None = None,
    quantile: float | None = None,
    tweedie_power: float | None = None,
    added_rounds: int | None = None,
    rounds: int | None = None,
    leaves: int | None = None,
    min_leaf_rows: int | None = None,
    l2: float | None = None,
    patience_rounds: int | None = None,
    variant: spec.ThetaVariant | None = None,
    of: Sequence[spec.SeriesMethod] | None = None,
    weights: spec.EnsembleWeights | None = None,
    horizon: str | None = None,
    folds: int | None = None,
    reconcile: spec.ReconcileConfig | None = None,
    time: str | None = None,
    every: str | None = None,
    season: str | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """Trains a model on the rows of a step. `model` says which, and so which fields there are.

    path: The directory of the model; a folder of the state directory when left out.
    from_: The step or source to write.
    model: The kind of model.
    hidden: The widths of an `mlp`'s hidden layers; 128 and 64 when left out.
    loss: The loss that is minimised: that of the kind when left out.
    label: The column that is predicted; that of the pipeline's `label` when left out.
    dense: Columns of numbers; when left out, those that a `feed` would take. Patterns (`x_*`) and types
        (`type:float`) stand for all columns that match, but for the label and those that other settings name.
    categorical: Columns of ids, each with an embedding; when left out, those that a `feed` would take. Patterns
        stand for all columns that match.
    embeddings: Widths of embeddings by column; the others go by the rule 1.6 n^0.56 of n ids, at most 600.
    weight: The column with the weight of each row.
    missing: Replacement of missing numbers; without it, a missing number is a fault.
    non_finite: Treatment of numbers, labels and weights that are not finite.
    validation: The part of the split that the model is validated on; `validation` when left out, if there is one.
    refit: When a new model is trained: `always` (the default), `never`, `weekly`, or a duration of the data's time
        such as `7d`. Until then the model of an earlier run stays in force, and forecasts with the newest rows. A
        training whose settings, steps or rows are of another spec trains in any case.
    start: Start of the training: `nothing` when left out.
    replay: With `start: last`, the share of the rows of the run before that is learned from again, in addition to
        the new ones; 0.1 when left out.
    epochs: Number of times that all rows are seen. When left out, once, and so often that there are at least 1,000
        steps; a training that goes on from an earlier model sees its rows once.
    batch_rows: Rows of a batch. When left out, 8192; with `epochs` left out too, fewer for fewer than 8,192,000
        rows: the largest power of two that gives 1,000 steps an epoch, at least 64.
    window_rows: Number of rows that the shuffle mixes; without it, as many as 512 MiB hold. At least 65536 rows are
        mixed, or as many as 16 MiB hold where these are fewer.
    cache: Keeps what is read of a remote store on a local disk, so that epochs after the first do not read it
        again; the model does not depend on it. Without it, every epoch reads the store.
    seed: Chooses first weights and the order of rows. Default: 0.
    learning_rate: The learning rate of AdamW, after warming up. When left out, 0.001; 0.01 for `linear` and
        `logistic` where `epochs` is left out, too.
    warmup_steps: Steps in which the learning rate grows from nothing. Default: 0.
    decay: Course of the learning rate after that. Default: "cosine".
    weight_decay: Share of weights, times the learning rate, by which they decay per step (embeddings and biases do
        not). Default: 0.01.
    clip_norm: Gradients longer than this are cut to it.
    patience_epochs: Number of epochs in a row without a lower loss on the validation rows after which the training
        stops, and takes the model of the best epoch.
    checkpoint_steps: Steps between checkpoints; the model does not depend on them. Default: 1000.
    device: Device of the training: `cpu` when left out; `cuda`, or `cuda:1` for a GPU by its number; `auto` for the
        first GPU, where there is one whose results are close to those of the processor, else the processor.
        Validation and predictions always run on the processor. Tried on NVIDIA H100 and H200.
    precision: Precision of products of matrices on a GPU: `bf16` when left out.
    mlflow: Tracks the training in MLflow.
    strategy: Division of the steps of the horizon among models.
    by: The columns that name the groups, each with a model of its own. They are no features.
    min_rows: Rows of a group at least: the model over all rows predicts for smaller ones. 100 when left out.
    fallback: Prediction for groups without a model of their own: those with fewer than `min_rows` rows, those whose
        training fails, and those without rows in the training.
    sample_rows: Rows that one model learns from at most, evenly spaced ones of all; all rows when left out.
    quantiles: Quantiles that are predicted in addition to the point forecast of `loss`, such as `[0.1, 0.5, 0.9]`:
        each has trees of its own with the pinball loss, and a column of its own (`prediction_q10`). Quantiles of a
        row that cross are sorted.
    intervals: Intervals around the point forecast, such as `{ levels: [80, 95] }`, whose widths are found from its
        errors on the validation rows, so that they hold as large a share of values as they say. Each model has
        widths of its own, which follow the rows with `scale`; a group with too few validation rows takes those of
        the model over all rows. Trees that stop early choose their rounds on the same rows.
    quantile: The quantile that `loss: quantile` predicts, such as 0.9.
    tweedie_power: The power of the variance of `loss: tweedie`, between 1 and 2: 1.5 when left out.
    added_rounds: Trees that a training adds to those of the run before, at most; a tenth of `rounds` when left out.
    rounds: Trees of a model at most. Default: 200.
    leaves: Leaves of a tree at most. Default: 31.
    min_leaf_rows: Rows of a leaf at least. Default: 20.
    l2: Added to the second derivatives of a leaf: shrinks the values of small leaves. Default: 0.0.
    patience_rounds: Rounds in a row without a lower loss on the validation rows after which boosting stops.
        Default: 30.
    variant: The variant of the theta method.
    of: The methods that an `ensemble` combines.
    weights: The combination of their forecasts.
    horizon: Length of the folds that `weights: nnls` and `intervals` learn on, and of the forecasts that
        `reconcile` makes: that of the label's horizon, say. A fold is an end of a series that is forecast from the
        values before it.
    folds: Number of these folds; 3 when left out.
    reconcile: Levels of a hierarchy: their sums of series have models of their own, and all forecasts are made to
        add up.
    time: The column of times. Default: "".
    every: The distance between rows of a series: a length of time such as `1d` or `1mo`, `1t` for whole numbers.
        Default: "".
    season: The length of a season, a whole number of steps: `7d` for days, `1y` for months. Series of fewer than
        two seasons have none, nor have those that do not pass a test for it (`theta`) or that a form without it
        fits better (`ets`). There are no seasons when left out.
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("train", ('from', 'split', 'quarantined', 'optional'), locals())


def predict(
    path: str,
    *,
    model: str,
    from_: str,
    where: spec.PredictedRows | None = None,
    format: spec.ForecastFormat | None = None,
    columns: Sequence[str] | None = None,
    name: str | None = None,
    min: float | None = None,
    max: float | None = None,
    missing: spec.MissingKnown | None = None,
    season: str | None = None,
    fallback: str | None = None,
    ensemble: spec.ForecastEnsemble | None = None,
    reconcile: spec.ForecastReconcile | None = None,
    expect: spec.ForecastExpectation | None = None,
    split: str | None = None,
    quarantined: bool | None = None,
    optional: bool | None = None,
) -> spec.Sink:
    """Writes the predictions of a model of the same run for the rows of the future, after its training, and publishes
    them in one step: readers see the previous forecast or this one.

    In: a step with `future_rows`, and a `train` sink. Out, in this order: the keys of the series and the time, as
    they came from the source; `columns`; `step`, the number of steps beyond the known data; the prediction, and its
    quantiles where the model has some (`prediction_q10`, ...); `known_until`, the time up to which data were known;
    `model` and `artifact`, the ids of the model and of the findings. Rows come in order of time, then of keys.

    Before anything is published, the files are read back: the number of rows is that of series times steps, no
    series has a time twice, and no prediction is null or not finite. Quantiles of a row that cross are sorted, and
    the summary counts such rows. Otherwise the run fails, and readers keep the previous forecast. A model predicts
    no further than the horizon of the pipeline's `label`: rows beyond it are refused before the run begins. So is a
    label that a step after `future_rows` computes. A column that the label lists as `known`, and that has no value
    in rows of the future, is a fault with its counts and the last time for which it is known. So is any other
    feature that the model predicts by, and that has no value in any row of the future.

    path: The directory of the forecast.
    model: The `train` sink whose model predicts.
    from_: The step or source to write.
    where: The rows to predict. Default: "future".
    format: The format of its files. Default: "parquet".
    columns: Source columns that are written in addition to keys and time, as they were in the row of the future:
        those that `future_rows` carries on.
    name: Name of the column of predictions. Default: "prediction".
    min: The least prediction: smaller ones become it, and the summary counts them. Demand has `min: 0`.
    max: The greatest prediction: greater ones become it.
    missing: Treatment of columns that the label lists as `known`, where rows of the future have no value for them,
        and of features without a value in any row of the future: `error` when left out.
    season: Length of a season, such as `7d`; steps or rows where the horizon is a number of them. The rung `naive`
        of a deadline's ladder repeats the label of the last known season: of the same weekday, say. A series that
        has no value there gets that of a season before, up to four seasons further back, else 0. Its quantiles are
        those of the last five known seasons.
    fallback: The `train` sink whose model predicts for groups and series that `model` has no model of: those with
        few rows, or that were not there when it learned. It comes before the `fallback` of the training.
    ensemble: Models whose predictions are combined with those of `model`.
    reconcile: Forecasts of upper levels that this one is made to add up with.
    expect: Scores that `backtest` and `score` expect of the forecast; they fail where it has others.
    split: Writes the rows of this part of the split only.
    quarantined: Writes the rows that an `expect` of the step takes out by `policy: quarantine`, as they were there,
        with the columns `violated_rule` and `violating_value`. Default: false.
    optional: True if a run that would be late may leave it out (`skip_optional`): readers then see the earlier
        output. Default: false.
    """
    return sink("predict", ('from', 'split', 'quarantined', 'optional'), locals())
