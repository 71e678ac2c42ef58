"""The types of a spec: dictionaries with the fields of the YAML language.

Generated from the schema of specs by `generate_types.py`: change that, not this.
"""

# ruff: noqa

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Required

__all__ = [
    "AccentPolicy",
    "AddedColumnPolicy",
    "AddedTableColumns",
    "Aggregate",
    "AggregateByTime",
    "AggregateExpression",
    "AggregateList",
    "AggregateQuantile",
    "AggregateTopK",
    "AggregateWeightedMean",
    "AggregateWeightedQuantile",
    "AnyTransform",
    "ApplyBuckets",
    "ArrowCompression",
    "ArrowSink",
    "ArrowSource",
    "AsOf",
    "AsOfDirection",
    "AsOfJoin",
    "AutoWord",
    "BagOfTokens",
    "BinStrategy",
    "BoostedModelKind",
    "BoostingConfig",
    "BoostingLoss",
    "BoundCenter",
    "BoxCoxExponent",
    "BoxCoxFit",
    "BucketHash",
    "Bucketize",
    "ByHash",
    "ByTime",
    "CalendarFact",
    "CalendarFeatures",
    "CalendarPart",
    "CastColumns",
    "CategoricalType",
    "CategoryFrequency",
    "Clip",
    "ClosedWindow",
    "ColumnScore",
    "ColumnSelector",
    "ColumnType",
    "ColumnTypes",
    "CommandFunction",
    "Compat",
    "ConditionalFilter",
    "ConstantValue",
    "CrossFit",
    "CsvDialect",
    "CsvSink",
    "CsvSource",
    "DateParts",
    "DayOfWeek",
    "DayRule",
    "Days",
    "Deadline",
    "Dedupe",
    "DedupeKeep",
    "DeltaMode",
    "DeltaSink",
    "DeltaSource",
    "DenseType",
    "DeriveColumns",
    "DetailedFeature",
    "DifferenceLengths",
    "DistanceUnit",
    "Drop",
    "Duplicates",
    "EndTail",
    "EnsembleCombination",
    "EnsembleWeights",
    "EventTable",
    "EwmStatistic",
    "EwmWindow",
    "ExpandingWindow",
    "Expect",
    "ExpectedChange",
    "ExpectedDrift",
    "ExpectedRows",
    "ExpectedValue",
    "Explode",
    "FailurePolicy",
    "FeatureColumn",
    "FeatureCross",
    "FeatureNaming",
    "Feed",
    "FeedCache",
    "FeedOrder",
    "FeedSeries",
    "FillForward",
    "FilterRows",
    "FilterScope",
    "FloatType",
    "ForecastEnsemble",
    "ForecastExpectation",
    "ForecastFeature",
    "ForecastFeatureModel",
    "ForecastFormat",
    "ForecastIntervals",
    "ForecastReconcile",
    "ForecastStrategy",
    "FormattedTime",
    "FourierTerms",
    "FrameKind",
    "FrequencyEncoding",
    "FunctionBy",
    "FutureRows",
    "FutureStart",
    "GAndH",
    "GapCompletion",
    "GapFill",
    "GapPolicy",
    "Geohash",
    "GroupFallbackKind",
    "GroupRare",
    "HalfLife",
    "HashBucket",
    "HolidayDate",
    "IdType",
    "Impute",
    "ImputeStrategy",
    "IndexShrinkage",
    "Int96Unit",
    "Interpolate",
    "IntervalMethod",
    "Join",
    "JoinCardinality",
    "JoinKind",
    "JoinStrategy",
    "JsonSink",
    "JsonSource",
    "JudgedRows",
    "KBins",
    "KeepBest",
    "KnnImpute",
    "KnotStrategy",
    "Label",
    "LateFacts",
    "LearningRateDecay",
    "Length",
    "LetterCase",
    "ListOverflow",
    "ListStatistic",
    "ListStatistics",
    "LocalTimePolicy",
    "Log1p",
    "LookAhead",
    "LossFunction",
    "MaxAbs",
    "MeanSpread",
    "MinMax",
    "MinPeriods",
    "MissingColumnPolicy",
    "MissingIndicator",
    "MissingKnown",
    "MixSource",
    "MlflowTracking",
    "ModelKind",
    "MultiHot",
    "NeighborWeights",
    "NgramUnit",
    "Ngrams",
    "NonFinite",
    "NormalQuantiles",
    "Normalize",
    "NormalizeText",
    "OnCastError",
    "OnDeadline",
    "OnNonFinite",
    "OnReadError",
    "OneHot",
    "OneHotLayout",
    "OrdinalEncoder",
    "OtherRun",
    "Param",
    "ParamType",
    "ParquetCompression",
    "ParquetSink",
    "ParquetSource",
    "PartitionPolicy",
    "PctChange",
    "PlaceDistance",
    "PolynomialProducts",
    "PooledWindow",
    "PowerMethod",
    "PowerTransform",
    "Precision",
    "PredictConfig",
    "PredictedRows",
    "PrincipalComponents",
    "Profile",
    "ProfileSeries",
    "PunctuationPolicy",
    "PythonEstimator",
    "PythonFunction",
    "QuantileRanks",
    "ReadErrorPolicy",
    "Ready",
    "ReconcileConfig",
    "ReconcileMethod",
    "RemainderPolicy",
    "RenameColumns",
    "RobustScale",
    "RobustSpread",
    "RollingWindow",
    "RowExpectation",
    "RowSample",
    "Rung",
    "SameNamePolicy",
    "SchemaPolicy",
    "SeasonalIndex",
    "SeasonalLength",
    "SeasonalPeriod",
    "SeasonalRolling",
    "SelectColumns",
    "SeriesDiff",
    "SeriesIntervals",
    "SeriesLag",
    "SeriesMethod",
    "SeriesModelConfig",
    "SeriesModelKind",
    "SeriesPeriod",
    "SeriesScale",
    "SeriesStatistic",
    "SeriesWord",
    "Serving",
    "Share",
    "Sink",
    "Source",
    "Spec",
    "SplineBasis",
    "Split",
    "Standardize",
    "Step",
    "StrayQuotes",
    "TailCenter",
    "TailSide",
    "TargetEncoding",
    "TargetOperation",
    "TargetSmoothing",
    "TargetStatistic",
    "TargetTransform",
    "Test",
    "TextCompression",
    "TextEncoding",
    "TfIdf",
    "ThetaVariant",
    "Time",
    "TimeAggregate",
    "TimeUnitPolicy",
    "TokenCounts",
    "TokenNorm",
    "TrainConfig",
    "TrainOn",
    "Training",
    "TrainingStart",
    "TypeName",
    "UnicodeForm",
    "UnknownPolicy",
    "VectorNorm",
    "Violations",
    "VocabularyEncoder",
    "VocabularyOrder",
    "Winsorize",
    "ZeroRange",
    "ZeroVariance",
]


Param = TypedDict(
    "Param",
    {
        "type": "Required[ParamType]",
        "default": "Any",
        "description": "str | None",
    },
    total=False,
)


ParamType: TypeAlias = "Literal['path', 'string', 'date', 'timestamp', 'duration', 'integer', 'number', 'boolean']"


Compat: TypeAlias = "Literal['tft', 'sklearn', 'nvtabular', 'mlforecast', 'spark']"


Source = TypedDict(
    "Source",
    {
        "time": "Time | None",
        "keys": "Sequence[str]",
        "duplicates": "Duplicates | None",
        "ready": "Ready | None",
        "lookback": "str | None",
        "days": "Days | None",
        "parquet": "ParquetSource",
        "delta": "DeltaSource",
        "arrow": "ArrowSource",
        "csv": "CsvSource",
        "json": "JsonSource",
    },
    total=False,
)


Time: TypeAlias = "str | FormattedTime"


FormattedTime = TypedDict(
    "FormattedTime",
    {
        "column": "Required[str]",
        "format": "Required[str]",
    },
    total=False,
)


Duplicates: TypeAlias = "Literal['error', 'warn', 'allow']"


Ready = TypedDict(
    "Ready",
    {
        "marker": "str | None",
        "files": "int | None",
        "min_age": "str | None",
        "timeout": "str | None",
    },
    total=False,
)


Days = TypedDict(
    "Days",
    {
        "late": "DayRule | None",
        "duplicate": "DayRule | None",
        "empty": "DayRule | None",
    },
    total=False,
)


DayRule: TypeAlias = "Literal['error', 'warn', 'allow']"


Step = TypedDict(
    "Step",
    {
        "from": "str | None",
        "union": "Sequence[str] | None",
        "sql": "str | None",
        "fit_on": "str | None",
        "allow_empty": "bool",
        "refit": "str | None",
        "data_age": "Mapping[str, str]",
        "compat": "Compat | None",
        "optional": "bool",
        "do": "Sequence[AnyTransform]",
    },
    total=False,
)


AnyTransform = TypedDict(
    "AnyTransform",
    {
        "aggregate": "Aggregate",
        "apply_buckets": "ApplyBuckets",
        "as_of_join": "AsOfJoin",
        "bag_of_tokens": "BagOfTokens",
        "bucketize": "Bucketize",
        "calendar": "CalendarFeatures",
        "cast": "CastColumns",
        "clip": "Clip",
        "command": "CommandFunction",
        "cross": "FeatureCross",
        "date_parts": "DateParts",
        "dedupe": "Dedupe",
        "derive": "DeriveColumns",
        "diff": "SeriesDiff",
        "distance": "PlaceDistance",
        "drop": "Drop",
        "estimator": "PythonEstimator",
        "ewm": "EwmWindow",
        "expanding": "ExpandingWindow",
        "expect": "Expect",
        "explode": "Explode",
        "fill_forward": "FillForward",
        "filter": "FilterRows",
        "forecast_feature": "ForecastFeature",
        "frequency_encoding": "FrequencyEncoding",
        "future_rows": "FutureRows",
        "g_and_h": "GAndH",
        "geohash": "Geohash",
        "group_rare": "GroupRare",
        "hash_bucket": "HashBucket",
        "impute": "Impute",
        "interpolate": "Interpolate",
        "join": "Join",
        "k_bins": "KBins",
        "keep_best": "KeepBest",
        "knn_impute": "KnnImpute",
        "lag": "SeriesLag",
        "list_statistics": "ListStatistics",
        "log1p": "Log1p",
        "max_abs": "MaxAbs",
        "min_max": "MinMax",
        "missing_indicator": "MissingIndicator",
        "multi_hot": "MultiHot",
        "ngrams": "Ngrams",
        "normal_quantiles": "NormalQuantiles",
        "normalize": "Normalize",
        "normalize_text": "NormalizeText",
        "one_hot": "OneHot",
        "ordinal": "OrdinalEncoder",
        "pca": "PrincipalComponents",
        "pct_change": "PctChange",
        "polynomial": "PolynomialProducts",
        "pooled": "PooledWindow",
        "power": "PowerTransform",
        "profile": "Profile",
        "python": "PythonFunction",
        "quantiles": "QuantileRanks",
        "rename": "RenameColumns",
        "robust_scale": "RobustScale",
        "rolling": "RollingWindow",
        "sample": "RowSample",
        "seasonal_index": "SeasonalIndex",
        "seasonal_rolling": "SeasonalRolling",
        "select": "SelectColumns",
        "spline": "SplineBasis",
        "standardize": "Standardize",
        "target": "TargetTransform",
        "target_encoding": "TargetEncoding",
        "tf_idf": "TfIdf",
        "violations": "Violations",
        "vocabulary": "VocabularyEncoder",
        "winsorize": "Winsorize",
    },
    total=False,
)


Label = TypedDict(
    "Label",
    {
        "column": "Required[str]",
        "horizon": "str | None",
        "known": "Sequence[str]",
    },
    total=False,
)


Split: TypeAlias = "Mapping[Literal['by_time'], ByTime] | Mapping[Literal['by_hash'], ByHash] | Mapping[str, str]"


ByTime = TypedDict(
    "ByTime",
    {
        "column": "Required[str]",
        "parts": "Required[Sequence[str]]",
        "ends": "Required[Sequence[str]]",
        "embargo": "str | None",
    },
    total=False,
)


ByHash = TypedDict(
    "ByHash",
    {
        "keys": "Required[Sequence[str]]",
        "parts": "Required[Mapping[str, float]]",
        "seed": "int",
    },
    total=False,
)


Deadline = TypedDict(
    "Deadline",
    {
        "by": "str | None",
        "ladder": "Sequence[Rung]",
        "on_deadline": "OnDeadline",
        "webhook": "str | None",
    },
    total=False,
)


Rung: TypeAlias = "Literal['skip_optional', 'reuse_states', 'last_model', 'naive']"


OnDeadline: TypeAlias = "Literal['warn', 'fail']"


Serving = TypedDict(
    "Serving",
    {
        "from": "Required[str]",
        "late": "LateFacts",
    },
    total=False,
)


LateFacts: TypeAlias = "Literal['refuse', 'replay']"


Sink = TypedDict(
    "Sink",
    {
        "from": "Required[str]",
        "split": "str | None",
        "quarantined": "bool",
        "optional": "bool",
        "parquet": "ParquetSink",
        "delta": "DeltaSink",
        "arrow": "ArrowSink",
        "csv": "CsvSink",
        "json": "JsonSink",
        "train": "Training",
        "predict": "PredictConfig",
    },
    total=False,
)


Feed = TypedDict(
    "Feed",
    {
        "from": "str | None",
        "split": "str | None",
        "mix": "Sequence[MixSource]",
        "epoch_rows": "int | None",
        "dense": "Sequence[FeatureColumn] | None",
        "categorical": "Sequence[FeatureColumn] | None",
        "label": "FeatureColumn | None",
        "weight": "FeatureColumn | None",
        "missing": "float | None",
        "missing_id": "int | None",
        "dense_type": "DenseType",
        "categorical_type": "CategoricalType",
        "non_finite": "NonFinite",
        "series": "FeedSeries | None",
        "cache": "FeedCache | None",
        "order": "FeedOrder",
        "window_rows": "int | None",
        "batch_rows": "int | None",
        "last": "RemainderPolicy | None",
    },
    total=False,
)


MixSource = TypedDict(
    "MixSource",
    {
        "from": "Required[str]",
        "split": "str | None",
        "weight": "Required[int]",
    },
    total=False,
)


FeatureColumn: TypeAlias = "str | DetailedFeature"


DetailedFeature = TypedDict(
    "DetailedFeature",
    {
        "column": "Required[str]",
        "width": "int | None",
        "missing": "float | None",
    },
    total=False,
)


DenseType: TypeAlias = "Literal['f32', 'f16', 'bf16']"


CategoricalType: TypeAlias = "Literal['i32', 'i64']"


NonFinite: TypeAlias = "Literal['fail', 'skip', 'zero']"


FeedSeries = TypedDict(
    "FeedSeries",
    {
        "steps": "Required[int]",
        "keys": "Sequence[str] | None",
        "time": "str | None",
        "within": "str | None",
    },
    total=False,
)


FeedCache = TypedDict(
    "FeedCache",
    {
        "path": "Required[str]",
        "bytes_max": "Required[int]",
    },
    total=False,
)


FeedOrder: TypeAlias = "Literal['shuffled', 'sequential', 'time']"


RemainderPolicy: TypeAlias = "Literal['drop', 'short', 'pad', 'wrap']"


Test = TypedDict(
    "Test",
    {
        "step": "Required[str]",
        "given": "Required[Mapping[str, Sequence[Mapping[str, Any]]]]",
        "types": "Mapping[str, ColumnTypes]",
        "where": "str | None",
        "expect": "Sequence[Mapping[str, Any]] | None",
        "fault": "str | None",
        "tolerance": "float",
    },
    total=False,
)


ColumnTypes: TypeAlias = "Mapping[str, ColumnType]"


ColumnType: TypeAlias = "Literal['boolean', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64', 'string', 'date', 'timestamp', 'timestamp_ns', 'timestamp_utc']"


Aggregate = TypedDict(
    "Aggregate",
    {
        "by": "Sequence[str]",
        "every": "str | None",
        "time": "str | None",
        "compute": "Required[Mapping[str, AggregateExpression]]",
        "ddof": "int",
    },
    total=False,
)


AggregateExpression: TypeAlias = "Mapping[Literal['sum'], str] | Mapping[Literal['mean'], str] | Mapping[Literal['count'], str] | Mapping[Literal['min'], str] | Mapping[Literal['max'], str] | Mapping[Literal['std'], str] | Mapping[Literal['var'], str] | Mapping[Literal['first'], str] | Mapping[Literal['last'], str] | Mapping[Literal['n_unique'], str] | Mapping[Literal['approx_n_unique'], str] | Mapping[Literal['median'], str] | Mapping[Literal['quantile'], AggregateQuantile] | Mapping[Literal['weighted_mean'], AggregateWeightedMean] | Mapping[Literal['weighted_quantile'], AggregateWeightedQuantile] | Mapping[Literal['first_by'], AggregateByTime] | Mapping[Literal['last_by'], AggregateByTime] | Mapping[Literal['top_k'], AggregateTopK] | Mapping[Literal['list'], AggregateList]"


AggregateQuantile = TypedDict(
    "AggregateQuantile",
    {
        "column": "Required[str]",
        "q": "Required[float]",
    },
    total=False,
)


AggregateWeightedMean = TypedDict(
    "AggregateWeightedMean",
    {
        "column": "Required[str]",
        "weight": "Required[str]",
    },
    total=False,
)


AggregateWeightedQuantile = TypedDict(
    "AggregateWeightedQuantile",
    {
        "column": "Required[str]",
        "weight": "Required[str]",
        "q": "Required[float]",
    },
    total=False,
)


AggregateByTime = TypedDict(
    "AggregateByTime",
    {
        "column": "Required[str]",
        "time": "Required[str]",
    },
    total=False,
)


AggregateTopK = TypedDict(
    "AggregateTopK",
    {
        "column": "Required[str]",
        "k": "Required[int]",
    },
    total=False,
)


AggregateList = TypedDict(
    "AggregateList",
    {
        "column": "Required[str]",
        "limit": "Required[int]",
        "beyond": "ListOverflow",
    },
    total=False,
)


ListOverflow: TypeAlias = "Literal['error', 'truncate']"


ApplyBuckets = TypedDict(
    "ApplyBuckets",
    {
        "columns": "Required[ColumnSelector]",
        "boundaries": "Required[Sequence[float]]",
        "suffix": "str | None",
    },
    total=False,
)


ColumnSelector: TypeAlias = "Sequence[str]"


AsOfJoin = TypedDict(
    "AsOfJoin",
    {
        "with": "Required[str]",
        "on": "Sequence[str] | None",
        "right_on": "Sequence[str] | None",
        "time": "str | None",
        "right_time": "str | None",
        "direction": "AsOfDirection",
        "tolerance": "Length | None",
        "exact": "bool",
        "known_at": "str | None",
        "columns": "ColumnSelector | None",
        "prefix": "str",
        "suffix": "str",
    },
    total=False,
)


AsOfDirection: TypeAlias = "Literal['backward', 'forward', 'nearest']"


Length: TypeAlias = "int | str"


BagOfTokens = TypedDict(
    "BagOfTokens",
    {
        "columns": "Required[ColumnSelector]",
        "buckets": "Required[int]",
        "seed": "int",
        "signed": "bool",
        "suffix": "str | None",
    },
    total=False,
)


Bucketize = TypedDict(
    "Bucketize",
    {
        "columns": "Required[ColumnSelector]",
        "q": "Required[int]",
        "by": "Sequence[str]",
        "weight": "str | None",
        "epsilon": "float | None",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


CalendarFeatures = TypedDict(
    "CalendarFeatures",
    {
        "columns": "Required[ColumnSelector]",
        "parts": "Sequence[CalendarFact]",
        "country": "str | None",
        "holidays": "Sequence[HolidayDate]",
        "weekend": "Sequence[DayOfWeek]",
        "payday": "Sequence[int]",
        "fourier": "Sequence[FourierTerms]",
        "events": "EventTable | None",
    },
    total=False,
)


CalendarFact: TypeAlias = "Literal['holiday', 'is_holiday', 'days_since_holiday', 'days_until_holiday', 'is_business_day', 'business_day_of_month', 'business_days_left', 'business_day_number', 'business_day_date', 'is_month_start', 'is_month_end', 'is_quarter_start', 'is_quarter_end', 'week_of_year', 'days_since_payday', 'days_until_payday']"


HolidayDate: TypeAlias = "str | Mapping[Literal['date', 'name'], str]"


DayOfWeek: TypeAlias = "Literal['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday']"


FourierTerms = TypedDict(
    "FourierTerms",
    {
        "period": "Required[str]",
        "order": "Required[int]",
    },
    total=False,
)


EventTable = TypedDict(
    "EventTable",
    {
        "with": "Required[str]",
        "date": "Required[str]",
        "kind": "Required[str]",
        "kinds": "Required[Sequence[str]]",
    },
    total=False,
)


CastColumns = TypedDict(
    "CastColumns",
    {
        "columns": "Required[Mapping[str, TypeName]]",
        "on_error": "OnCastError",
    },
    total=False,
)


TypeName: TypeAlias = "Literal['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64', 'string', 'boolean', 'date', 'timestamp', 'timestamp_ns', 'timestamp_utc']"


OnCastError: TypeAlias = "Literal['error', 'missing']"


Clip = TypedDict(
    "Clip",
    {
        "columns": "Required[ColumnSelector]",
        "min": "float | None",
        "max": "float | None",
        "suffix": "str | None",
    },
    total=False,
)


CommandFunction = TypedDict(
    "CommandFunction",
    {
        "run": "Required[Sequence[str]]",
        "columns": "Required[ColumnSelector]",
        "returns": "Required[Mapping[str, TypeName]]",
        "nullable": "Sequence[str]",
        "batch_rows": "int",
        "timeout_seconds": "int",
        "revision": "str | None",
        "by": "FunctionBy | None",
        "looks_ahead": "LookAhead | None",
    },
    total=False,
)


FunctionBy: TypeAlias = "SeriesWord | Sequence[str]"


SeriesWord: TypeAlias = "Literal['series']"


LookAhead: TypeAlias = "Literal['none', 'series']"


FeatureCross = TypedDict(
    "FeatureCross",
    {
        "columns": "Required[ColumnSelector]",
        "buckets": "Required[int]",
        "seed": "int",
        "name": "str | None",
    },
    total=False,
)


DateParts = TypedDict(
    "DateParts",
    {
        "columns": "Required[ColumnSelector]",
        "parts": "Required[Sequence[CalendarPart]]",
        "cyclic": "bool",
    },
    total=False,
)


CalendarPart: TypeAlias = "Literal['year', 'quarter', 'month', 'week', 'day', 'day_of_week', 'day_of_year', 'hour', 'minute', 'second', 'is_weekend']"


Dedupe = TypedDict(
    "Dedupe",
    {
        "keys": "Sequence[str]",
        "keep": "DedupeKeep",
    },
    total=False,
)


DedupeKeep: TypeAlias = "Literal['first', 'last']"


DeriveColumns: TypeAlias = "Mapping[str, str]"


SeriesDiff = TypedDict(
    "SeriesDiff",
    {
        "columns": "Required[ColumnSelector]",
        "by": "Required[Sequence[Length]]",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


GapPolicy: TypeAlias = "Literal['count_rows'] | Mapping[Literal['error'], SeriesPeriod] | Mapping[Literal['warn'], SeriesPeriod] | Mapping[Literal['complete'], GapCompletion]"


SeriesPeriod = TypedDict(
    "SeriesPeriod",
    {
        "every": "Required[Length]",
    },
    total=False,
)


GapCompletion = TypedDict(
    "GapCompletion",
    {
        "every": "Required[Length]",
        "fill": "GapFill | None",
    },
    total=False,
)


GapFill: TypeAlias = "Literal['zero', 'forward']"


FeatureNaming: TypeAlias = "Literal['default', 'mlforecast']"


FloatType: TypeAlias = "Literal['float64', 'float32']"


PlaceDistance = TypedDict(
    "PlaceDistance",
    {
        "from": "Required[Sequence[str]]",
        "to": "Required[Sequence[str]]",
        "name": "str",
        "unit": "DistanceUnit",
        "bearing": "str | None",
    },
    total=False,
)


DistanceUnit: TypeAlias = "Literal['kilometres', 'metres', 'miles', 'nautical_miles']"


Drop: TypeAlias = "ColumnSelector"


PythonEstimator = TypedDict(
    "PythonEstimator",
    {
        "function": "Required[str]",
        "columns": "Required[ColumnSelector]",
        "returns": "Required[Mapping[str, TypeName]]",
        "nullable": "Sequence[str]",
        "label": "str | None",
        "classes": "Sequence[ConstantValue]",
        "method": "str",
        "frames": "FrameKind",
        "code": "str | None",
        "path": "Sequence[str]",
        "interpreter": "str",
        "fit_rows": "int",
        "batch_rows": "int",
        "timeout_seconds": "int",
        "revision": "str | None",
    },
    total=False,
)


ConstantValue: TypeAlias = "bool | int | float | str"


FrameKind: TypeAlias = "Literal['arrow', 'pandas', 'polars', 'numpy']"


EwmWindow = TypedDict(
    "EwmWindow",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[EwmStatistic]]",
        "alpha": "float | None",
        "span": "float | None",
        "com": "float | None",
        "half_life": "HalfLife | None",
        "adjust": "bool",
        "ignore_na": "bool",
        "gap": "Length | None",
        "min_periods": "int",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


EwmStatistic: TypeAlias = "Literal['mean', 'std', 'var']"


HalfLife: TypeAlias = "float | str"


ExpandingWindow = TypedDict(
    "ExpandingWindow",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[SeriesStatistic]]",
        "gap": "Length | None",
        "min_periods": "int | None",
        "ddof": "int",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


SeriesStatistic: TypeAlias = "Literal['mean', 'sum', 'std', 'var', 'min', 'max', 'median', 'count', 'skew', 'kurtosis', 'first', 'last', 'n_unique', 'slope', 'zero_share', 'since_nonzero'] | Mapping[Literal['quantile'], float]"


Expect: TypeAlias = "Sequence[RowExpectation]"


RowExpectation = TypedDict(
    "RowExpectation",
    {
        "not_null": "Sequence[str]",
        "unique": "Sequence[str]",
        "range": "Mapping[str, Sequence[ExpectedValue | None]]",
        "in_set": "Mapping[str, Sequence[ExpectedValue]]",
        "sql": "str | None",
        "rows": "ExpectedRows | None",
        "fresh": "Mapping[str, Length]",
        "drift": "ExpectedDrift | None",
        "where": "JudgedRows",
        "policy": "FailurePolicy",
        "at_most": "Share | None",
    },
    total=False,
)


ExpectedValue: TypeAlias = "bool | int | float | str"


ExpectedRows = TypedDict(
    "ExpectedRows",
    {
        "min": "int | None",
        "max": "int | None",
        "change": "ExpectedChange | None",
    },
    total=False,
)


ExpectedChange = TypedDict(
    "ExpectedChange",
    {
        "from": "Required[OtherRun]",
        "within": "Required[Share]",
    },
    total=False,
)


OtherRun: TypeAlias = "Literal['last_run']"


Share: TypeAlias = "float | str"


ExpectedDrift = TypedDict(
    "ExpectedDrift",
    {
        "columns": "Required[Sequence[str]]",
        "of": "str | None",
        "against": "Required[str]",
        "js": "Share",
        "missing": "Share",
    },
    total=False,
)


JudgedRows: TypeAlias = "Literal['known', 'future']"


FailurePolicy: TypeAlias = "Literal['fail', 'warn', 'quarantine']"


Explode = TypedDict(
    "Explode",
    {
        "column": "Required[str]",
        "keep_empty": "bool",
    },
    total=False,
)


FillForward = TypedDict(
    "FillForward",
    {
        "columns": "Required[ColumnSelector]",
        "limit": "int | None",
        "suffix": "str | None",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
    },
    total=False,
)


FilterRows: TypeAlias = "str | ConditionalFilter"


ConditionalFilter = TypedDict(
    "ConditionalFilter",
    {
        "sql": "Required[str]",
        "when": "FilterScope",
    },
    total=False,
)


FilterScope: TypeAlias = "Literal['always', 'learning']"


ForecastFeature = TypedDict(
    "ForecastFeature",
    {
        "columns": "Required[ColumnSelector]",
        "horizon": "Required[Length]",
        "every": "Required[Length]",
        "season": "Length | None",
        "refit": "Length | None",
        "model": "ForecastFeatureModel",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "dtype": "FloatType",
    },
    total=False,
)


ForecastFeatureModel: TypeAlias = "Literal['theta', 'ets']"


FrequencyEncoding = TypedDict(
    "FrequencyEncoding",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "CategoryFrequency",
        "min_count": "int",
        "suffix": "str | None",
    },
    total=False,
)


CategoryFrequency: TypeAlias = "Literal['share', 'count']"


FutureRows = TypedDict(
    "FutureRows",
    {
        "horizon": "Required[Length]",
        "every": "Required[Length]",
        "carry": "ColumnSelector",
        "after": "FutureStart",
        "active_within": "Length | None",
        "time": "str | None",
        "keys": "Sequence[str] | None",
    },
    total=False,
)


FutureStart: TypeAlias = "Literal['data', 'series']"


GAndH = TypedDict(
    "GAndH",
    {
        "columns": "Required[ColumnSelector]",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


Geohash = TypedDict(
    "Geohash",
    {
        "place": "Required[Sequence[str]]",
        "length": "int",
        "name": "str",
    },
    total=False,
)


GroupRare = TypedDict(
    "GroupRare",
    {
        "columns": "Required[ColumnSelector]",
        "min_count": "int | None",
        "min_share": "float | None",
        "top_k": "int | None",
        "other": "str",
        "suffix": "str | None",
    },
    total=False,
)


HashBucket = TypedDict(
    "HashBucket",
    {
        "columns": "Required[ColumnSelector]",
        "buckets": "Required[int]",
        "seed": "int",
        "hash": "BucketHash",
        "suffix": "str | None",
    },
    total=False,
)


BucketHash: TypeAlias = "Literal['xxh3', 'murmur3', 'farm']"


Impute = TypedDict(
    "Impute",
    {
        "columns": "Required[ColumnSelector]",
        "with": "Required[ImputeStrategy]",
        "by": "Sequence[str]",
        "indicator": "bool",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


ImputeStrategy: TypeAlias = "Literal['mean', 'median', 'mode'] | Mapping[Literal['constant'], ConstantValue] | Mapping[Literal['end_tail'], EndTail]"


EndTail = TypedDict(
    "EndTail",
    {
        "around": "TailCenter",
        "side": "TailSide",
        "fold": "float",
    },
    total=False,
)


TailCenter: TypeAlias = "Literal['mean', 'quartiles']"


TailSide: TypeAlias = "Literal['upper', 'lower']"


Interpolate = TypedDict(
    "Interpolate",
    {
        "columns": "Required[ColumnSelector]",
        "limit": "int | None",
        "suffix": "str | None",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "dtype": "FloatType",
    },
    total=False,
)


Join = TypedDict(
    "Join",
    {
        "with": "Required[str]",
        "on": "Required[Sequence[str]]",
        "right_on": "Sequence[str] | None",
        "how": "JoinKind",
        "cardinality": "JoinCardinality",
        "columns": "ColumnSelector | None",
        "prefix": "str",
        "suffix": "str",
        "strategy": "JoinStrategy",
    },
    total=False,
)


JoinKind: TypeAlias = "Literal['left', 'inner', 'semi', 'anti']"


JoinCardinality: TypeAlias = "Literal['many_to_one', 'one_to_one', 'many_to_many']"


JoinStrategy: TypeAlias = "Literal['auto', 'lookup', 'shuffle']"


KBins = TypedDict(
    "KBins",
    {
        "columns": "Required[ColumnSelector]",
        "bins": "Required[int]",
        "strategy": "BinStrategy",
        "label": "str | None",
        "weight": "str | None",
        "min_rows": "int | None",
        "epsilon": "float | None",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


BinStrategy: TypeAlias = "Literal['uniform', 'quantile', 'k_means', 'tree']"


KeepBest = TypedDict(
    "KeepBest",
    {
        "columns": "Required[ColumnSelector]",
        "score": "ColumnScore",
        "label": "str | None",
        "count": "int | None",
        "above": "float | None",
        "correlation_max": "float | None",
    },
    total=False,
)


ColumnScore: TypeAlias = "Literal['variance', 'present', 'correlation', 'anova', 'chi_squared', 'mutual_information', 'information_value']"


KnnImpute = TypedDict(
    "KnnImpute",
    {
        "columns": "Required[ColumnSelector]",
        "neighbors": "int",
        "weights": "NeighborWeights",
        "sample_rows": "int",
        "suffix": "str | None",
    },
    total=False,
)


NeighborWeights: TypeAlias = "Literal['uniform', 'distance']"


SeriesLag = TypedDict(
    "SeriesLag",
    {
        "columns": "Required[ColumnSelector]",
        "by": "Required[Sequence[Length]]",
        "as_of": "AsOf",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
    },
    total=False,
)


AsOf: TypeAlias = "bool | str"


ListStatistics = TypedDict(
    "ListStatistics",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[ListStatistic]]",
    },
    total=False,
)


ListStatistic: TypeAlias = "Literal['mean', 'sum', 'min', 'max', 'count', 'last']"


Log1p = TypedDict(
    "Log1p",
    {
        "columns": "Required[ColumnSelector]",
        "suffix": "str | None",
    },
    total=False,
)


MaxAbs = TypedDict(
    "MaxAbs",
    {
        "columns": "Required[ColumnSelector]",
        "by": "Sequence[str]",
        "suffix": "str | None",
    },
    total=False,
)


MinMax = TypedDict(
    "MinMax",
    {
        "columns": "Required[ColumnSelector]",
        "lo": "float",
        "hi": "float",
        "by": "Sequence[str]",
        "zero_range": "ZeroRange",
        "suffix": "str | None",
    },
    total=False,
)


ZeroRange: TypeAlias = "Literal['sigmoid', 'lower', 'middle']"


MissingIndicator = TypedDict(
    "MissingIndicator",
    {
        "columns": "Required[ColumnSelector]",
        "suffix": "str",
    },
    total=False,
)


MultiHot = TypedDict(
    "MultiHot",
    {
        "columns": "Required[ColumnSelector]",
        "delimiter": "str | None",
        "categories": "Sequence[str] | None",
        "min_count": "int",
        "top_k": "int | None",
        "as": "OneHotLayout",
        "columns_max": "int | None",
        "suffix": "str | None",
    },
    total=False,
)


OneHotLayout: TypeAlias = "Literal['vector', 'columns']"


Ngrams = TypedDict(
    "Ngrams",
    {
        "columns": "Required[ColumnSelector]",
        "by": "NgramUnit",
        "min": "int",
        "max": "int",
        "min_length": "int",
        "separator": "str",
        "suffix": "str | None",
    },
    total=False,
)


NgramUnit: TypeAlias = "Literal['words', 'characters']"


NormalQuantiles = TypedDict(
    "NormalQuantiles",
    {
        "columns": "Required[ColumnSelector]",
        "q": "int",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


Normalize = TypedDict(
    "Normalize",
    {
        "columns": "Required[ColumnSelector]",
        "norm": "VectorNorm",
        "suffix": "str | None",
    },
    total=False,
)


VectorNorm: TypeAlias = "Literal['l1', 'l2', 'max']"


NormalizeText = TypedDict(
    "NormalizeText",
    {
        "columns": "Required[ColumnSelector]",
        "form": "UnicodeForm",
        "case": "LetterCase",
        "accents": "AccentPolicy",
        "punctuation": "PunctuationPolicy",
        "collapse_spaces": "bool",
        "suffix": "str | None",
    },
    total=False,
)


UnicodeForm: TypeAlias = "Literal['nfc', 'nfkc', 'keep']"


LetterCase: TypeAlias = "Literal['lower', 'keep']"


AccentPolicy: TypeAlias = "Literal['keep', 'strip']"


PunctuationPolicy: TypeAlias = "Literal['keep', 'space', 'remove']"


OneHot = TypedDict(
    "OneHot",
    {
        "columns": "Required[ColumnSelector]",
        "categories": "Sequence[str] | None",
        "min_count": "int",
        "top_k": "int | None",
        "as": "OneHotLayout",
        "columns_max": "int | None",
        "suffix": "str | None",
    },
    total=False,
)


OrdinalEncoder = TypedDict(
    "OrdinalEncoder",
    {
        "columns": "Required[ColumnSelector]",
        "categories": "Sequence[str] | None",
        "unknown": "UnknownPolicy",
        "dtype": "IdType",
        "suffix": "str | None",
    },
    total=False,
)


UnknownPolicy: TypeAlias = "Literal['error', 'missing'] | Mapping[Literal['value'], int]"


IdType: TypeAlias = "Literal['int32', 'int64']"


PrincipalComponents = TypedDict(
    "PrincipalComponents",
    {
        "columns": "Required[ColumnSelector]",
        "components": "Required[int]",
        "name": "str",
        "center": "bool",
        "whiten": "bool",
    },
    total=False,
)


PctChange = TypedDict(
    "PctChange",
    {
        "columns": "Required[ColumnSelector]",
        "by": "Required[Sequence[Length]]",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


PolynomialProducts = TypedDict(
    "PolynomialProducts",
    {
        "columns": "Required[ColumnSelector]",
        "degree": "int",
        "interactions_only": "bool",
    },
    total=False,
)


PooledWindow = TypedDict(
    "PooledWindow",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[SeriesStatistic]]",
        "by": "Sequence[str]",
        "over": "Sequence[Length]",
        "gap": "Length | None",
        "aggregate": "TimeAggregate | None",
        "closed": "ClosedWindow",
        "min_periods": "int | None",
        "ddof": "int",
        "time": "str | None",
        "dtype": "FloatType",
    },
    total=False,
)


TimeAggregate: TypeAlias = "Literal['sum', 'mean', 'min', 'max', 'count']"


ClosedWindow: TypeAlias = "Literal['right', 'left', 'both', 'neither']"


PowerTransform = TypedDict(
    "PowerTransform",
    {
        "columns": "Required[ColumnSelector]",
        "method": "PowerMethod",
        "standardize": "bool",
        "epsilon": "float",
        "suffix": "str | None",
    },
    total=False,
)


PowerMethod: TypeAlias = "Literal['yeo_johnson', 'box_cox']"


Profile = TypedDict(
    "Profile",
    {
        "columns": "ColumnSelector",
        "pairs": "ColumnSelector | None",
        "series": "ProfileSeries | None",
    },
    total=False,
)


ProfileSeries = TypedDict(
    "ProfileSeries",
    {
        "demand": "str | None",
    },
    total=False,
)


PythonFunction = TypedDict(
    "PythonFunction",
    {
        "function": "Required[str]",
        "columns": "Required[ColumnSelector]",
        "returns": "Required[Mapping[str, TypeName]]",
        "nullable": "Sequence[str]",
        "frames": "FrameKind",
        "code": "str | None",
        "path": "Sequence[str]",
        "interpreter": "str",
        "batch_rows": "int",
        "timeout_seconds": "int",
        "revision": "str | None",
        "by": "FunctionBy | None",
        "looks_ahead": "LookAhead | None",
    },
    total=False,
)


QuantileRanks = TypedDict(
    "QuantileRanks",
    {
        "columns": "Required[ColumnSelector]",
        "q": "int",
        "weight": "str | None",
        "epsilon": "float | None",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


RenameColumns: TypeAlias = "Mapping[str, str]"


RobustScale = TypedDict(
    "RobustScale",
    {
        "columns": "Required[ColumnSelector]",
        "spread": "RobustSpread",
        "lower": "float",
        "upper": "float",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


RobustSpread: TypeAlias = "Literal['quantiles', 'mad']"


RollingWindow = TypedDict(
    "RollingWindow",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[SeriesStatistic]]",
        "over": "Required[Sequence[Length]]",
        "gap": "Length | None",
        "closed": "ClosedWindow",
        "min_periods": "MinPeriods | None",
        "ddof": "int",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


MinPeriods: TypeAlias = "int | str"


RowSample = TypedDict(
    "RowSample",
    {
        "share": "Required[float]",
        "by": "Sequence[str] | None",
        "of": "str | None",
        "weight": "str | None",
        "seed": "int",
        "when": "FilterScope",
    },
    total=False,
)


SeasonalIndex = TypedDict(
    "SeasonalIndex",
    {
        "columns": "Required[ColumnSelector]",
        "period": "Required[SeasonalPeriod]",
        "gap": "Length | None",
        "min_periods": "int",
        "shrink": "IndexShrinkage | None",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "dtype": "FloatType",
    },
    total=False,
)


SeasonalPeriod: TypeAlias = "Literal['day_of_week', 'day_of_month', 'day_of_year', 'week_of_year', 'month', 'hour', 'quarter'] | Mapping[Literal['expression'], str]"


IndexShrinkage = TypedDict(
    "IndexShrinkage",
    {
        "strength": "Required[float]",
        "parent": "Sequence[str] | None",
    },
    total=False,
)


SeasonalRolling = TypedDict(
    "SeasonalRolling",
    {
        "columns": "Required[ColumnSelector]",
        "compute": "Required[Sequence[SeriesStatistic]]",
        "season": "Required[Length]",
        "over": "Required[Sequence[int]]",
        "gap": "Length | None",
        "min_periods": "MinPeriods | None",
        "ddof": "int",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
        "names": "FeatureNaming",
        "dtype": "FloatType",
    },
    total=False,
)


SelectColumns: TypeAlias = "ColumnSelector"


SplineBasis = TypedDict(
    "SplineBasis",
    {
        "columns": "Required[ColumnSelector]",
        "knots": "int",
        "degree": "int",
        "strategy": "KnotStrategy",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


KnotStrategy: TypeAlias = "Literal['uniform', 'quantile']"


Standardize = TypedDict(
    "Standardize",
    {
        "columns": "Required[ColumnSelector]",
        "by": "Sequence[str]",
        "spread": "MeanSpread",
        "ddof": "int",
        "zero_variance": "ZeroVariance",
        "suffix": "str | None",
    },
    total=False,
)


MeanSpread: TypeAlias = "Literal['deviation', 'range']"


ZeroVariance: TypeAlias = "Literal['centre', 'zero']"


TargetTransform = TypedDict(
    "TargetTransform",
    {
        "column": "Required[str]",
        "do": "Required[Sequence[TargetOperation]]",
        "time": "str | None",
        "keys": "Sequence[str] | None",
        "gaps": "GapPolicy | None",
    },
    total=False,
)


TargetOperation: TypeAlias = "Literal['log1p'] | Mapping[Literal['power'], float] | Mapping[Literal['box_cox'], BoxCoxExponent] | Mapping[Literal['difference'], DifferenceLengths] | Mapping[Literal['seasonal_difference'], SeasonalLength] | Mapping[Literal['scale'], SeriesScale]"


BoxCoxExponent: TypeAlias = "float | BoxCoxFit"


BoxCoxFit: TypeAlias = "Literal['likelihood'] | Mapping[Literal['guerrero'], int]"


DifferenceLengths: TypeAlias = "AutoWord | Mapping[Literal['auto'], int] | Length | Sequence[Length]"


AutoWord: TypeAlias = "Literal['auto']"


SeasonalLength: TypeAlias = "Mapping[Literal['auto'], int] | Length"


SeriesScale: TypeAlias = "Literal['standard', 'min_max', 'robust']"


TargetEncoding = TypedDict(
    "TargetEncoding",
    {
        "columns": "Required[ColumnSelector]",
        "label": "Required[str]",
        "compute": "TargetStatistic",
        "cross_fit": "CrossFit",
        "smoothing": "TargetSmoothing",
        "folds": "int | None",
        "fold_by": "Sequence[str] | None",
        "gap": "Length | None",
        "time": "str | None",
        "dtype": "FloatType",
        "suffix": "str | None",
    },
    total=False,
)


TargetStatistic: TypeAlias = "Literal['mean', 'woe']"


CrossFit: TypeAlias = "Literal['folds', 'time']"


TargetSmoothing: TypeAlias = "float | AutoWord"


TfIdf = TypedDict(
    "TfIdf",
    {
        "columns": "Required[ColumnSelector]",
        "min_count": "int",
        "top_k": "int | None",
        "counts": "TokenCounts",
        "smooth": "bool",
        "norm": "TokenNorm",
        "suffix": "str | None",
    },
    total=False,
)


TokenCounts: TypeAlias = "Literal['count', 'logarithm', 'share']"


TokenNorm: TypeAlias = "Literal['l2', 'l1', 'none']"


Violations: TypeAlias = "Sequence[RowExpectation]"


VocabularyEncoder = TypedDict(
    "VocabularyEncoder",
    {
        "columns": "Required[ColumnSelector]",
        "joint": "bool",
        "min_count": "int",
        "top_k": "int | None",
        "reserved": "Sequence[str]",
        "oov_buckets": "int",
        "default": "int",
        "order": "VocabularyOrder",
        "stable": "bool",
        "dtype": "IdType",
        "suffix": "str | None",
    },
    total=False,
)


VocabularyOrder: TypeAlias = "Literal['count_then_reverse', 'count_then_value', 'value']"


Winsorize = TypedDict(
    "Winsorize",
    {
        "columns": "Required[ColumnSelector]",
        "around": "BoundCenter",
        "lower": "float",
        "upper": "float",
        "fold": "float | None",
        "epsilon": "float",
        "exact": "bool",
        "suffix": "str | None",
    },
    total=False,
)


BoundCenter: TypeAlias = "Literal['quantiles', 'mean', 'median']"


ParquetSource = TypedDict(
    "ParquetSource",
    {
        "path": "str | None",
        "paths": "Sequence[str]",
        "columns": "Sequence[str] | None",
        "schema": "SchemaPolicy",
        "partitions": "PartitionPolicy",
        "int96": "Int96Unit",
        "formats": "Mapping[str, str]",
        "on_error": "OnReadError",
    },
    total=False,
)


SchemaPolicy = TypedDict(
    "SchemaPolicy",
    {
        "widening": "bool",
        "times": "TimeUnitPolicy",
        "local_times": "LocalTimePolicy",
        "nullable": "bool",
        "missing": "MissingColumnPolicy",
        "added": "AddedColumnPolicy",
    },
    total=False,
)


TimeUnitPolicy: TypeAlias = "Literal['finest', 'microseconds']"


LocalTimePolicy: TypeAlias = "Literal['keep', 'utc']"


MissingColumnPolicy: TypeAlias = "Literal['fault', 'null']"


AddedColumnPolicy: TypeAlias = "Literal['fault', 'ignore', 'include', 'null']"


PartitionPolicy: TypeAlias = "Literal['auto', 'none']"


Int96Unit: TypeAlias = "Literal['microseconds', 'nanoseconds']"


OnReadError: TypeAlias = "ReadErrorPolicy | Mapping[str, ReadErrorPolicy]"


ReadErrorPolicy: TypeAlias = "Literal['error', 'missing']"


DeltaSource = TypedDict(
    "DeltaSource",
    {
        "path": "Required[str]",
        "version": "int | None",
        "timestamp": "str | None",
        "columns": "Sequence[str] | None",
        "allow_outside": "Sequence[str]",
        "formats": "Mapping[str, str]",
        "on_error": "OnReadError",
    },
    total=False,
)


ArrowSource = TypedDict(
    "ArrowSource",
    {
        "path": "str | None",
        "paths": "Sequence[str]",
        "schema": "SchemaPolicy",
        "partitions": "PartitionPolicy",
        "formats": "Mapping[str, str]",
        "on_error": "OnReadError",
    },
    total=False,
)


CsvSource = TypedDict(
    "CsvSource",
    {
        "path": "str | None",
        "paths": "Sequence[str]",
        "columns": "ColumnTypes | None",
        "dialect": "CsvDialect",
        "delimiter": "str | None",
        "quote": "str | None",
        "escape": "str | None",
        "stray_quotes": "StrayQuotes",
        "comment": "str | None",
        "skip_lines": "int",
        "encoding": "TextEncoding",
        "decimal": "str",
        "thousands": "str | None",
        "formats": "Mapping[str, str]",
        "header": "bool",
        "same_names": "SameNamePolicy",
        "nulls": "Sequence[str] | None",
        "quoted_nulls": "bool | None",
        "on_error": "OnReadError",
        "infer_rows": "int",
        "missing": "MissingColumnPolicy",
        "added": "AddedColumnPolicy",
        "partitions": "PartitionPolicy",
    },
    total=False,
)


CsvDialect: TypeAlias = "Literal['standard', 'excel', 'mysql', 'pandas', 'spark']"


StrayQuotes: TypeAlias = "Literal['fault', 'text']"


TextEncoding: TypeAlias = "Literal['utf-8', 'latin-1', 'windows-1252', 'utf-16']"


SameNamePolicy: TypeAlias = "Literal['fault', 'number']"


JsonSource = TypedDict(
    "JsonSource",
    {
        "path": "str | None",
        "paths": "Sequence[str]",
        "columns": "ColumnTypes | None",
        "infer_rows": "int",
        "added": "AddedColumnPolicy",
        "formats": "Mapping[str, str]",
        "on_error": "OnReadError",
        "partitions": "PartitionPolicy",
    },
    total=False,
)


ParquetSink = TypedDict(
    "ParquetSink",
    {
        "path": "Required[str]",
        "partition_by": "Sequence[str]",
        "sort_by": "Sequence[str]",
        "file_bytes_target": "int",
        "group_rows_max": "int",
        "compression": "ParquetCompression",
    },
    total=False,
)


ParquetCompression: TypeAlias = "Literal['snappy', 'zstd', 'lz4', 'none']"


DeltaSink = TypedDict(
    "DeltaSink",
    {
        "path": "Required[str]",
        "mode": "DeltaMode",
        "partition_by": "Sequence[str]",
        "added_columns": "AddedTableColumns",
        "sort_by": "Sequence[str]",
        "file_bytes_target": "int",
        "compact_below_bytes": "int | None",
        "group_rows_max": "int",
        "compression": "ParquetCompression",
    },
    total=False,
)


DeltaMode: TypeAlias = "Literal['overwrite', 'append']"


AddedTableColumns: TypeAlias = "Literal['refuse', 'add']"


ArrowSink = TypedDict(
    "ArrowSink",
    {
        "path": "Required[str]",
        "partition_by": "Sequence[str]",
        "sort_by": "Sequence[str]",
        "file_bytes_target": "int",
        "group_rows_max": "int",
        "compression": "ArrowCompression",
    },
    total=False,
)


ArrowCompression: TypeAlias = "Literal['none', 'lz4', 'zstd']"


CsvSink = TypedDict(
    "CsvSink",
    {
        "path": "Required[str]",
        "partition_by": "Sequence[str]",
        "file_bytes_target": "int",
        "group_rows_max": "int",
        "null_text": "str",
        "compression": "TextCompression",
    },
    total=False,
)


TextCompression: TypeAlias = "Literal['none', 'gzip', 'zstd']"


JsonSink = TypedDict(
    "JsonSink",
    {
        "path": "Required[str]",
        "partition_by": "Sequence[str]",
        "sort_by": "Sequence[str]",
        "file_bytes_target": "int",
        "group_rows_max": "int",
        "compression": "TextCompression",
    },
    total=False,
)


Training: TypeAlias = "TrainConfig | BoostingConfig | SeriesModelConfig"


TrainConfig = TypedDict(
    "TrainConfig",
    {
        "path": "str | None",
        "model": "ModelKind",
        "hidden": "Sequence[int] | None",
        "loss": "LossFunction | None",
        "label": "str | None",
        "dense": "Sequence[str] | None",
        "categorical": "Sequence[str] | None",
        "embeddings": "Mapping[str, int]",
        "weight": "str | None",
        "missing": "float | None",
        "non_finite": "OnNonFinite",
        "validation": "str | None",
        "refit": "str | None",
        "start": "TrainingStart",
        "replay": "float | None",
        "epochs": "int | None",
        "batch_rows": "int | None",
        "window_rows": "int | None",
        "cache": "FeedCache | None",
        "seed": "int",
        "learning_rate": "float | None",
        "warmup_steps": "int",
        "decay": "LearningRateDecay",
        "weight_decay": "float",
        "clip_norm": "float | None",
        "patience_epochs": "int | None",
        "checkpoint_steps": "int",
        "device": "TrainOn",
        "precision": "Precision | None",
        "mlflow": "MlflowTracking | None",
    },
    total=False,
)


ModelKind: TypeAlias = "Literal['linear', 'logistic', 'mlp']"


LossFunction: TypeAlias = "Literal['squared_error', 'logistic', 'softmax']"


OnNonFinite: TypeAlias = "Literal['fail', 'skip', 'zero']"


TrainingStart: TypeAlias = "Literal['nothing', 'last']"


LearningRateDecay: TypeAlias = "Literal['cosine', 'constant']"


TrainOn: TypeAlias = "str"


Precision: TypeAlias = "Literal['f32', 'bf16']"


MlflowTracking = TypedDict(
    "MlflowTracking",
    {
        "uri": "str | None",
        "experiment": "str | None",
    },
    total=False,
)


BoostingConfig = TypedDict(
    "BoostingConfig",
    {
        "path": "str | None",
        "model": "BoostedModelKind",
        "strategy": "ForecastStrategy",
        "by": "Sequence[str]",
        "min_rows": "int | None",
        "fallback": "GroupFallbackKind",
        "sample_rows": "int | None",
        "loss": "BoostingLoss",
        "quantiles": "Sequence[float]",
        "intervals": "ForecastIntervals | None",
        "quantile": "float | None",
        "tweedie_power": "float | None",
        "label": "str | None",
        "dense": "Sequence[str] | None",
        "categorical": "Sequence[str] | None",
        "weight": "str | None",
        "non_finite": "OnNonFinite",
        "validation": "str | None",
        "refit": "str | None",
        "start": "TrainingStart",
        "replay": "float | None",
        "added_rounds": "int | None",
        "rounds": "int",
        "learning_rate": "float",
        "leaves": "int",
        "min_leaf_rows": "int",
        "l2": "float",
        "patience_rounds": "int",
        "cache": "FeedCache | None",
        "mlflow": "MlflowTracking | None",
    },
    total=False,
)


BoostedModelKind: TypeAlias = "Literal['gbdt']"


ForecastStrategy: TypeAlias = "Literal['direct', 'per_step', 'recursive']"


GroupFallbackKind: TypeAlias = "Literal['all_rows', 'parent'] | Mapping[Literal['column'], str]"


BoostingLoss: TypeAlias = "Literal['squared_error', 'absolute_error', 'poisson', 'tweedie', 'quantile', 'logistic', 'softmax']"


ForecastIntervals = TypedDict(
    "ForecastIntervals",
    {
        "levels": "Required[Sequence[float]]",
        "by": "IntervalMethod",
        "scale": "str | None",
    },
    total=False,
)


IntervalMethod: TypeAlias = "Literal['conformal']"


SeriesModelConfig = TypedDict(
    "SeriesModelConfig",
    {
        "path": "str | None",
        "model": "SeriesModelKind",
        "variant": "ThetaVariant",
        "of": "Sequence[SeriesMethod]",
        "weights": "EnsembleWeights",
        "horizon": "str | None",
        "folds": "int | None",
        "intervals": "SeriesIntervals | None",
        "reconcile": "ReconcileConfig | None",
        "by": "Sequence[str]",
        "time": "str",
        "every": "str",
        "season": "str | None",
        "label": "str | None",
        "validation": "str | None",
    },
    total=False,
)


SeriesModelKind: TypeAlias = "Literal['theta', 'ets', 'ensemble']"


ThetaVariant: TypeAlias = "Literal['standard', 'optimized', 'dynamic', 'dynamic_optimized', 'auto']"


SeriesMethod: TypeAlias = "Literal['theta', 'ets', 'seasonal_naive']"


EnsembleWeights: TypeAlias = "Literal['mean', 'median', 'nnls']"


SeriesIntervals = TypedDict(
    "SeriesIntervals",
    {
        "levels": "Required[Sequence[float]]",
    },
    total=False,
)


ReconcileConfig = TypedDict(
    "ReconcileConfig",
    {
        "by": "Required[Sequence[Sequence[str]]]",
        "method": "ReconcileMethod",
    },
    total=False,
)


ReconcileMethod: TypeAlias = "Literal['bottom_up', 'ols', 'mint_shrink']"


PredictConfig = TypedDict(
    "PredictConfig",
    {
        "model": "Required[str]",
        "where": "PredictedRows",
        "path": "Required[str]",
        "format": "ForecastFormat",
        "columns": "Sequence[str]",
        "name": "str",
        "min": "float | None",
        "max": "float | None",
        "missing": "MissingKnown",
        "season": "str | None",
        "fallback": "str | None",
        "ensemble": "ForecastEnsemble | None",
        "reconcile": "ForecastReconcile | None",
        "expect": "ForecastExpectation | None",
    },
    total=False,
)


PredictedRows: TypeAlias = "Literal['future']"


ForecastFormat: TypeAlias = "Literal['parquet', 'csv', 'json']"


MissingKnown: TypeAlias = "Literal['error', 'accept']"


ForecastEnsemble = TypedDict(
    "ForecastEnsemble",
    {
        "with": "Required[Sequence[str]]",
        "combine": "EnsembleCombination",
        "weights": "Sequence[float]",
        "folds": "int | None",
        "every": "str | None",
    },
    total=False,
)


EnsembleCombination: TypeAlias = "Literal['mean', 'median', 'nnls']"


ForecastReconcile = TypedDict(
    "ForecastReconcile",
    {
        "with": "Required[Sequence[str]]",
        "method": "ReconcileMethod",
        "folds": "int | None",
        "every": "str | None",
    },
    total=False,
)


ForecastExpectation = TypedDict(
    "ForecastExpectation",
    {
        "skill": "float | None",
        "wmape": "float | None",
    },
    total=False,
)


Spec = TypedDict(
    "Spec",
    {
        "version": "Required[Literal[1]]",
        "name": "Required[str]",
        "params": "Mapping[str, Param]",
        "compat": "Compat",
        "sources": "Required[Mapping[str, Source]]",
        "steps": "Mapping[str, Step]",
        "label": "Label",
        "split": "Split",
        "deadline": "Deadline",
        "serving": "Serving",
        "sinks": "Mapping[str, Sink]",
        "feed": "Feed",
        "tests": "Mapping[str, Test]",
    },
    total=False,
)
