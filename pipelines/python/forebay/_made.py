"""What functions for kinds of steps, sources and sinks give: dictionaries as in the YAML language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from . import spec


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given, by their names in the language."""
    return {name.rstrip("_"): value for name, value in arguments.items() if value is not None}


def made(kind: str, arguments: Mapping[str, Any]) -> spec.AnyTransform:
    """A transform with fields."""
    return cast("spec.AnyTransform", {kind: _given(arguments)})


def alone(kind: str, value: Any) -> spec.AnyTransform:
    """A transform that is one text, list or map."""
    return cast("spec.AnyTransform", {kind: value})


def _connector(kind: str, common: tuple[str, ...], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A format with its fields, and the `common` ones beside it."""
    given = _given(arguments)
    beside = {name: given.pop(name) for name in common if name in given}
    return {**beside, kind: given}


def source(kind: str, common: tuple[str, ...], arguments: Mapping[str, Any]) -> spec.Source:
    """A source."""
    return cast("spec.Source", _connector(kind, common, arguments))


def sink(kind: str, common: tuple[str, ...], arguments: Mapping[str, Any]) -> spec.Sink:
    """A sink."""
    return cast("spec.Sink", _connector(kind, common, arguments))
