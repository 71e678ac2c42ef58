"""Values as YAML, as people write it: blocks, and short lists and maps in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Characters of a line.
LINE_CHARS_MAX = 110
#: Texts that need no quotes. Words that YAML reads as something else are quoted.
PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def dump(value: Mapping[str, Any]) -> str:
    """A map as YAML."""
    return "".join(f"{line}\n" for line in _block(value, 0))


def _text(text: str) -> str:
    return text if PLAIN.fullmatch(text) and text.lower() not in WORDS else json.dumps(text, ensure_ascii=False)


def _key(key: str) -> str:
    """A field's name; `on` is one, and what reads specs takes it for nothing else."""
    return key if key in ("on", "y", "n") else _text(key)


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)}: {_flow(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_flow, value))}]"
    return json.dumps(value)


def _is_short(value: Any, used: int) -> bool:
    """Whether a value fits into the rest of a line. Steps of a `do` stand below each other in any case."""
    if isinstance(value, Mapping):
        return all(_is_short(inner, 0) for inner in value.values()) and used + len(_flow(value)) <= LINE_CHARS_MAX
    if isinstance(value, list):
        return not any(isinstance(item, Mapping) for item in value) and used + len(_flow(value)) <= LINE_CHARS_MAX
    return True


def _block(value: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for key, item in value.items():
        head = f"{'  ' * depth}{_key(key)}:"
        # Sources, steps and sinks each begin a line; what they hold is short.
        if item and isinstance(item, Mapping | list) and (depth == 0 or not _is_short(item, len(head) + 1)):
            lines.append(head)
            lines += _items(item, depth + 1) if isinstance(item, list) else _block(item, depth + 1)
        else:
            lines.append(f"{head} {_flow(item)}")
    return lines


def _items(values: list[Any], depth: int) -> list[str]:
    lines = []
    for item in values:
        indent = "  " * depth
        if isinstance(item, Mapping) and not _is_short(item, len(indent) + 2):
            first, *rest = _block(item, depth + 1)
            lines += [f"{indent}- {first.lstrip()}", *rest]
        elif isinstance(item, Mapping) and len(item) == 1:
            [(key, inner)] = item.items()
            lines.append(f"{indent}- {_key(key)}: {_flow(inner)}")
        else:
            lines.append(f"{indent}- {_flow(item)}")
    return lines
