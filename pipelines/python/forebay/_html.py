"""Tables of notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def escape(value: object) -> str:
    """A value as text of a page."""
    return html.escape(str(value))


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title; empty where there is no row."""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def text(title: str, body: str) -> str:
    """A text that opens."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(body)}</pre></details>"
