"""Applies a function or an estimator to the batches of an Arrow stream, from standard input to standard output."""

import importlib
import json
import linecache
import os
import pickle
import sys
import traceback
import types

CODE_NAME = "<code of the step>"
CODE_MODULE = "forebay_step"
DRIVER_NAME = "<string>"


class ReturnedFault(Exception):
    """A result that is not as the step declares it."""

    def __init__(self, message, column=None):
        super().__init__(message)
        self.column = column


def report(error, row=None):
    """Writes a traceback to standard error, and what the engine reads as the last line."""
    if isinstance(error, ReturnedFault):
        message = str(error)
    else:
        frames = error.__traceback__
        # The frames of this file say nothing about the function.
        while frames is not None and frames.tb_frame.f_code.co_filename == DRIVER_NAME:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        first_line = (str(error).splitlines() or [""])[0]
        message = f"{type(error).__name__}: {first_line}"
    end = {"row": row, "column": getattr(error, "column", None), "error": message[:400]}
    print(f"\nforebay: {json.dumps(end)}", file=sys.stderr, flush=True)


def load(settings):
    """The function that the step names."""
    code = settings["code"]
    if code is None:
        module, names = settings["function"].split(":", 1)
        scope = vars(importlib.import_module(module))
    else:
        names = settings["function"]
        linecache.cache[CODE_NAME] = (len(code), None, code.splitlines(keepends=True), CODE_NAME)
        # Objects of its classes are pickled by the name of a module.
        module = types.ModuleType(CODE_MODULE)
        sys.modules[CODE_MODULE] = module
        scope = vars(module)
        exec(compile(code, CODE_NAME, "exec"), scope)
    first, *others = names.split(".")
    if first not in scope:
        raise ReturnedFault(f"there is no function `{first}`")
    function = scope[first]
    for name in others:
        function = getattr(function, name)
    return function


def matrix_of(batch):
    """The rows of a batch as a matrix of floats, in which null is NaN."""
    import numpy
    import pyarrow

    kind = pyarrow.float64()
    if all(str(field.type) in ("float", "halffloat") for field in batch.schema):
        kind = pyarrow.float32()
    matrix = numpy.empty((batch.num_rows, batch.num_columns), kind.to_pandas_dtype())
    for index, column in enumerate(batch.columns):
        matrix[:, index] = column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
    return matrix


def frame_of(batch, frames):
    """The rows of a batch as the function takes them."""
    if frames == "numpy":
        return matrix_of(batch)
    if frames == "pandas":
        return batch.to_pandas()
    if frames == "polars":
        import polars

        return polars.from_arrow(batch)
    return batch


def named_columns(names, columns):
    """The columns of a table by their names, which differ."""
    named = {}
    for name, column in zip(names, columns):
        if name in named:
            raise ReturnedFault(f"it returned `{name}` twice", name)
        named[name] = column
    return named


def columns_of(value, declared):
    """The columns of a result by their names."""
    import pyarrow

    if value is None:
        raise ReturnedFault("it returned nothing")
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
    if isinstance(value, (pyarrow.RecordBatch, pyarrow.Table)):
        return named_columns(value.schema.names, value.columns)
    if isinstance(value, dict):
        return value
    if hasattr(value, "columns") and hasattr(value, "items"):
        return named_columns(value.columns, (column for _, column in value.items()))
    if len(declared) == 1:
        return {declared.names[0]: value}
    kind = type(value).__name__
    raise ReturnedFault(f"it returned {kind}, which is neither a table nor a dict of columns")


def is_convertible(actual, declared):
    """True for text in another layout, and for numbers of another width."""
    import pyarrow.types as types

    def is_text(kind):
        if types.is_dictionary(kind):
            kind = kind.value_type
        names = ("string", "large_string", "string_view")
        return str(kind) in names

    if is_text(actual) and is_text(declared):
        return True
    if types.is_integer(actual):
        return types.is_integer(declared) or types.is_floating(declared)
    return types.is_floating(actual) and types.is_floating(declared)


def type_name(kind):
    """The name of a type in specs, where Arrow has another one."""
    names = {
        "halffloat": "float16",
        "float": "float32",
        "double": "float64",
        "bool": "boolean",
        "date32[day]": "date",
    }
    return names.get(str(kind), str(kind))


def array_of_values(value, kind):
    """An array of a list, or of an array of NumPy or pandas: of this kind, or of another one that does not become it.

    pyarrow alone cuts off the fractions of a list, and takes numbers for dates and flags for numbers.
    """
    import pyarrow
    import pyarrow.types as types

    if not hasattr(value, "__len__"):
        value = list(value)
    array = pyarrow.array(value, type=kind)
    is_number = types.is_integer(kind) or types.is_floating(kind)
    if not is_number and not types.is_temporal(kind):
        return array
    try:
        values = pyarrow.array(value)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        # Of several kinds, each of which becomes this one.
        return array
    if types.is_floating(values.type):
        # A safe cast: it refuses fractions.
        return values.cast(kind) if types.is_integer(kind) else values
    is_other = types.is_boolean(values.type) or (types.is_integer(values.type) and not is_number)
    return values if is_other else array


def converted(array, kind):
    """The array as another kind of text or numbers. A number that becomes infinite does not fit."""
    import pyarrow
    import pyarrow.types as types

    narrow = array.cast(kind)
    if types.is_floating(array.type):
        import pyarrow.compute as compute

        double = pyarrow.float64()
        is_end = compute.is_inf(narrow.cast(double))
        is_lost = compute.and_not(is_end, compute.is_inf(array.cast(double)))
        if compute.any(is_lost).as_py():
            raise ValueError("a value is beyond the type")
    return narrow


def array_of(value, field):
    """A column of the declared type."""
    import pyarrow

    # pyarrow takes the letters of a text, and the items of a set in any order.
    if isinstance(value, (str, bytes, set, frozenset)):
        kind = type(value).__name__
        raise ReturnedFault(f"its column `{field.name}` is a {kind}, not an array", field.name)
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
    if isinstance(value, pyarrow.ChunkedArray):
        value = pyarrow.concat_arrays(value.chunks) if value.num_chunks else value.combine_chunks()
    try:
        if not isinstance(value, pyarrow.Array):
            value = array_of_values(value, field.type)
            if isinstance(value, pyarrow.ChunkedArray):
                value = value.combine_chunks()
        if value.type == field.type:
            return value
        if is_convertible(value.type, field.type):
            return converted(value, field.type)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise ReturnedFault(
            f"its column `{field.name}` is not {type_name(field.type)}: {first_line}", field.name
        ) from None
    raise ReturnedFault(
        f"its column `{field.name}` is {type_name(value.type)}, not {type_name(field.type)}",
        field.name,
    )


def batch_of(value, declared, rows):
    """The declared columns of a result."""
    import pyarrow

    columns = columns_of(value, declared)
    for name in columns:
        if name not in declared.names:
            raise ReturnedFault(f"it returned a column `{name}` that `returns` does not declare")
    arrays = []
    for field in declared:
        if field.name not in columns:
            raise ReturnedFault(f"it returned no column `{field.name}`", field.name)
        array = array_of(columns[field.name], field)
        if isinstance(array, pyarrow.ChunkedArray):
            array = array.combine_chunks()
        if len(array) != rows:
            raise ReturnedFault(
                f"its column `{field.name}` has {len(array)} rows for a batch of {rows}", field.name
            )
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=declared)


def label_of(column, frames):
    """The labels of a batch as the estimator takes them."""
    if frames == "arrow":
        return column
    if frames == "pandas":
        return column.to_pandas()
    if frames == "polars":
        import polars

        return polars.from_arrow(column)
    return column.to_numpy(zero_copy_only=False)


def columns_of_matrix(value, declared):
    """A result of an estimator; the columns of a matrix are those that the step declares, in this order."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    if getattr(value, "ndim", 1) != 2 or hasattr(value, "columns"):
        return value
    width = value.shape[1]
    if width != len(declared):
        raise ReturnedFault(f"it returned {width} columns, and `returns` declares {len(declared)}")
    return {field.name: value[:, index] for index, field in enumerate(declared)}


def fails(result, batch):
    """True if a function of batches raises an exception for these rows."""
    try:
        result(batch)
    except Exception:
        return True
    return False


def failing_row(result, batch):
    """A row for which a function of batches fails alone; none where it fails for rows together."""
    begin = 0
    count = batch.num_rows
    while count > 1:
        half = count // 2
        if fails(result, batch.slice(begin, half)):
            count = half
        elif fails(result, batch.slice(begin + half, count - half)):
            begin += half
            count -= half
        else:
            return None
    return begin


class Fit:
    """An estimator that learns from the batches. A batch without rows asks for what it has learned."""

    def __init__(self, settings):
        import pyarrow

        self.estimator = load(settings)()
        self.frames = settings["frames"]
        self.has_label = settings["has_label"]
        self.arguments = {}
        if settings["classes"]:
            import numpy

            self.arguments["classes"] = numpy.array(settings["classes"])
        for name in ("partial_fit", settings["method"]):
            if not callable(getattr(self.estimator, name, None)):
                kind = type(self.estimator).__name__
                raise ReturnedFault(f"its estimator, of the class {kind}, has no method `{name}`")
        self.declared = pyarrow.schema([("estimator", pyarrow.binary())])

    def result(self, batch):
        """No rows, or one row with the estimator."""
        import pyarrow

        pickles = []
        if batch.num_rows == 0:
            pickles.append(pickle.dumps(self.estimator, protocol=5))
        else:
            self.learn(batch)
        column = pyarrow.array(pickles, type=pyarrow.binary())
        return pyarrow.RecordBatch.from_arrays([column], schema=self.declared)

    def learn(self, batch):
        """Learns from the rows of a batch, of which the label is the last column."""
        import pyarrow

        arguments = dict(self.arguments)
        if self.has_label:
            arguments["y"] = label_of(batch.columns[-1], self.frames)
            names = batch.schema.names[:-1]
            batch = pyarrow.RecordBatch.from_arrays(batch.columns[:-1], names=names)
        self.estimator.partial_fit(frame_of(batch, self.frames), **arguments)

    def failing_row(self, _):
        """None: the estimator would learn from rows twice."""
        return None


class Fitted:
    """An estimator that has learned, whose bytes come before the stream."""

    def __init__(self, settings, source):
        import pyarrow.ipc

        load(settings)
        estimator = pickle.loads(source.read(settings["estimator_bytes"]))
        self.function = getattr(estimator, settings["method"])
        self.frames = settings["frames"]
        self.declared = pyarrow.ipc.open_stream(bytes.fromhex(settings["returns"])).schema

    def result(self, batch):
        """The declared columns for the rows of a batch."""
        value = columns_of_matrix(self.function(frame_of(batch, self.frames)), self.declared)
        return batch_of(value, self.declared, batch.num_rows)

    def failing_row(self, batch):
        """A row for which the estimator fails alone; none where it fails for rows together."""
        return failing_row(self.result, batch)


class Step:
    """The function with what the step declares."""

    def __init__(self, settings):
        import pyarrow.ipc

        self.function = load(settings)
        self.frames = settings["frames"]
        self.is_by_series = settings["by_series"]
        self.declared = pyarrow.ipc.open_stream(bytes.fromhex(settings["returns"])).schema

    def result(self, batch):
        """The declared columns for the rows of a batch."""
        value = self.function(frame_of(batch, self.frames))
        return batch_of(value, self.declared, batch.num_rows)

    def failing_row(self, batch):
        """A row for which the function fails alone; none where it fails for rows together."""
        # A part of a series is no series.
        if self.is_by_series:
            return None
        return failing_row(self.result, batch)


def step_of(settings, source):
    """What answers the batches, by the mode of the process."""
    if settings["mode"] == "fit":
        return Fit(settings)
    if settings["mode"] == "transform":
        return Fitted(settings, source)
    return Step(settings)


def answer(step, batch, stream, output):
    """Writes the answer to a batch. False if the function failed."""
    try:
        result = step.result(batch)
    except ReturnedFault as error:
        report(error)
        return False
    except Exception as error:
        report(error, step.failing_row(batch))
        return False
    stream.write_batch(result)
    output.flush()
    return True


def main():
    """Answers each batch with one batch."""
    settings = json.loads(sys.argv[1])
    sys.argv = [""]
    # The streams are the engine's: what the function prints goes to standard error.
    source = os.fdopen(os.dup(0), "rb")
    output = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.path[:] = settings["path"] + [entry for entry in sys.path if entry]
    try:
        import pyarrow.ipc

        step = step_of(settings, source)
    except BaseException as error:
        report(error)
        return 1
    try:
        stream = pyarrow.ipc.new_stream(output, step.declared)
        for batch in pyarrow.ipc.open_stream(source):
            if not answer(step, batch, stream, output):
                return 1
        stream.close()
        output.flush()
    except BaseException as error:
        report(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
