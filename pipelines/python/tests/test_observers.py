"""What the program tells other systems, read by their own clients; and profiles beside pandas.

With `FOREBAY_MLFLOW` set to the program `mlflow`, a real server of MLflow is started, too.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy
import pandas
import pytest

import forebay
from forebay import sinks, sources, transforms

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

#: Variables by which runs of this user tell other systems.
TOLD = ("OTEL_", "OPENLINEAGE_", "MLFLOW_", "TRACEPARENT")

SPEC = """
version: 1
name: told
sources:
  sales: { parquet: { path: sales.parquet }, time: day, keys: [store, item] }
steps:
  known:
    from: sales
    do: [profile: {}]
  features:
    from: known
    do:
      - expect: [{ not_null: [qty], policy: warn }, { rows: { min: 1 } }]
      - filter: "qty IS NOT NULL"
      - derive: { total: "qty * price" }
sinks:
  out: { from: features, parquet: { path: out } }
  net: { from: features, train: { path: net, dense: [price], label: qty, model: linear, batch_rows: 256, epochs: 3 } }
"""


class Place:
    """A directory with data and a spec, and the program."""

    def __init__(self, root: pathlib.Path, program: str) -> None:
        self.root, self.program = root, program
        self.sales = sales()
        self.sales.to_parquet(root / "sales.parquet")
        (root / "spec.yaml").write_text(SPEC)

    def call(self, *args: str, **env: str) -> dict[str, Any]:
        """Calls the program; gives its summary."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(TOLD)}
        command = [self.program, *args, "--json"]
        done = subprocess.run(command, cwd=self.root, env=known | env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary


def sales() -> pandas.DataFrame:
    """Daily sales of 30 items in 3 stores, with missing days and values."""
    rng = numpy.random.default_rng(7)
    days = pandas.date_range("2024-01-01", periods=60)
    frame = pandas.MultiIndex.from_product([days, range(3), range(30)], names=["day", "store", "item"]).to_frame(
        index=False
    )
    frame = frame[rng.random(len(frame)) < 0.9].reset_index(drop=True)
    frame["price"] = rng.gamma(2.0, 3.0, len(frame))
    demand = rng.poisson(numpy.where(frame["item"] % 3 == 0, 0.3, 4.0)).astype(float) + (frame["price"] < 3)
    frame["qty"] = numpy.where(rng.random(len(frame)) < 0.02, numpy.nan, demand)
    frame["category"] = numpy.array(["food", "home", "toys"])[frame["item"] % 3]
    frame["shelf"] = numpy.where(rng.random(len(frame)) < 0.7, frame["category"], "other")
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    program = os.environ.get("FOREBAY_BIN") or str(REPOSITORY / "target/debug/forebay")
    if not os.access(program, os.X_OK):
        pytest.skip(f"no forebay at {program}: build it, or name it in FOREBAY_BIN")
    return Place(tmp_path_factory.mktemp("told"), program)


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server on the loopback that keeps what is posted: its address, and paths with bodies."""
    posted: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    server.server_close()
    thread.join()


def test_traces_are_messages_of_opentelemetry(place: Place, receiver: Any) -> None:
    from google.protobuf.unknown_fields import UnknownFieldSet
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    url, posted = receiver
    place.call("run", "spec.yaml", "--state=traced", OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_RESOURCE_ATTRIBUTES="team=a")
    requests = [ExportTraceServiceRequest.FromString(body) for _, body in posted]
    assert all(len(UnknownFieldSet(request)) == 0 for request in requests)
    resources = [part.resource for request in requests for part in request.resource_spans]
    names = [{pair.key: pair.value.string_value for pair in resource.attributes} for resource in resources]
    assert all(name["service.name"] == "forebay" and name["team"] == "a" for name in names)
    spans = [span for r in requests for part in r.resource_spans for scope in part.scope_spans for span in scope.spans]
    by_name = {span.name: span for span in spans}
    root = by_name["run told"]
    assert {"write out", "train net", "epoch 2"} < set(by_name)
    assert by_name["write out"].parent_span_id == root.span_id
    assert by_name["epoch 2"].parent_span_id == by_name["train net"].span_id
    assert all(span.trace_id == root.trace_id and len(span.trace_id) == 16 and len(span.span_id) == 8 for span in spans)
    pass_attributes = {pair.key for pair in by_name["write out"].attributes}
    assert {"forebay.rows", "forebay.pass.reused", "forebay.pass.id"} <= pass_attributes


def test_lineage_fits_the_client(place: Place) -> None:
    from openlineage.client import facet_v2
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

    place.call("run", "spec.yaml", "--state=traced", "--lineage=events.jsonl", "--run-id=tonight")
    events = [json.loads(line) for line in (place.root / "events.jsonl").read_text().splitlines()]
    classes = {
        kind: getattr(module, kind)
        for module in vars(facet_v2).values()
        for kind in dir(module)
        if kind.endswith("Facet")
    }
    seen = set()
    for event in events:
        # The client checks ids, times and addresses.
        made = RunEvent(
            eventTime=event["eventTime"],
            producer=event["producer"],
            eventType=RunState[event["eventType"]],
            run=Run(event["run"]["runId"]),
            job=Job(event["job"]["namespace"], event["job"]["name"]),
            inputs=[InputDataset(data["namespace"], data["name"]) for data in event["inputs"]],
            outputs=[OutputDataset(data["namespace"], data["name"]) for data in event["outputs"]],
        )
        assert made.schemaURL == event["schemaURL"]
        holders = [event["run"]["facets"], event["job"]["facets"]]
        for data in [*event["inputs"], *event["outputs"]]:
            holders += [data.get(kind, {}) for kind in ("facets", "inputFacets", "outputFacets")]
        for name, facet in ((name, facet) for holder in holders for name, facet in holder.items()):
            kind = classes[facet["_schemaURL"].rpartition("/")[2]]
            built = kind(**{key: value for key, value in facet.items() if not key.startswith("_")})
            assert built._get_schema() == facet["_schemaURL"], name
            seen.add(name)
    wanted = {"schema", "columnLineage", "outputStatistics", "dataQualityMetrics", "dataQualityAssertions", "jobType"}
    assert wanted <= seen
    metrics = events[-1]["inputs"][0]["inputFacets"]["dataQualityMetrics"]["columnMetrics"]
    assert metrics["qty"]["nullCount"] + metrics["qty"]["count"] == len(place.sales)
    assert metrics["price"]["sum"] == pytest.approx(place.sales["price"].sum(), rel=1e-12)


def test_tensorboard_reads_its_files(place: Place) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    summary = place.call("run", "spec.yaml", "--state=board", "--tensorboard=board")
    (model,) = summary["models"]
    board = EventAccumulator(str(place.root / "board/net" / model["id"][:12]))
    board.Reload()
    assert {"epoch/loss", "epoch/wait_seconds", "epoch/starved_steps"} <= set(board.Tags()["scalars"])
    losses = board.Scalars("epoch/loss")
    assert [scalar.step for scalar in losses] == [epoch["step"] for epoch in model["epochs"]]
    assert [scalar.value for scalar in losses] == pytest.approx([epoch["loss"] for epoch in model["epochs"]], rel=1e-6)


def test_metrics_are_those_of_prometheus(place: Place) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    place.call("run", "spec.yaml", "--state=measured", "--metrics-file=run.prom")
    families = list(text_string_to_metric_families((place.root / "run.prom").read_text()))
    assert len(families) == len({family.name for family in families})
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert all(sample.labels["pipeline"] == "told" for sample in samples.values())
    assert samples["forebay_run_success"].value == 1.0
    kept = place.sales["qty"].notna().sum()
    assert samples["forebay_output_rows"].value == kept


def test_profiles_equal_those_of_pandas(place: Place) -> None:
    profile = place.call("profile", "spec.yaml", "sales", "--pairs", "--demand=qty", "--state=profile")["profile"]
    frame = place.sales
    described = frame[["price", "qty"]].describe()
    columns = {column["name"]: column for column in profile["columns"]}
    for name in ("price", "qty"):
        numeric = columns[name]["numeric"]
        for ours, theirs in [("mean", "mean"), ("std", "std"), ("min", "min"), ("max", "max")]:
            assert numeric[ours] == pytest.approx(described[name][theirs], rel=1e-12)
        assert columns[name]["nulls"] == frame[name].isna().sum()
        for percent in (25, 50, 75):
            assert numeric["quantiles"][percent] == pytest.approx(described[name][f"{percent}%"], rel=1e-12)
    counts = frame["category"].value_counts()
    assert {value["value"]: value["count"] for value in columns["category"]["frequent"]} == counts.to_dict()

    pairs = {(pair["first"], pair["second"]): pair for pair in profile["pairs"]}
    numbers = ["store", "item", "price", "qty"]
    correlations = frame[numbers].corr()
    for first, second in [pair for pair in pairs if "correlation" in pairs[pair]]:
        assert pairs[first, second]["correlation"] == pytest.approx(correlations.loc[first, second], abs=1e-12)
    table = pandas.crosstab(frame["category"], frame["shelf"]).to_numpy()
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    chi = ((table - expected) ** 2 / expected).sum()
    association = (chi / table.sum() / (min(table.shape) - 1)) ** 0.5
    assert pairs["category", "shelf"]["cramers_v"] == pytest.approx(association, rel=1e-12)

    series = frame.groupby(["store", "item"])
    periods = (series["day"].max() - series["day"].min()).dt.days + 1
    rows = series.size()
    demands = series["qty"].apply(lambda qty: (qty.fillna(0) != 0).sum())
    told = profile["series"]
    assert (told["series"], told["period"]) == (len(rows), "1d")
    assert told["rows_per_series"] == pytest.approx([rows.min(), rows.mean(), rows.max()])
    assert told["gaps"] == (periods - rows).sum()
    assert told["series_with_gaps"] == ((periods - rows) > 0).sum()
    assert told["demand"] == "qty"
    assert told["intermittent"] == (periods >= 1.32 * demands).sum()
    assert told["rows_per_period"] == pytest.approx(len(frame) / 60)


class Mlflow(http.server.BaseHTTPRequestHandler):
    """Takes everything as a server of MLflow does."""

    told: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def answer(self, body: bytes) -> None:
        what = self.path.split("/mlflow/")[1].split("?")[0]
        Mlflow.told.append((what, json.loads(body or b"{}")))
        known = {"experiments/create": {"experiment_id": "7"}, "runs/create": {"run": {"info": {"run_id": "r1"}}}}
        answer = json.dumps(known.get(what, {})).encode()
        self.send_response(404 if what == "experiments/get-by-name" else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("as_text", [True, False])
def test_python_tracks_trainings_as_the_pipeline_says(tmp_path: pathlib.Path, as_text: bool) -> None:
    sales().to_parquet(tmp_path / "sales.parquet")
    Mlflow.told.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mlflow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pipeline = forebay.Pipeline(
            "told",
            sources={"sales": sources.parquet(str(tmp_path / "sales.parquet"))},
            steps={"features": {"from": "sales", "do": [transforms.filter("qty IS NOT NULL")]}},
            sinks={
                "net": sinks.train(
                    str(tmp_path / "net"),
                    from_="features",
                    model="linear",
                    label="qty",
                    dense=["price"],
                    batch_rows=256,
                    epochs=3,
                    mlflow={"uri": f"http://127.0.0.1:{server.server_port}", "experiment": "of the spec"},
                )
            },
        )
        if as_text:
            (tmp_path / "spec.yaml").write_text(pipeline.to_yaml())
            summary = forebay.run(tmp_path / "spec.yaml", state=tmp_path / "state", threads=2)
        else:
            summary = pipeline.run(state=tmp_path / "state", threads=2)
        server.shutdown()
    assert ("experiments/create", {"name": "of the spec"}) in Mlflow.told
    (created,) = [body for what, body in Mlflow.told if what == "runs/create"]
    (model,) = summary["models"]
    assert {"key": "forebay.training", "value": model["id"]} in created["tags"]
    # When the run has ended, all is told.
    assert Mlflow.told[-1][0] == "runs/update"
    assert Mlflow.told[-1][1]["status"] == "FINISHED"


if mlflow := os.environ.get("FOREBAY_MLFLOW"):

    @pytest.fixture
    def tracking(tmp_path: pathlib.Path) -> Iterator[str]:
        """A server of MLflow with a store of its own."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        store = f"sqlite:///{tmp_path}/mlflow.db"
        server = subprocess.Popen(
            [mlflow, "server", "--backend-store-uri", store, "--port", str(port), "--workers", "1"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 180
        while True:
            try:
                # Its first answer takes long; a run waits no more than five seconds.
                search = f"{url}/api/2.0/mlflow/experiments/search?max_results=1"
                urllib.request.urlopen(search, timeout=60).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, "MLflow does not start"
                time.sleep(0.5)
        yield url
        server.terminate()
        server.wait()

    def test_mlflow_keeps_trainings(place: Place, tracking: str) -> None:
        def ask(what: str, body: dict[str, Any]) -> dict[str, Any]:
            url = f"{tracking}/api/2.0/mlflow/{what}"
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        summary = place.call("run", "spec.yaml", "--state=tracked", "--mlflow", tracking, "--run-id=tonight")
        (model,) = summary["models"]
        experiments = ask("experiments/search", {"max_results": 10})["experiments"]
        (experiment,) = [found for found in experiments if found["name"] == "told"]
        (run,) = ask("runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
        assert run["info"]["status"] == "FINISHED"
        data = {
            kind: {pair["key"]: pair["value"] for pair in run["data"][kind]} for kind in ("params", "tags", "metrics")
        }
        assert data["params"]["model"] == "linear"
        assert data["tags"]["forebay.run_id"] == "tonight"
        assert data["tags"]["forebay.model"] == model["id"]
        assert data["metrics"]["epoch_loss"] == pytest.approx(model["epochs"][-1]["loss"])
        history = f"{tracking}/api/2.0/mlflow/metrics/get-history?run_id={run['info']['run_id']}&metric_key=epoch_loss"
        with urllib.request.urlopen(history, timeout=10) as answer:
            assert len(json.load(answer)["metrics"]) == 3
