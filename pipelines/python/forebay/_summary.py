"""What runs and explanations give, and how notebooks show it."""

from __future__ import annotations

from typing import Any

from . import _html


class Summary(dict[str, Any]):
    """What a run came to: a dict with the fields of the last line of ``forebay run --json``, among them ``pipeline``,
    ``artifact``, ``artifact_path``, ``outputs``, ``models``, ``forecasts``, ``passes`` and ``nothing_new``; a run that
    did less to be on time has ``ladder``."""

    def __repr__(self) -> str:
        told = [str(self.get("pipeline", "nothing"))]
        told += [f"{out['sink']}: {out['rows']:,} rows" for out in self.get("outputs", [])]
        told += [f"{out['sink']}: {out['rows']:,} rows" for out in self.get("forecasts", [])]
        if len(told) == 1 and self.get("artifact_path"):
            told.append(f"artifact {self['artifact_path']}")
        return f"<forebay.Summary {', '.join(told)}; dict(summary) has all fields>"

    def _repr_html_(self) -> str:
        told = [self.get("pipeline", "")]
        if self.get("nothing_new"):
            told.append("nothing new")
        if rungs := (self.get("ladder") or {}).get("rungs"):
            told.append(f"to be on time: {', '.join(rungs)}")
        files = [
            (out["sink"], f"{out['rows']:,}", f"{out['files']:,}", f"{out['bytes']:,}", out["path"])
            for out in self.get("outputs", [])
        ]
        forecasts = [(out["sink"], f"{out['rows']:,}", out["path"]) for out in self.get("forecasts", [])]
        passes = [
            (at + 1, done["work"], "reused" if done["reused"] else f"{done['rows_in']:,}", f"{done['rows_out']:,}")
            for at, done in enumerate(self.get("passes", []))
        ]
        intervals = [
            (one["from"], one["to"], "there already" if one["skipped"] else f"{one['rows']:,}")
            for one in self.get("intervals", [])
        ]
        parts = [
            f"<p><b>{_html.escape(', '.join(told))}</b></p>",
            _html.table("intervals", ["from", "to", "rows"], intervals),
            _html.table("outputs", ["sink", "rows", "files", "bytes", "path"], files),
            _html.table("forecasts", ["sink", "rows", "path"], forecasts),
            _html.table("passes", ["pass", "work", "rows in", "rows out"], passes),
        ]
        if self.get("artifact_path"):
            parts.append(f"<p>artifact: <code>{_html.escape(self['artifact_path'])}</code></p>")
        return "".join(parts)


class Explanation:
    """What a run would do: its passes, what each reads and why, and what is reused. Its text is what
    ``forebay explain`` prints; :attr:`plan` holds the same for programs."""

    def __init__(self, text: str, plan: dict[str, Any]) -> None:
        self.text = text
        self.plan = plan

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{_html.escape(self.text)}</pre>"
