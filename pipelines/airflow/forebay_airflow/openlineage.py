"""Lineage events of runs, in the shape of OpenLineage 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json).

Inputs are the sources as the artifact's lineage names them, outputs the sinks. Schemas come from the artifact
and from the manifests of outputs, where those are local files. Column lineage comes from the summary, where it
says for the columns of an output of which source columns they are made:
`outputs[].columns[] = {"name", "type", "from": [{"source", "column"}]}`.
"""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

PRODUCER = "https://github.com/forebay/forebay/tree/main/pipelines/airflow"
SPEC = "https://openlineage.io/spec"
NAMESPACE = "airflow"
HTTP_S_MAX = 10.0

#: The version of each facet that is written.
FACETS = {
    "nominalTime": "1-0-1/NominalTimeRunFacet",
    "parent": "1-2-0/ParentRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "schema": "1-2-0/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
}


def facet(name: str, /, **body: Any) -> dict[str, Any]:
    """One facet under its name."""
    version, kind = FACETS[name].split("/")
    return {name: {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{version}/{kind}.json#/$defs/{kind}", **body}}


def run_event(
    kind: str,
    *,
    dag_id: str,
    task_id: str,
    run_key: str,
    dag_run_id: str,
    interval: tuple[str, str] | None = None,
    version: str | None = None,
    summary: dict[str, Any] | None = None,
    seen: Sequence[dict[str, Any]] = (),
    places: Mapping[str, str] | None = None,
    error: str | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """A START, COMPLETE, FAIL or ABORT event. All events of one attempt name the same run."""
    name = f"{dag_id}.{task_id}"
    run_facets = facet(
        "parent",
        run={"runId": run_uuid(f"{dag_id}/{dag_run_id}")},
        job={"namespace": NAMESPACE, "name": dag_id},
    )
    if version:
        run_facets |= facet("processing_engine", name="forebay", version=version)
    if interval:
        run_facets |= facet("nominalTime", nominalStartTime=interval[0], nominalEndTime=interval[1])
    if error is not None:
        run_facets |= facet("errorMessage", message=error, programmingLanguage="RUST")
    inputs = input_datasets(summary or {}, seen, places or {}, cwd)
    return {
        "eventType": kind,
        "eventTime": datetime.now(timezone.utc).isoformat(),
        "run": {"runId": run_uuid(f"{name}/{run_key}"), "facets": run_facets},
        "job": {
            "namespace": NAMESPACE,
            "name": name,
            "facets": facet("jobType", processingType="BATCH", integration="FOREBAY", jobType="PIPELINE"),
        },
        "inputs": list(inputs.values()),
        "outputs": [output_dataset(output, inputs, cwd) for output in written(summary or {})],
        "producer": PRODUCER,
        "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def operator_lineage(
    summary: dict[str, Any], seen: Sequence[dict[str, Any]], places: Mapping[str, str], cwd: str | None
) -> OperatorLineage:
    """Inputs and outputs as Airflow's OpenLineage provider takes them; it adds job, run, times and errors itself."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    inputs = input_datasets(summary, seen, places, cwd)
    read = [
        InputDataset(namespace=data["namespace"], name=data["name"], facets=typed(data["facets"]))
        for data in inputs.values()
    ]
    wrote = [
        OutputDataset(
            namespace=data["namespace"],
            name=data["name"],
            facets=typed(data["facets"]),
            outputFacets=typed(data["outputFacets"]),
        )
        for data in (output_dataset(output, inputs, cwd) for output in written(summary))
    ]
    return OperatorLineage(inputs=read, outputs=wrote)


def typed(facets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Facets as objects of OpenLineage's client."""
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    made: dict[str, Any] = {}
    if body := facets.get("schema"):
        fields = [schema_dataset.SchemaDatasetFacetFields(**field) for field in body["fields"]]
        made["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if body := facets.get("columnLineage"):
        origins = {
            name: column_lineage_dataset.Fields(
                inputFields=[column_lineage_dataset.InputField(**origin) for origin in field["inputFields"]]
            )
            for name, field in body["fields"].items()
        }
        made["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields=origins)
    if body := facets.get("outputStatistics"):
        counts = {name: value for name, value in body.items() if not name.startswith("_")}
        made["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(**counts)
    return made


def run_uuid(key: str) -> str:
    """The id of a run: the same whenever it is asked for."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"forebay-airflow:{key}"))


def written(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Outputs and forecasts of a run."""
    return [*summary.get("outputs", []), *summary.get("forecasts", [])]


def input_datasets(
    summary: dict[str, Any], seen: Sequence[dict[str, Any]], places: Mapping[str, str], cwd: str | None
) -> dict[str, dict[str, Any]]:
    """The datasets that were read, by the name of their source; `places` are those that the task names itself."""
    names = [event["source"] for event in seen if event.get("event") == "discovered"]
    at = place(summary.get("artifact_path"), cwd)
    lineage, artifact = read(at, "lineage.json"), read(at, "artifact.json")
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*places, *lineage.get("sources", {}), *names]):
        spans = [span["span"] for span in lineage.get("sources", {}).get(name, {}).get("spans", [])]
        if name in places:
            dataset = known(without_glob(places[name]), cwd)
        elif spans:
            dataset = known(folder(spans), cwd)
        else:
            # Without local lineage, as of a run that failed, the source is known by its name only.
            dataset = {"namespace": "forebay", "name": name}
        columns = artifact.get("sources", {}).get(name, {}).get("columns", {})
        dataset["facets"] = schema_facet(list(columns.items()))
        found[name] = dataset
    return found


def without_glob(path: str) -> str:
    """The folder below which a pattern looks."""
    parts = path.split("/")
    fixed = next((i for i, part in enumerate(parts) if any(mark in part for mark in "*?[{")), len(parts))
    return "/".join(parts[:fixed]) or "/"


def output_dataset(output: dict[str, Any], inputs: dict[str, dict[str, Any]], cwd: str | None) -> dict[str, Any]:
    """The dataset that a sink wrote."""
    told = output.get("columns")
    if told is None:
        columns = [tuple(pair) for pair in read(root(place(output["path"], cwd)), "_manifest.json").get("columns", [])]
    else:
        columns = [(column["name"], column.get("type")) for column in told]
    facets = schema_facet(columns)
    fields = {
        column["name"]: {
            "inputFields": [
                {
                    "namespace": inputs[origin["source"]]["namespace"],
                    "name": inputs[origin["source"]]["name"],
                    "field": origin["column"],
                }
                for origin in column["from"]
                if origin["source"] in inputs
            ]
        }
        for column in told or []
        if column.get("from")
    }
    if fields:
        facets |= facet("columnLineage", fields=fields)
    counts = {"rowCount": output["rows"], "size": output.get("bytes"), "fileCount": output.get("files")}
    counts = {name: count for name, count in counts.items() if count is not None}
    return {**known(output["path"], cwd), "facets": facets, "outputFacets": facet("outputStatistics", **counts)}


def schema_facet(columns: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Names and types of columns; nothing where they are not known."""
    if not columns:
        return {}
    return facet("schema", fields=[{"name": name, "type": str(kind)} for name, kind in columns])


def known(path: str, cwd: str | None) -> dict[str, Any]:
    """A dataset by OpenLineage's naming: `file` and an absolute path, or `s3://bucket` and a key."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        local = unquote(parts.path) if parts.scheme else path
        return {"namespace": "file", "name": os.path.abspath(os.path.join(cwd or "", local))}
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.strip("/")}


def folder(spans: Sequence[str]) -> str:
    """The folder that holds all spans of a source."""
    folders = {span.rpartition("/")[0] for span in spans}
    first, last = min(folders).split("/"), max(folders).split("/")
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return "/".join(first[:shared]) or "/"


def place(path: str | None, cwd: str | None) -> Path | None:
    """A local directory; None for what is elsewhere."""
    return None if not path or "://" in path else Path(cwd or "") / path


def root(output: Path | None) -> Path | None:
    """The directory of an output's manifest: a hidden one beside what readers see."""
    return output.with_name(f".{output.name}.forebay") if output else None


def read(directory: Path | None, name: str) -> dict[str, Any]:
    """A JSON file; empty where it cannot be read."""
    try:
        return json.loads((directory / name).read_text()) if directory else {}
    except (OSError, ValueError):
        return {}


def emit(event: dict[str, Any], to: str) -> None:
    """Appends the event to a file, or posts it; `OPENLINEAGE_API_KEY` becomes the bearer of the post."""
    parts = urlsplit(to)
    text = json.dumps(event)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            file.write(text + "\n")
    elif parts.scheme in ("http", "https"):
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(to, text.encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=HTTP_S_MAX):
            pass
    else:
        raise ValueError(f"`openlineage` is a file:///, http:// or https:// URL, not {to!r}")
