"""Lines of `--json` as plain sentences."""

from __future__ import annotations

import json
from typing import Any

#: What a run does about its deadline where that is no rung of its ladder.
AT_RISK = {"none": "nothing more can be done, the run goes on", "stop": "the run stops"}


def parse(line: str) -> dict[str, Any] | None:
    """The event of a line; None if the line is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def sentence(event: dict[str, Any]) -> str:
    """What happened, in words. Events of later versions, which we do not know, keep their own."""
    kind = event["event"]
    try:
        match kind:
            case "discovered":
                rows = "" if event.get("rows") is None else f"{event['rows']:,} rows, "
                return f"{event['source']}: {rows}{size(event['bytes'])} in {counted(event['spans'], 'span')}"
            case "pass_started":
                stored = "" if event.get("bytes") is None else f", {size(event['bytes'])} to read"
                return f"pass {event['number']} of {event['total']}: {event['label']}{stored}"
            case "pass_reads":
                return f"{size(event['bytes'])} of {size(event['of'])} have to be read"
            case "waiting":
                return f"waiting for {event['source']}: {event['wanted']} wanted, {event['found']} found"
            case "eta":
                return f"the run ends at {event['end']}"
            case "at_risk":
                done = AT_RISK.get(event["action"], f"the run goes on with {event['action']}")
                return f"warning: the deadline {event['deadline']} is at risk: {done}"
            case "taken_over":
                return f"attempt {event['attempt']} of run {event['run_id']} takes over from the one before"
            case "beside":
                return f"{counted(event['intervals'], 'interval')}, {event['beside']} at a time"
            case "interval_done":
                return f"{event['done']} of {counted(event['intervals'], 'interval')} published"
            case "worker_joined":
                return f"the worker {event['worker']} joined"
            case "worker_lost":
                return f"warning: the worker {event['worker']} is lost: {event['why']}"
            case "progress":
                return f"{event['rows']:,} more rows, {size(event['bytes'])} read"
            case "worked":
                return f"{event['done']:,} more steps of work, {event['planned']:,} more to do"
            case "spilled":
                return f"{size(event['bytes'])} spilled to disk"
            case "pass_done":
                if event["reused"]:
                    return f"pass {event['number']} was done before: reused"
                return f"pass {event['number']} done: {event['rows']:,} rows in, {event['filtered']:,} filtered"
            case "warning":
                return f"warning: {event['message']}"
            case "summary":
                return summary_sentence(event)
    except (KeyError, TypeError, ValueError):
        pass
    rest = ", ".join(f"{name} {value}" for name, value in event.items() if name not in ("event", "version"))
    return f"{kind}: {rest}"


def summary_sentence(summary: dict[str, Any]) -> str:
    """How a run ended, in one line."""
    if summary["status"] != "done":
        return f"{summary['status']}: {fault_text(summary.get('fault') or {})}"
    if "intervals" in summary:
        done = summary["intervals"]
        there = sum(interval["skipped"] for interval in done)
        rows = sum(interval["rows"] for interval in done)
        return f"{counted(len(done), 'interval')}: {there} were there already, {rows:,} rows written"
    if summary.get("nothing_new"):
        return f"{summary['pipeline']}: nothing new; the artifact is {summary.get('artifact')}"
    artifact = summary.get("artifact")
    said = [f"{summary['pipeline']}: artifact {artifact}" if artifact else f"{summary['pipeline']}: no artifact"]
    said += [f"{out['rows']:,} rows to {out['path']}" for out in summary.get("outputs", [])]
    said += [f"{out['rows']:,} forecasts to {out['path']}" for out in summary.get("forecasts", [])]
    if rungs := (summary.get("ladder") or {}).get("rungs"):
        said.append(f"to be on time: {', '.join(rungs)}")
    return "; ".join(said)


def fault_text(fault: dict[str, Any]) -> str:
    """A fault as text: code, message, place, hint."""
    text = f"{fault.get('code', 'no code')}: {fault.get('message', 'no message')}"
    place = [str(fault["file"])] if fault.get("file") else []
    place += [f"{name} {fault[name]}" for name in ("column", "step", "pass") if fault.get(name)]
    text += f" ({', '.join(place)})" if place else ""
    return text + (f"\nhint: {fault['hint']}" if fault.get("hint") else "")


def counted(count: int, noun: str) -> str:
    """`1 span`, `2 spans`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"
