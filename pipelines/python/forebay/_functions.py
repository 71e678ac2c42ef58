"""Functions of a program as steps: their module, or their source where no other process can import it."""

from __future__ import annotations

import dis
import inspect
import os
import shutil
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._arguments import COUNT_MAX, mapping, optional_count, plain, wrong
from ._made import made

if TYPE_CHECKING:
    from . import spec

#: Constants whose text is Python again.
LITERALS = (bool, int, float, str, bytes, type(None))


def map_batches(
    function: Callable[[Any], Any],
    *,
    columns: spec.ColumnSelector = ("*",),
    returns: Mapping[str, spec.TypeName],
    nullable: Sequence[str] | None = None,
    frames: spec.FrameKind | None = None,
    batch_rows: int | None = None,
    timeout_seconds: int | None = None,
    interpreter: str | None = None,
    revision: str | None = None,
    by: spec.FunctionBy | None = None,
    looks_ahead: spec.LookAhead | None = None,
) -> spec.AnyTransform:
    """Columns that a function of this program computes, row by row or series by series: the step of :func:`python`.

    >>> def revenue(batch):
    ...     return batch["qty"] * batch["price"]
    >>> step = map_batches(revenue, columns=["qty", "price"], returns={"revenue": "float64"}, frames="polars")

    With ``by="series"`` the function is called once for each series of the source, with all rows in order of time, as
    in pandas' ``groupby(keys).apply``; with ``by=["store"]``, once for each value of these columns.

    >>> def smooth(frame):
    ...     return frame["qty"].ewm(halflife=7).mean()
    >>> step = map_batches(smooth, columns=["qty"], returns={"level": "float64"}, frames="pandas", by="series")

    A function of a module is named by it, and its directory becomes the ``path`` of the step. A function of a notebook
    or of the script that runs is sent as its source, with what it uses: modules, functions and classes of modules,
    other functions of the script, and constants. Its modules are found beside the script (for a notebook, in the
    working directory) and in ``PYTHONPATH``. Such a function has no default values, no decorators and no variables of a
    function around it; a lambda is refused.

    function: Takes a batch of rows, and returns a table or a dict of the declared columns, or one column alone.
    columns: The columns that the function receives. Default: all.
    returns: The columns that it returns, with their types.
    nullable: Returned columns that may be null.
    frames: The kind of tables that the function receives: ``arrow``, ``pandas`` or ``polars``. Default: ``arrow``.
    batch_rows: Most rows of a batch. Default: 16384. A series is one batch, of any number of rows.
    timeout_seconds: Most seconds for the answer to a batch. Default: 600.
    interpreter: The program that runs Python. Default: ``python3`` where that is the one that runs this program, else
        the path of the latter.
    revision: Text that changes the id of the step, such as the digest of a file with the versions of packages.
    by: The rows that the function receives at once: ``"series"``, or a list of columns. Default: any batches of rows.
    looks_ahead: ``"none"`` where each value is computed from rows of its series up to its own; ``"series"``, the
        default, where it may be computed from all of them. With ``by`` only.
    """
    located = _located(function, "python")
    mapping("returns", returns)
    fields = {
        **located,
        "columns": plain("columns", columns),
        "returns": plain("returns", returns),
        "nullable": plain("nullable", nullable),
        "frames": frames,
        "batch_rows": optional_count("batch_rows", batch_rows, 1),
        "timeout_seconds": optional_count("timeout_seconds", timeout_seconds, 1, COUNT_MAX),
        "interpreter": interpreter or _interpreter(),
        "revision": revision,
        "by": plain("by", by),
        "looks_ahead": looks_ahead,
    }
    return made("python", fields)


def fit_estimator(
    function: Callable[[], Any],
    *,
    columns: spec.ColumnSelector,
    returns: Mapping[str, spec.TypeName],
    nullable: Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[bool | int | float | str] | None = None,
    method: str | None = None,
    frames: spec.FrameKind | None = None,
    fit_rows: int | None = None,
    batch_rows: int | None = None,
    timeout_seconds: int | None = None,
    interpreter: str | None = None,
    revision: str | None = None,
) -> spec.AnyTransform:
    """Columns of an estimator that has learned from the rows (``partial_fit``): the step of :func:`estimator`.

    >>> def scaler():
    ...     from sklearn.preprocessing import StandardScaler
    ...     return StandardScaler()
    >>> step = fit_estimator(scaler, columns=["qty", "price"], returns={"qty": "float64", "price": "float64"})

    The function is named or sent as its source, as that of :func:`map_batches`.

    function: Makes the estimator.
    columns: The columns that the estimator receives.
    returns: The columns that it returns, with their types, in its order.
    nullable: Returned columns that may be null.
    label: The column of labels to learn from.
    classes: All values of the label, for a classifier.
    method: The method that computes the columns. Default: ``transform``.
    frames: The kind of tables that the estimator receives: ``numpy``, ``arrow``, ``pandas`` or ``polars``. Default:
        ``numpy``.
    fit_rows: Rows of each batch that it learns from; the last one has half as many to one and a half times as many.
        Default: 16384.
    batch_rows: Most rows of a batch that it transforms. Default: 16384.
    timeout_seconds: Most seconds for the answer to a batch. Default: 600.
    interpreter: The program that runs Python. Default: as of :func:`map_batches`.
    revision: Text that changes the id of the step, such as the digest of a file with the versions of packages.
    """
    located = _located(function, "estimator")
    mapping("returns", returns)
    fields = {
        **located,
        "columns": plain("columns", columns),
        "returns": plain("returns", returns),
        "nullable": plain("nullable", nullable),
        "label": label,
        "classes": plain("classes", classes),
        "method": method,
        "frames": frames,
        "fit_rows": optional_count("fit_rows", fit_rows, 1),
        "batch_rows": optional_count("batch_rows", batch_rows, 1),
        "timeout_seconds": optional_count("timeout_seconds", timeout_seconds, 1, COUNT_MAX),
        "interpreter": interpreter or _interpreter(),
        "revision": revision,
    }
    return made("estimator", fields)


def _located(function: object, step: str) -> dict[str, Any]:
    """The fields of a step by which its processes find a function."""
    if not isinstance(function, types.FunctionType):
        raise wrong("function", function, "a function", f"write it with `def`, or name it with `t.{step}`")
    return _in_module(function) or _as_source(function)


def _interpreter() -> str | None:
    """The path of the Python that runs, unless it is the `python3` of `PATH`: ids of steps do not name a path then."""
    found = shutil.which("python3")
    if found is None or os.path.dirname(os.path.abspath(found)) != os.path.dirname(sys.executable):
        return sys.executable or None
    return None


def _in_module(function: types.FunctionType) -> dict[str, Any] | None:
    """The name of a function that another process imports, and the directory of its module."""
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if function.__module__ == "__main__" or not file or _attribute(module, function.__qualname__) is not function:
        return None
    directory = os.path.dirname(os.path.abspath(file))
    levels = function.__module__.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(levels):
        directory = os.path.dirname(directory)
    return {"function": f"{function.__module__}:{function.__qualname__}", **_path(directory)}


def _as_source(function: types.FunctionType) -> dict[str, Any]:
    """The source of a function. Modules that it uses may lie beside the script that runs."""
    located = {"function": function.__name__, "code": _source(function)}
    script = getattr(sys.modules["__main__"], "__file__", None)
    file = os.path.abspath(function.__code__.co_filename)
    if script is not None and file == os.path.abspath(script):
        return {**located, **_path(os.path.dirname(file))}
    return located


def _path(directory: str) -> dict[str, list[str]]:
    """The field `path` of a step whose modules lie in a directory; none for the working directory, the default.

    Workers find a relative one in their own working directory.
    """
    relative = os.path.relpath(directory)
    if relative == os.curdir:
        return {}
    is_below = relative != os.pardir and not relative.startswith(os.pardir + os.sep)
    return {"path": [relative if is_below else directory]}


def _attribute(module: object, names: str) -> object:
    """What a name with dots is in a module; None where it is nothing."""
    value = module
    for name in names.split("."):
        value = getattr(value, name, None)
    return value


def _source(function: types.FunctionType) -> str:
    """Code that defines a function, and before it all that it uses."""
    parts: dict[str, str] = {}
    _add_function(function, parts)
    # Annotations need no names then.
    return "from __future__ import annotations\n\n" + "\n".join(parts.values())


def _add_function(function: types.FunctionType, parts: dict[str, str]) -> None:
    """Adds the source of a function behind that of all that it uses; `parts` are by name."""
    name = function.__name__
    if function.__closure__:
        used = ", ".join(f"`{variable}`" for variable in function.__code__.co_freevars)
        hint = "define it at the top of a module, and give it constants of the module"
        raise wrong("function", name, f"a function of its own: it uses {used} of the function around it", hint)
    if function.__defaults__ or function.__kwdefaults__:
        raise wrong("function", name, "a function without default values", "write them into its body")
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise wrong("function", name, "a function with a source", "define it in a file") from None
    if not text.startswith("def "):
        raise wrong("function", name, "a plain `def`", "write it without a lambda and without decorators")
    # A function that calls itself ends here.
    parts[name] = ""
    for used in sorted(set(_global_names(function.__code__)) & function.__globals__.keys()):
        value = function.__globals__[used]
        if isinstance(value, types.ModuleType):
            _add_module(used, value, _names(function.__code__), parts)
        elif used not in parts:
            _add_global(used, value, parts)
    parts.pop(name)
    parts[name] = text


def _add_module(name: str, module: types.ModuleType, names: set[str], parts: dict[str, str]) -> None:
    """Adds the import of a module for a function that uses these names.

    A package has the modules in it as attributes only once something imports them.
    """
    parts[name] = f"import {module.__name__} as {name}\n"
    prefix = f"{module.__name__}."
    for inner in sorted(sys.modules):
        if inner.startswith(prefix) and names.issuperset(inner.removeprefix(prefix).split(".")):
            parts[f"import {inner}"] = f"import {inner} as _module\n"


def _add_global(name: str, value: Any, parts: dict[str, str]) -> None:
    """Adds the code that gives a global its value."""
    module, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    is_imported = isinstance(module, str) and isinstance(inner, str) and module != "__main__" and "." not in inner
    if is_imported and inner and _attribute(sys.modules.get(str(module)), inner) is value:
        parts[name] = f"from {module} import {inner} as {name}\n"
    elif isinstance(value, types.FunctionType) and value.__name__ == name:
        _add_function(value, parts)
    elif _is_literal(value):
        parts[name] = f"{name} = {value!r}\n"
    else:
        hint = "move the function into a module of its own, which the step then imports"
        raise wrong("function", name, "a module, a function or a constant that its source can carry", hint)


def _is_literal(value: Any) -> bool:
    """True where the text of a value is Python again."""
    if type(value) in (tuple, list):
        return all(map(_is_literal, value))
    if type(value) is dict:
        return all(map(_is_literal, [*value.keys(), *value.values()]))
    # The text of infinity and of NaN is a name.
    is_number = type(value) is not float or value - value == 0.0
    return type(value) in LITERALS and is_number


def _names(code: types.CodeType) -> set[str]:
    """The names of globals and attributes that code and functions in it use."""
    return {name for part in _codes(code) for name in part.co_names}


def _global_names(code: types.CodeType) -> Iterator[str]:
    """The global names that code and functions in it read."""
    for part in _codes(code):
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield instruction.argval


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
