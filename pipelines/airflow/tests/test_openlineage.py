"""Lineage events: their shape, checked with OpenLineage's own client classes, and where they go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from forebay_airflow import openlineage
from forebay_airflow.operators import ForebayApplyOperator


def event(summary: dict[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    """An event of a task."""
    return openlineage.run_event(
        "COMPLETE", dag_id="d", task_id="t", run_key="r/-1/1", dag_run_id="r", summary=summary, **kwargs
    )


def summary(state: Path, out: str) -> dict[str, Any]:
    """A summary, with an artifact and an output that lie in `state`."""
    artifact = state / "artifacts" / "a1"
    artifact.mkdir(parents=True)
    spans = [{"span": f"{state}/in/year=2016/{month}.parquet"} for month in (4, 5)]
    (artifact / "lineage.json").write_text(json.dumps({"sources": {"demand": {"spans": spans}}}))
    (artifact / "artifact.json").write_text(json.dumps({"sources": {"demand": {"columns": {"qty": "int32"}}}}))
    output = {"sink": "table", "path": out, "rows": 7, "files": 1, "bytes": 99}
    return {"pipeline": "demand", "artifact_path": str(artifact), "outputs": [output]}


def check_with_the_client(body: dict[str, Any]) -> None:
    """Each facet's fields fit the class of OpenLineage's client, and name the version that it writes."""
    from openlineage.client import facet_v2

    kinds = {name: kind.split("/")[1] for name, kind in openlineage.FACETS.items()}
    classes = {
        kind: getattr(module, kind)
        for module in vars(facet_v2).values()
        for kind in kinds.values()
        if hasattr(module, kind)
    }
    holders = [body["run"]["facets"], body["job"]["facets"]]
    for dataset in [*body["inputs"], *body["outputs"]]:
        holders += [dataset["facets"], dataset.get("outputFacets", {})]
    seen = 0
    for holder in holders:
        for name, facet in holder.items():
            kind = classes[kinds[name]]
            made = kind(**{key: value for key, value in facet.items() if not key.startswith("_")})
            assert facet["_schemaURL"] == made._get_schema()
            seen += 1
    assert seen


def test_a_whole_event(tmp_path: Path) -> None:
    (tmp_path / ".out.forebay").mkdir()
    (tmp_path / ".out.forebay" / "_manifest.json").write_text(json.dumps({"columns": [["qty", "Int32"]]}))
    body = event(summary(tmp_path, "out"), cwd=str(tmp_path), version="0.1.0", interval=("2016-05-21T00:00:00Z",) * 2)
    check_with_the_client(body)
    (read,), (written,) = body["inputs"], body["outputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{tmp_path}/in/year=2016")
    assert read["facets"]["schema"]["fields"] == [{"name": "qty", "type": "int32"}]
    assert (written["namespace"], written["name"]) == ("file", f"{tmp_path}/out")
    assert written["facets"]["schema"]["fields"] == [{"name": "qty", "type": "Int32"}]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert body["run"]["runId"] == event()["run"]["runId"]


def test_column_lineage_where_the_summary_tells(tmp_path: Path) -> None:
    told = summary(tmp_path, "s3://lake/features/demand/")
    origins = [{"source": "demand", "column": "qty"}, {"source": "unknown", "column": "x"}]
    told["outputs"][0]["columns"] = [
        {"name": "qty_lag_7d", "type": "int32", "from": origins},
        {"name": "one", "type": "int32"},
    ]
    body = event(told)
    check_with_the_client(body)
    (written,) = body["outputs"]
    assert (written["namespace"], written["name"]) == ("s3://lake", "features/demand")
    fields = written["facets"]["columnLineage"]["fields"]
    name = f"{tmp_path}/in/year=2016"
    assert fields == {"qty_lag_7d": {"inputFields": [{"namespace": "file", "name": name, "field": "qty"}]}}
    assert [field["name"] for field in written["facets"]["schema"]["fields"]] == ["qty_lag_7d", "one"]


def test_a_failure_names_its_sources_and_its_fault() -> None:
    body = event(seen=[{"event": "discovered", "source": "demand"}], error="FB0201: no file")
    check_with_the_client(body)
    assert body["inputs"] == [{"namespace": "forebay", "name": "demand", "facets": {}}]
    assert body["run"]["facets"]["errorMessage"]["message"] == "FB0201: no file"


@pytest.mark.parametrize(
    ("spans", "expect"),
    [
        (["/a/b/1.parquet"], "/a/b"),
        (["/a/b/x=1/1.parquet", "/a/b/x=2/1.parquet"], "/a/b"),
        (["s3://lake/d/1", "s3://lake/d/2"], "s3://lake/d"),
    ],
)
def test_the_folder_of_spans(spans: list[str], expect: str) -> None:
    assert openlineage.folder(spans) == expect


class Collector(BaseHTTPRequestHandler):
    """Takes events."""

    taken: list[dict[str, Any]]
    answer = 200

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def collector() -> Any:
    """A lineage service on the loopback; its address and what it took."""
    handler = type("Handler", (Collector,), {"taken": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_over_http(operator: Callable[..., Any], context: dict[str, Any], collector: Any) -> None:
    url, handler = collector
    operator(openlineage=url).execute(context)
    assert [body["eventType"] for body in handler.taken] == ["START", "COMPLETE"]
    assert len({body["run"]["runId"] for body in handler.taken}) == 1
    for body in handler.taken:
        check_with_the_client(body)


def test_a_service_that_refuses_stops_no_run(
    operator: Callable[..., Any], context: dict[str, Any], collector: Any
) -> None:
    url, handler = collector
    handler.answer = 500
    assert operator(openlineage=url).execute(context)["artifact"] == "a1"
    assert operator(openlineage="ftp://nowhere").execute(context)["artifact"] == "a1"


def test_to_a_file(operator: Callable[..., Any], context: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "lineage" / "events.jsonl"
    with pytest.raises(AirflowException):
        operator(65, openlineage=file.as_uri(), interval="auto").execute(context)
    start, fail = [json.loads(line) for line in file.read_text().splitlines()]
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert start["run"]["facets"]["nominalTime"]["nominalEndTime"] == "2016-05-22T00:00:00Z"
    assert "FB0201" in fail["run"]["facets"]["errorMessage"]["message"]


def lineage_of(task: Any, method: str) -> Any:
    """What the extractor of Airflow's OpenLineage provider makes of a task."""
    base = pytest.importorskip("airflow.providers.openlineage.extractors.base", reason="the provider is not installed")
    return getattr(base.DefaultExtractor(task), method)(*([] if method == "extract" else [None]))


def test_the_provider_asks_the_operator(operator: Callable[..., Any], context: dict[str, Any], tmp_path: Path) -> None:
    """The same datasets and facets as in the events of this package."""
    told = summary(tmp_path, "s3://lake/features")
    told["outputs"][0]["columns"] = [
        {"name": "qty_lag_7d", "type": "int32", "from": [{"source": "demand", "column": "qty"}]}
    ]
    told["forecasts"] = [{"sink": "forecast", "path": "s3://lake/forecast", "rows": 70}]
    task = operator(env={"STUB_SUMMARY": json.dumps(told)})
    assert lineage_of(task, "extract").inputs == []
    task.execute(context)
    lineage = lineage_of(task, "extract_on_complete")
    (read,), (features, forecast) = lineage.inputs, lineage.outputs
    assert (read.namespace, read.name) == ("file", f"{tmp_path}/in/year=2016")
    assert [field.name for field in read.facets["schema"].fields] == ["qty"]
    assert (features.namespace, features.name, forecast.name) == ("s3://lake", "features", "forecast")
    (origin,) = features.facets["columnLineage"].fields["qty_lag_7d"].inputFields
    assert (origin.namespace, origin.name, origin.field) == (read.namespace, read.name, "qty")
    counts = [output.outputFacets["outputStatistics"] for output in lineage.outputs]
    assert [(count.rowCount, count.fileCount) for count in counts] == [(7, 1), (70, None)]


def test_the_provider_hears_of_the_sources_of_a_failure(operator: Callable[..., Any], context: dict[str, Any]) -> None:
    task = operator(65)
    with pytest.raises(AirflowException):
        task.execute(context)
    lineage = lineage_of(task, "extract_on_failure")
    assert [read.name for read in lineage.inputs] == ["demand"]
    assert lineage.outputs == []


def test_sources_that_the_task_names(operator: Callable[..., Any], context: dict[str, Any], tmp_path: Path) -> None:
    """What `apply` reads is where its task says, not what the artifact was learned from."""
    told = summary(tmp_path, "out")
    arguments = {"artifact": "a", "sources": {"demand": "s3://lake/new/*/x.parquet"}, "output_path": "out"}
    task = operator(kind=ForebayApplyOperator, env={"STUB_SUMMARY": json.dumps(told)}, **arguments)
    task.execute(context)
    (read,) = lineage_of(task, "extract_on_complete").inputs
    assert (read.namespace, read.name) == ("s3://lake", "new")
    assert [field.name for field in read.facets["schema"].fields] == ["qty"]
