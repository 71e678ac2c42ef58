"""What is done with a pipeline: each function is a command of the program, and a method of :class:`Pipeline`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments, _forebay
from ._arguments import Interval, Moment, Path, Workers
from ._launch import Launcher
from ._launch.follow import launched
from ._progress import Listener, listener
from ._summary import Explanation, Summary

if TYPE_CHECKING:
    from typing import TypeAlias

    from ._pipeline import Pipeline

    #: A pipeline, or the path of a spec.
    Spec: TypeAlias = Pipeline | Path


def spec_source(spec: Spec, params: Mapping[str, object] | None, machine: Mapping[str, Any]) -> dict[str, Any]:
    """A spec for the compiled half. Tables among its sources are kept where the machine has its state."""
    from ._pipeline import Pipeline

    values = _arguments.params(params)
    if isinstance(spec, Pipeline):
        text = spec._text(machine) if spec.path is None else None
        return {"file": spec.origin, "text": text, "params": values}
    return {"file": _arguments.path("spec", spec), "text": None, "params": values}


def _execute(
    command: dict[str, Any],
    machine: dict[str, Any],
    spec: dict[str, Any] | None = None,
    progress: bool | Listener | None = False,
    on: Launcher | str | None = None,
) -> Any:
    request = _arguments.dumps({"spec": spec, "machine": machine, "command": command})
    if on is not None and (machine["workers"] is not None or machine["local_workers"]):
        raise _arguments.wrong("on", on, "given beside `workers` or `local_workers`", "give one of them")
    cluster = contextlib.nullcontext() if on is None else launched(on)
    with cluster as workers:
        hear, close = listener(progress)
        try:
            return json.loads(_forebay.execute(request, hear, workers))
        finally:
            close()


def run(
    spec: Spec,
    params: Mapping[str, object] | None = None,
    *,
    interval: Interval | None = None,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    workers: Workers | None = None,
    local_workers: int | None = None,
    on: Launcher | str | None = None,
    deadline: object = None,
    run_id: str | None = None,
    allow_empty: bool = False,
    progress: bool | Listener | None = None,
) -> Summary:
    """Learns, commits the artifact and writes all sinks. Gives what ``forebay run --json`` ends with.

    spec: A :class:`Pipeline`, or the path of a spec.
    params: Values of the spec's parameters by name.
    interval: Start and end of an interval: dates, times or texts. The run is as if time had come as far as the end, and
        writes the rows from the start on and before the end, beside those of other intervals.
    state: The state directory, a path or a URL. Default: that of the settings, else ``.forebay``.
    memory: Memory that the process may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads: Threads. Default: all of the machine's.
    workers: Addresses of workers, ``["host:port"]``, or a mapping with ``addresses``, ``token_file``, ``tls_ca``,
        ``tls_cert``, ``tls_key`` and ``tls_name``.
    local_workers: Worker processes to start on this machine for the run.
    on: A cluster that starts workers for the run: :func:`forebay.ray`, :func:`forebay.dask`, :func:`forebay.spark`,
        :func:`forebay.slurm` or :func:`forebay.kubernetes`, or a text as ``--on`` takes it, such as
        ``"ray://head:10001?workers=16"``.
    deadline: When the run should be done: a time of day (``"06:30"``), an instant (a text or a ``datetime`` with a time
        zone), or how long from now (``"45m"`` or a ``timedelta``). What is left out to be on time is in ``ladder``.
    run_id: Names the run among its attempts: of several at once, the one that began last goes on.
    allow_empty: Whether an output without any row is published.
    progress: True shows progress anywhere, False nowhere, None in a terminal and in a notebook. A function is called
        with each event, as ``forebay run --json`` prints them; what it raises stops the run.
    """
    machine = _arguments.machine(
        state=state,
        memory=memory,
        threads=threads,
        workers=workers,
        local_workers=local_workers,
        run_id=run_id,
        deadline=deadline,
        allow_empty=allow_empty,
    )
    command = {"run": {"interval": _arguments.interval(interval)}}
    return Summary(_execute(command, machine, spec_source(spec, params, machine), progress, on))


def backfill(
    spec: Spec,
    start: Moment,
    end: Moment,
    params: Mapping[str, object] | None = None,
    *,
    every: str = "1d",
    beside: int | None = None,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    workers: Workers | None = None,
    local_workers: int | None = None,
    on: Launcher | str | None = None,
    deadline: object = None,
    run_id: str | None = None,
    progress: bool | Listener | None = None,
) -> Summary:
    """Runs a spec for consecutive intervals; those that are there are skipped. Gives what ``forebay backfill --json``
    ends with: ``intervals``, each with ``from``, ``to``, ``rows`` and whether it was ``skipped``, and ``nothing_new``.
    ``remainder`` is an end of the period that is shorter than an interval, and not run.

    The first interval goes alone, the others side by side with a share each of threads and memory: they learn and
    publish in order of time. A fault stops those after it; the intervals before it are published.

    spec: A :class:`Pipeline`, or the path of a spec.
    start: The start of the first interval: a date, a time without a zone, or a text.
    end: The end of the last interval: no interval goes beyond it.
    params: Values of the spec's parameters by name.
    every: How long an interval is: hours, days, weeks or months, such as ``"12h"``, ``"1d"``, ``"1w"`` or ``"1mo"``.
    beside: How many intervals are at work at a time at most; one where there is a deadline, or where there are workers.
        Default: one for each thread.
    state: The state directory, a path or a URL. Default: that of the settings, else ``.forebay``.
    memory: Memory that the process may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads: Threads. Default: all of the machine's.
    workers: Addresses of workers, or a mapping; see :func:`run`.
    local_workers: Worker processes to start on this machine for the runs.
    on: A cluster that starts workers for the runs; see :func:`run`.
    deadline: When all intervals should be done; see :func:`run`.
    run_id: Names the runs among their attempts.
    progress: Whether progress is shown, or a function that is called with each event; see :func:`run`.
    """
    machine = _arguments.machine(
        state=state,
        memory=memory,
        threads=threads,
        workers=workers,
        local_workers=local_workers,
        run_id=run_id,
        deadline=deadline,
    )
    wanted = {
        "from": _arguments.moment("start", start),
        "to": _arguments.moment("end", end),
        "every": _arguments.plain("every", every),
        "beside": _arguments.optional_count("beside", beside, 1),
    }
    return Summary(_execute({"backfill": wanted}, machine, spec_source(spec, params, machine), progress, on))


def fit(
    spec: Spec,
    params: Mapping[str, object] | None = None,
    *,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    workers: Workers | None = None,
    local_workers: int | None = None,
    on: Launcher | str | None = None,
    deadline: object = None,
    run_id: str | None = None,
    progress: bool | Listener | None = None,
) -> Summary:
    """Learns and commits the artifact; writes no sinks.

    spec: A :class:`Pipeline`, or the path of a spec.
    params: Values of the spec's parameters by name.
    state: The state directory, a path or a URL. Default: that of the settings, else ``.forebay``.
    memory: Memory that the process may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads: Threads. Default: all of the machine's.
    workers: Addresses of workers, or a mapping; see :func:`run`.
    local_workers: Worker processes to start on this machine for the run.
    on: A cluster that starts workers for the run: :func:`forebay.ray`, :func:`forebay.dask`, :func:`forebay.spark`,
        :func:`forebay.slurm` or :func:`forebay.kubernetes`, or a text as ``--on`` takes it, such as
        ``"ray://head:10001?workers=16"``.
    deadline: When the run should be done; see :func:`run`.
    run_id: Names the run among its attempts.
    progress: Whether progress is shown, or a function that is called with each event; see :func:`run`.
    """
    machine = _arguments.machine(
        state=state,
        memory=memory,
        threads=threads,
        workers=workers,
        local_workers=local_workers,
        run_id=run_id,
        deadline=deadline,
    )
    return Summary(_execute({"fit": {}}, machine, spec_source(spec, params, machine), progress, on))


def check(
    spec: Spec,
    params: Mapping[str, object] | None = None,
    *,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
) -> list[str]:
    """Reads the schemas of the sources, binds every step to them and gives the warnings; problems are a
    :class:`SpecFault` that tells all of them.

    spec: A :class:`Pipeline`, or the path of a spec.
    params: Values of the spec's parameters by name.
    state: The state directory.
    memory: Memory that the process may use.
    threads: Threads.
    """
    machine = _arguments.machine(state=state, memory=memory, threads=threads)
    warnings: list[str] = _execute({"check": {}}, machine, spec_source(spec, params, machine))
    return warnings


def explain(
    spec: Spec,
    params: Mapping[str, object] | None = None,
    *,
    interval: Interval | None = None,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Explanation:
    """Tells what a run would do, and does nothing of it.

    spec: A :class:`Pipeline`, or the path of a spec.
    params: Values of the spec's parameters by name.
    interval: Start and end of an interval, as :func:`run` takes them.
    state: The state directory; what lies there is reused.
    memory: Memory that the run may use.
    threads: Threads.
    """
    machine = _arguments.machine(state=state, memory=memory, threads=threads)
    command = {"explain": {"interval": _arguments.interval(interval)}}
    told = _execute(command, machine, spec_source(spec, params, machine))
    return Explanation(told["text"], told["explanation"])


def preview(
    spec: Spec,
    step: str | None = None,
    params: Mapping[str, object] | None = None,
    *,
    rows: int = 20,
    where: str | None = None,
    sample_rows: int = 100_000,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
) -> _forebay.Table:
    """Computes rows of a step from the first rows of the sources; writes nothing that lasts.

    spec: A :class:`Pipeline`, or the path of a spec.
    step: The step or source. Default: that of the first sink.
    params: Values of the spec's parameters by name.
    rows: How many rows.
    where: A SQL condition on the rows to show, such as ``"qty > 5"``.
    sample_rows: Rows of each source to compute from, its first ones; statistics are learned from these, too.
    state: The state directory.
    memory: Memory that the process may use.
    threads: Threads.
    """
    wanted = {
        "step": step,
        "rows": _arguments.count("rows", rows, 1),
        "condition": where,
        "sample_rows": _arguments.count("sample_rows", sample_rows, 1),
    }
    machine = _arguments.machine(state=state, memory=memory, threads=threads)
    request = {"spec": spec_source(spec, params, machine), "machine": machine, "command": {"preview": wanted}}
    return _forebay.rows(_arguments.dumps(request))


def collect(
    spec: Spec,
    step: str,
    params: Mapping[str, object] | None = None,
    *,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
) -> _forebay.Table:
    """Computes all rows of a step, in memory; publishes nothing. What its steps learn, they learn from all rows of the
    sources. The result has ``to_pandas()``, ``to_polars()`` and ``to_pyarrow()``.

    spec: A :class:`Pipeline`, or the path of a spec.
    step: The step or source.
    params: Values of the spec's parameters by name.
    state: The state directory: temporary files lie beside it.
    memory: Memory that the computation may use; the result comes on top.
    threads: Threads.
    """
    machine = _arguments.machine(state=state, memory=memory, threads=threads)
    wanted = {"collect": {"step": _arguments.plain("step", step)}}
    request = {"spec": spec_source(spec, params, machine), "machine": machine, "command": wanted}
    return _forebay.rows(_arguments.dumps(request))


def predict(
    model: Path,
    sources: Mapping[str, Path],
    output: Path,
    *,
    format: Literal["parquet", "csv", "json"] = "parquet",
    columns: Sequence[str] = (),
    split: str | None = None,
    name: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    interval: Interval | None = None,
    rows_from: Moment | None = None,
    whole_history: bool = False,
    state: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    allow_empty: bool = False,
    progress: bool | Listener | None = None,
) -> Summary:
    """Writes what a trained model predicts for a dataset: for its rows of the future, where the model's step adds them.

    model: The directory of a ``train`` sink.
    sources: Where the sources of the model's pipeline are now: paths by name.
    output: Where the predictions go.
    format: The format of the files.
    columns: Columns to write beside the predictions. Default: all of the step; for rows of the future, keys and time.
    split: A part of the split, whose rows alone are predicted; ``"future"`` are those that ``future_rows`` adds.
    name: What the column of predictions is called. Default: ``prediction``.
    minimum: Least prediction: smaller ones become it.
    maximum: Greatest prediction: greater ones become it.
    interval: Start and end of an interval, as :func:`run` takes them: predicts for the rows inside it, or for the
        future after its end.
    rows_from: The time from which on rows are predicted: a date, a time, or text. Earlier rows are history: they are
        read for windows, and not written. Default: all rows are predicted.
    whole_history: Whether the given rows are all the history that there is: rows are then predicted although windows
        reach further back.
    state: The state directory, a path or a URL. Default: that of the settings, else ``.forebay``.
    memory: Memory that the process may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads: Threads. Default: all of the machine's.
    allow_empty: Whether an output without any row is published.
    progress: Whether progress is shown, or a function that is called with each event; see :func:`run`.
    """
    wanted = {
        "model": _arguments.path("model", model),
        "sources": _arguments.paths("sources", sources),
        "output": _arguments.path("output", output),
        "format": _arguments.choice("format", format, ("parquet", "csv", "json")),
        "columns": _arguments.plain("columns", list(columns)),
        "split": split,
        "name": name,
        "minimum": _arguments.number("minimum", minimum),
        "maximum": _arguments.number("maximum", maximum),
        "interval": _arguments.interval(interval),
        "rows_from": None if rows_from is None else _arguments.moment("rows_from", rows_from),
        "whole_history": whole_history,
    }
    machine = _arguments.machine(state=state, memory=memory, threads=threads, allow_empty=allow_empty)
    return Summary(_execute({"predict": wanted}, machine, None, progress))
