"""Tables of notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def escape(value: object) -> str:
    """A value as text of a page."""
    return html.escape(str(value))


# Notebooks centre tables and put all cells to the right. Rules of a style sheet would reach other tables.
_TABLE = ' style="margin-left:0"'
_CAPTION = ' style="text-align:left;font-weight:bold;padding-top:.5em"'
_TEXT = ' style="text-align:left"'


def _is_number(cell: object) -> bool:
    return str(cell).replace(",", "").replace(".", "", 1).isdigit()


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title; empty where there is no row. Numbers stand on the right, all else on the left."""
    cells = list(rows)
    if not cells:
        return ""
    numbers = [all(_is_number(row[at]) for row in cells) for at in range(len(head))]

    def line(tag: str, row: Sequence[object]) -> str:
        told = zip(row, numbers, strict=True)
        return "".join(f"<{tag}{'' if number else _TEXT}>{escape(cell)}</{tag}>" for cell, number in told)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells)
    top = f"<caption{_CAPTION}>{escape(title)}</caption><thead><tr>{line('th', head)}</tr></thead>"
    return f"<table{_TABLE}>{top}<tbody>{body}</tbody></table>"


def text(title: str, body: str) -> str:
    """A text that opens."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(body)}</pre></details>"
