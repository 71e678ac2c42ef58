"""Steps of Forebay as a transformer of scikit-learn.

>>> from sklearn.pipeline import make_pipeline                             # doctest: +SKIP
>>> from forebay import transforms as t                                    # doctest: +SKIP
>>> from forebay.sklearn import ForebayTransformer                         # doctest: +SKIP
>>> steps = ForebayTransformer([t.impute(["price"], with_="median")])      # doctest: +SKIP
>>> model = make_pipeline(steps, LogisticRegression()).fit(frame, label)   # doctest: +SKIP

Needs scikit-learn and pyarrow.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, TransformerMixin  # type: ignore[import-untyped]
from sklearn.utils import Tags  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]

from . import Artifact, Pipeline, _tables

if TYPE_CHECKING:
    from . import spec

#: The step of the pipeline whose columns are made.
_STEP = "features"


class ForebayTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Applies steps of a pipeline to tables: ``fit`` learns what they need, ``transform`` makes the columns.

    Takes pandas and Polars frames, pyarrow tables and two-dimensional arrays, whose columns are named ``x0``, ``x1``
    and so on. Gives an array, or a frame as ``set_output(transform="pandas")`` or ``"polars"`` wants it. A column of
    vectors of one length becomes as many columns: ``color_0``, ``color_1``. Rows come out in the order in which they
    were given, one for each: steps that drop, multiply or sort rows belong before the transformer.

    The fitted transformer holds what was learned: it can be pickled and copied.

    Parameters
    ----------
    steps : list
        The steps, as in ``do`` of a pipeline: of :mod:`forebay.transforms`, or dictionaries.
    time : str, optional
        The event-time column, for steps with windows. Each table that is transformed has the rows that they reach.
    keys : list of str, optional
        The columns that identify a series.
    memory : int or str, optional
        Memory that fitting may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads : int, optional
        Threads of fitting. Default: all of the machine's.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the table that was fitted.
    feature_names_in_ : ndarray of str
        Their names, where it had names.
    artifact_files_ : dict of str to bytes
        The artifact that was learned, by the paths of its files.
    """

    def __init__(
        self,
        steps: Sequence[spec.AnyTransform] = (),
        *,
        time: str | None = None,
        keys: Sequence[str] | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> None:
        self.steps = steps
        self.time = time
        self.keys = keys
        self.memory = memory
        self.threads = threads

    def fit(self, X: Any, y: Any = None) -> ForebayTransformer:
        """Learns what the steps need from the rows of a table.

        X : The table.
        y : Not used.
        """
        table = self._table(X, reset=True)
        source = _tables.table(table, time=self.time, keys=self.keys)
        with tempfile.TemporaryDirectory(prefix="forebay-sklearn-") as directory:
            sink = {"from": _STEP, "parquet": {"path": f"{directory}/unused"}}
            pipeline = Pipeline(
                "transformer",
                sources={"rows": source},
                steps={_STEP: {"from": "rows", "do": list(self.steps)}},
                sinks={"table": sink},  # type: ignore[dict-item]
            )
            summary = pipeline.fit(state=f"{directory}/state", memory=self.memory, threads=self.threads, progress=False)
            self.artifact_files_ = dict(_files_of(pathlib.Path(summary["artifact_path"])))
        self._load()
        return self

    def transform(self, X: Any) -> Any:
        """Makes the columns of the steps for the rows of a table.

        X : The table, with the columns that were fitted.
        """
        check_is_fitted(self)
        table = self._table(X, reset=False)
        made = self._artifact().apply(table).to_pyarrow()
        if made.num_rows != table.num_rows:
            raise ValueError(
                f"the steps made {made.num_rows} rows of {table.num_rows}: "
                "a transformer of scikit-learn gives each row once, so filter rows before it"
            )
        return _array(_flat(made))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the columns that ``transform`` gives.

        input_features : Names of the columns that were fitted; they must be those.
        """
        check_is_fitted(self)
        names = self._input_names()
        if input_features is not None and list(input_features) != names:
            raise ValueError("input_features is not equal to feature_names_in_")
        none = pyarrow.table({name: self._empty_columns[name] for name in names})
        made = self._artifact().apply(none).to_pyarrow()
        return numpy.asarray(_flat(made).column_names, dtype=object)

    def _table(self, X: Any, reset: bool) -> Any:
        """Rows as a table of Arrow, checked as scikit-learn checks them."""
        if hasattr(X, "__arrow_c_stream__"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = pyarrow.table(X)
        else:
            values = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
            names = self._input_names()
            table = pyarrow.table({name: _column(values[:, at]) for at, name in enumerate(names)})
        if reset:
            if table.num_rows == 0:
                raise ValueError("Found array with 0 sample(s): there is nothing to learn from")
            self._empty_columns = {name: table.column(name).slice(0, 0) for name in table.column_names}
        return table

    def _input_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{at}" for at in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _artifact(self) -> Artifact:
        artifact: Artifact = self._loaded
        return artifact

    def _load(self) -> None:
        """Loads the artifact from its files."""
        with tempfile.TemporaryDirectory(prefix="forebay-sklearn-") as directory:
            for name, content in self.artifact_files_.items():
                path = pathlib.Path(directory, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._loaded = Artifact(directory, _STEP)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # The loaded artifact lives in this process; its files go along.
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "artifact_files_" in state:
            self._load()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _files_of(directory: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """The files below a directory, by their paths in it."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix(), path.read_bytes()


def _column(values: Any) -> Any:
    """A column of an array. Columns of objects hold numbers or texts."""
    if values.dtype == object:
        return pyarrow.array(values.tolist(), from_pandas=True)
    return pyarrow.array(numpy.ascontiguousarray(values))


def _flat(table: Any) -> Any:
    """A table with a column for each element of its vectors."""
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns.update(_elements(name, column))
    return pyarrow.table(columns)


def _elements(name: str, column: Any) -> Iterable[tuple[str, Any]]:
    kind = column.type
    if pyarrow.types.is_fixed_size_list(kind):
        values = column.combine_chunks()
        return [(f"{name}_{at}", pyarrow.compute.list_element(values, at)) for at in range(kind.list_size)]
    if pyarrow.types.is_nested(kind):
        raise ValueError(f"`{name}` has a type that no column of an array has ({kind}): drop it, or split it")
    return [(name, column)]


def _array(table: Any) -> Any:
    """A table as an array: of numbers where all columns are numbers, else of objects."""
    columns = [column.to_numpy(zero_copy_only=False) for column in table.columns]
    if not columns:
        return numpy.empty((table.num_rows, 0))
    is_numeric = all(column.dtype.kind in "fiub" for column in columns)
    return (
        numpy.column_stack(columns) if is_numeric else numpy.column_stack([column.astype(object) for column in columns])
    )
