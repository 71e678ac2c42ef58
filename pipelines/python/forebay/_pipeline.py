"""Pipelines, written in Python with the names of the YAML language."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _arguments, _commands, _html, _tables, _yaml

if TYPE_CHECKING:
    from . import spec
    from ._loader import Loader

# The program refuses longer specs, too.
_SPEC_CHARACTERS_MAX = 4 << 20


class Pipeline:
    """A pipeline: what is read, what is done with it, and where it goes.

    >>> from forebay import sinks, sources, transforms as t
    >>> demand = Pipeline(
    ...     "demand",
    ...     sources={"demand": sources.parquet("data/*.parquet", time="date", keys=["store", "item"])},
    ...     steps={"features": {"from": "demand", "do": [t.lag(["qty"], by=["7d"]), t.standardize(["price"])]}},
    ...     sinks={"table": sinks.parquet("out/features", from_="features")},
    ... )
    >>> demand.run()                                                       # doctest: +SKIP

    Fields are those of a spec, and so are their names; :meth:`open` takes a spec from a file. Both run the same, and
    have the same ids. Nothing is read or checked before :meth:`check`, :meth:`explain`, :meth:`preview`,
    :meth:`collect`, :meth:`fit`, :meth:`run` or :meth:`backfill`.

    name: Names the artifact; give it where a state directory holds the runs of several pipelines.
    sources: Where data comes from, by name; functions of :mod:`forebay.sources` make them. A pandas, Polars or pyarrow
        table, a relation of DuckDB and a list of dictionaries are sources, too; :func:`forebay.table` gives them a time
        and keys.
    steps: What is done with it, by name; functions of :mod:`forebay.transforms` make what stands in ``do``.
    sinks: Where output is committed, by name; functions of :mod:`forebay.sinks` make them.
    params: What can be set when the pipeline runs, by name.
    compat: The tool whose numbers and names transforms give where tools differ, such as ``"sklearn"``.
    label: What is predicted, and how long before; leaks are then found.
    split: How rows are divided into parts such as ``train`` and ``validation``.
    deadline: When a run should be done, and what it may leave out.
    serving: The step whose rows are served one by one.
    feed: What batches of a :class:`Loader` hold.
    tests: What steps make of given rows; ``forebay test`` runs them.
    """

    path: str | None
    """The file of a pipeline that was opened."""
    name: str | None
    """Its name; None where a file tells it."""

    def __init__(
        self,
        name: str = "pipeline",
        *,
        sources: Mapping[str, spec.Source | _tables.TableSource | _tables.Rows],
        steps: Mapping[str, spec.Step] | None = None,
        sinks: Mapping[str, spec.Sink] | None = None,
        params: Mapping[str, spec.Param] | None = None,
        compat: spec.Compat | None = None,
        label: spec.Label | None = None,
        split: spec.Split | None = None,
        deadline: spec.Deadline | None = None,
        serving: spec.Serving | None = None,
        feed: spec.Feed | None = None,
        tests: Mapping[str, spec.Test] | None = None,
    ) -> None:
        fields = {
            "version": 1,
            "name": name,
            "params": params,
            "compat": compat,
            "sources": {},
            "steps": steps,
            "label": label,
            "split": split,
            "deadline": deadline,
            "serving": serving,
            "sinks": sinks,
            "feed": feed,
            "tests": tests,
        }
        given = {field: _arguments.plain(field, value) for field, value in fields.items() if value is not None}
        self._spec: dict[str, Any] | None = given
        _arguments.mapping("sources", sources)
        self._sources = {str(source): _tables.as_source(source, value) for source, value in sources.items()}
        self.name = name
        self.path = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Pipeline:
        """The pipeline of a spec. The file is read each time that the pipeline is used.

        path: The spec, a YAML file.
        """
        pipeline = cls.__new__(cls)
        pipeline._spec, pipeline.name = None, None
        pipeline._sources = {}
        pipeline.path = _arguments.path("path", path)
        return pipeline

    @property
    def origin(self) -> str:
        """What faults call it: the file, or its name."""
        return self.path if self.path is not None else f"pipeline {self.name}"

    def to_yaml(self) -> str:
        """The spec as YAML, which ``forebay run`` takes. Tables among its sources are files of the state directory
        then, by their paths."""
        if self._spec is None:
            with open(self.path or "", encoding="utf-8") as file:
                text = file.read(_SPEC_CHARACTERS_MAX + 1)
            if len(text) > _SPEC_CHARACTERS_MAX:
                raise _arguments.wrong("path", self.path, f"a spec of at most {_SPEC_CHARACTERS_MAX} characters")
            return text
        return self._text(_arguments.machine(state=None, memory=None, threads=None))

    def _text(self, machine: Mapping[str, Any]) -> str:
        """The spec as YAML, with tables kept in the state directory of a machine's settings."""
        # Workers are not needed to keep a table.
        settings = {name: machine[name] for name in ("state", "memory", "threads")}
        sources = {
            name: source._source(settings) if isinstance(source, _tables.TableSource) else source
            for name, source in self._sources.items()
        }
        return self._dump(sources)

    def _shown_sources(self) -> dict[str, dict[str, Any]]:
        """Sources as a notebook shows them: no table is written for it."""
        return {
            name: source._shown() if isinstance(source, _tables.TableSource) else source
            for name, source in self._sources.items()
        }

    def _dump(self, sources: Mapping[str, Any]) -> str:
        return _yaml.dump({**(self._spec or {}), "sources": sources})

    run = _commands.run
    backfill = _commands.backfill
    fit = _commands.fit
    check = _commands.check
    explain = _commands.explain
    preview = _commands.preview
    collect = _commands.collect

    def loader(self, **options: Any) -> Loader:
        """Mini-batches of its rows.

        options: As :class:`Loader` takes them.
        """
        from ._loader import Loader

        return Loader(self, **options)

    def __repr__(self) -> str:
        return f"<forebay.Pipeline {self.path or self.name}>"

    def _repr_html_(self) -> str:
        if self._spec is None:
            return f"<p><b>{_html.escape(self.path)}</b></p>{_html.text('YAML', self.to_yaml())}"
        shown = self._shown_sources()
        text = _html.text("YAML", self._dump(shown))
        sources = [(name, _format(source)) for name, source in shown.items()]
        steps = [
            (name, _reads(step), ", ".join(kind for one in step.get("do", []) for kind in one))
            for name, step in self._spec.get("steps", {}).items()
        ]
        sinks = [(name, sink["from"], _format(sink)) for name, sink in self._spec.get("sinks", {}).items()]
        return "".join(
            [
                f"<p><b>{_html.escape(self.name)}</b></p>",
                _html.table("sources", ["source", "format"], sources),
                _html.table("steps", ["step", "reads", "does"], steps),
                _html.table("sinks", ["sink", "of", "format"], sinks),
                text,
            ]
        )


def _reads(step: Mapping[str, Any]) -> str:
    """The input of a step, in words."""
    return ", ".join(step["union"]) if step.get("union") else step.get("from") or "SQL"


def _format(connector: Mapping[str, Any]) -> str:
    """The format of a source or sink, and its path."""
    for name, config in connector.items():
        if isinstance(config, Mapping) and name != "ready":
            return f"{name} {config.get('path') or ''}".strip()
    return ""
