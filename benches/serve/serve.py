"""Latency and throughput of `forebay serve`, by HTTP (`wrk`) and gRPC, beside peers, one row a request.

Two jobs. `windows`: 100 lags and windows of a row, from the states of a million series. `numbers`: 100 numbers of a
row, each standardised (missing values by their mean). Peers are Feast's feature server, which looks the 100 finished
features of `windows` up in SQLite, and scikit-learn's `StandardScaler` behind FastAPI, which computes `numbers`.
`--jobs` and `--peers` choose among them. The job `onnx` compares exported models in onnxruntime with
`forebay predict`.

`wrk` sends as many requests as are answered, then so many a second (`--rate`).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import onnx_models

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

#: The file with what a server writes to standard error.
ERRORS = "server-errors.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target" / "release" / "forebay"))
    parser.add_argument("--features", type=int, default=100)
    jobs = ["windows", "numbers", "onnx"]
    parser.add_argument("--jobs", nargs="+", default=jobs, choices=jobs)
    parser.add_argument("--onnx-rows", type=int, default=1_000_000, help="that models in onnxruntime predict")
    parser.add_argument("--series", type=int, default=1_000_000, help="of the job `windows`")
    parser.add_argument("--days", type=int, default=35, help="of its history")
    parser.add_argument("--rows", type=int, default=100_000, help="that the job `numbers` learns from")
    parser.add_argument("--rate", type=int, default=5_000, help="requests a second of lines with a fixed rate")
    parser.add_argument("--latency-program", default=str(ROOT / "target" / "release" / "examples" / "serve_latency"))
    parser.add_argument("--seconds", type=int, default=10, help="of load by each measurement")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--peers", nargs="*", default=["sklearn", "feast"], choices=["sklearn", "feast"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--memory", default="1GiB", help="of the server; an eighth of it holds states in memory")
    arguments = parser.parse_args()
    if arguments.jobs != ["onnx"] and shutil.which("wrk") is None:
        sys.exit("`wrk` is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory(prefix="forebay-serve-") as folder:
        measure(arguments, pathlib.Path(folder))


def measure(arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    print(f"{arguments.features} features, {os.cpu_count()} cores; one row a request\n")
    print(
        "| job | server | protocol | connections | requests/s | p50 ms | p99 ms | ready after s | state MiB "
        "| peak MiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    if "windows" in arguments.jobs:
        measure_windows(arguments, folder)
    if "numbers" in arguments.jobs:
        measure_numbers(arguments, folder)
    if "onnx" in arguments.jobs:
        onnx_models.measure_onnx(arguments.program, folder, arguments.rows, arguments.onnx_rows)


def measure_numbers(arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    names = [f"f{number}" for number in range(arguments.features)]
    table = make_history(folder, names, arguments.rows)
    artifact = fit(arguments, folder, names)
    rows = table.slice(0, 1000).to_pylist()
    columns = {"id": "INT64", **dict.fromkeys(names, "FP64")}
    measure_forebay(arguments, folder, Job("numbers", artifact, "id", columns, rows))
    if "sklearn" in arguments.peers:
        measure_sklearn(arguments, folder, rows)


def make_history(folder: pathlib.Path, names: list[str], rows: int) -> object:
    import numpy
    import pyarrow
    import pyarrow.parquet

    rng = numpy.random.default_rng(1)
    columns = {"id": pyarrow.array(numpy.arange(rows), pyarrow.int64())}
    for name in names:
        columns[name] = pyarrow.array(rng.gamma(2.0, 3.0, rows), mask=rng.random(rows) < 0.02)
    table = pyarrow.table(columns)
    (folder / "data").mkdir()
    pyarrow.parquet.write_table(table, folder / "data" / "history.parquet")
    return table


def fit(arguments: argparse.Namespace, folder: pathlib.Path, names: list[str]) -> str:
    columns = ", ".join(names)
    spec = f"""
version: 1
name: numbers
sources:
  history: {{ parquet: {{ path: "{folder / 'data'}" }}, keys: [id] }}
steps:
  features:
    from: history
    do:
      - impute: {{ columns: [{columns}], with: mean }}
      - standardize: {{ columns: [{columns}] }}
sinks:
  table: {{ from: features, parquet: {{ path: "{folder / 'out'}" }} }}
"""
    return fit_spec(arguments, folder, "numbers", spec)


def fit_spec(arguments: argparse.Namespace, folder: pathlib.Path, name: str, spec: str) -> str:
    """Learns from the data of a spec. Returns the directory of the artifact."""
    path = folder / f"{name}.yaml"
    path.write_text(spec)
    words = [arguments.program, "fit", path, "--state", folder / "state", "--json"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return str(json.loads(done.stdout.splitlines()[-1])["artifact_path"])


@dataclasses.dataclass
class Job:
    """An artifact, its key, the tensor types of its columns, and rows that are asked for."""

    name: str
    artifact: str
    key: str
    columns: dict[str, str]
    rows: list[dict]


# 56 lags, 36 statistics of windows, 2 weighted means, 2 expanding ones, 2 of the season, 2 differences.
WINDOWS = """
version: 1
name: windows
sources:
  sales: { parquet: { path: "SALES" }, time: date, keys: [item] }
steps:
  features:
    from: sales
    do:
      - lag: { columns: [qty, price], by: [LAGS] }
      - rolling:
          columns: [qty, price]
          compute: [mean, std, min, max, sum, median]
          over: [7d, 14d, 28d]
          gap: 1d
      - ewm: { columns: [qty, price], compute: [mean], half_life: 7d, gap: 1d }
      - expanding: { columns: [qty], compute: [mean, max], gap: 1d }
      - seasonal_rolling: { columns: [qty, price], compute: [mean], season: 7d, over: [4], gap: 7d }
      - derive: { qty_week: "qty_lag_1d - qty_lag_8d", price_week: "price_lag_1d - price_lag_8d" }
serving: { from: features }
sinks:
  table: { from: features, parquet: { path: "OUT" } }
"""


def make_sales(folder: pathlib.Path, series: int, days: int) -> list[dict]:
    """Writes a file for each day. Returns rows of the day after them."""
    import datetime

    import numpy
    import pyarrow
    import pyarrow.parquet

    rng = numpy.random.default_rng(2)
    items = pyarrow.array(numpy.arange(series), pyarrow.int64())
    first = datetime.date(2026, 1, 1)
    (folder / "sales").mkdir()
    for day in range(days):
        date = first + datetime.timedelta(days=day)
        columns = {
            "date": pyarrow.array([date], pyarrow.date32()).take(pyarrow.array(numpy.zeros(series, numpy.int64))),
            "item": items,
            "qty": pyarrow.array(rng.poisson(1.5, series).astype(numpy.float64)),
            "price": pyarrow.array(rng.integers(1, 40, series) / 4.0),
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "sales" / f"{day:03}.parquet")
    date = str(first + datetime.timedelta(days=days))
    chosen = rng.integers(0, series, 20_000).tolist()
    return [{"date": date, "item": item, "qty": 0.0, "price": 2.5} for item in chosen]


def measure_windows(arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    rows = make_sales(folder, arguments.series, arguments.days)
    lags = ", ".join(f"{lag}d" for lag in range(1, 29))
    spec = WINDOWS.replace("SALES", str(folder / "sales")).replace("OUT", str(folder / "windows-out"))
    artifact = fit_spec(arguments, folder, "windows", spec.replace("LAGS", lags))
    columns = {"date": "BYTES", "item": "INT64", "qty": "FP64", "price": "FP64"}
    job = Job("windows", artifact, "item", columns, rows)
    measure_in_process(arguments, folder, job)
    features = measure_forebay(arguments, folder, job)
    if "feast" in arguments.peers:
        measure_feast(arguments, folder, features)


def measure_in_process(arguments: argparse.Namespace, folder: pathlib.Path, job: Job) -> None:
    """Latency of `ServingModel::apply` in one thread, without a server."""
    if not pathlib.Path(arguments.latency_program).exists():
        print(f"{arguments.latency_program} is not built: no latency in process", file=sys.stderr)
        return
    rows = write_bodies(folder, job.rows)
    words = [arguments.latency_program, job.artifact, str(rows)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    figures = json.loads(done.stdout)
    print(
        f"| {job.name} | forebay | in process | | {figures['rate']:,.0f} | {figures['p50_ms']:.3f} "
        f"| {figures['p99_ms']:.3f} | {figures['ready_seconds']:.2f} | {figures['state_bytes'] / 2**20:.0f} | |",
        flush=True,
    )


@contextlib.contextmanager
def running(command: list[str], folder: pathlib.Path):
    """A server process, which gets SIGTERM at the end. It writes its errors to a file of the folder."""
    with (folder / ERRORS).open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        if process.poll() is None:
            process.kill()
        process.wait()


def peak_mib(process: subprocess.Popen) -> int:
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) // 1024 if found else 0


@dataclasses.dataclass
class Running:
    """A server under measurement, and how it is named in the table."""

    job: str
    name: str
    process: subprocess.Popen
    ready: float
    state_bytes: float | None = None

    def line(self, protocol: str, connections: int, figures: dict) -> None:
        state = "" if self.state_bytes is None else f"{self.state_bytes / 2**20:.0f}"
        print(
            f"| {self.job} | {self.name} | {protocol} | {connections} | {figures['rate']:,.0f} "
            f"| {figures['p50']:.2f} | {figures['p99']:.2f} | {self.ready:.2f} | {state} "
            f"| {peak_mib(self.process)} |",
            flush=True,
        )


def wrk(url: str, bodies: pathlib.Path, connections: int, seconds: int, rate: int | None = None) -> dict:
    """As many requests as are answered, or so many a second."""
    command = ["wrk", "--latency", f"-c{connections}", "-t1", f"-d{seconds}s", "-s", str(HERE / "load.lua"), url]
    environment = {**os.environ, "BODIES": str(bodies)}
    if rate is not None:
        environment["RATE"] = str(rate)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0 or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        sys.exit(f"requests failed: {done.stdout}{done.stderr}")
    answered = float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout).group(1))
    return {"rate": answered, "p50": percentile(done.stdout, 50), "p99": percentile(done.stdout, 99)}


def percentile(text: str, number: int) -> float:
    value, unit = re.search(rf"^\s+{number}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE).groups()
    return float(value) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[unit]


def write_bodies(folder: pathlib.Path, bodies: list[object]) -> pathlib.Path:
    path = folder / "bodies.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return path


def measure_forebay(arguments: argparse.Namespace, folder: pathlib.Path, job: Job) -> object:
    """Returns the features of some keys of the job's rows, where a state of series has them."""
    words = ["--listen=127.0.0.1:0", f"--threads={arguments.threads}", f"--memory={arguments.memory}"]
    started = time.monotonic()
    with running([arguments.program, "serve", job.artifact, *words], folder) as process:
        first = process.stdout.readline()
        if " at " not in first:
            sys.exit((folder / ERRORS).read_text())
        address = first.split(" at ")[1].strip()
        server = Running(job.name, "forebay", process, time.monotonic() - started, state_bytes(address))
        tensors = [
            {
                "inputs": [
                    {"name": name, "datatype": kind, "shape": [1], "data": [row[name]]}
                    for name, kind in job.columns.items()
                ]
            }
            for row in job.rows
        ]
        requests = [
            ("infer, JSON", f"v2/models/{job.name}/infer", tensors),
            ("apply, JSON", "apply", [[row] for row in job.rows]),
        ]
        if server.state_bytes is not None:
            online = [
                {"entities": {name: [value] for name, value in row.items()}, "feature_service": job.name}
                for row in job.rows
            ]
            requests.append(("Feast's, JSON", "get-online-features", online))
        for protocol, route, bodies in requests:
            measure_http(arguments, server, protocol, f"http://{address}/{route}", write_bodies(folder, bodies))
        for connections in arguments.connections:
            figures = grpc_load(address, job, connections, arguments.seconds)
            server.line("gRPC (client in Python)", connections, figures)
        return None if server.state_bytes is None else features_of_keys(address, job)


def measure_http(arguments: argparse.Namespace, server: Running, protocol: str, url: str, bodies: pathlib.Path) -> None:
    """Lines of a protocol: for each number of connections, and at a fixed rate."""
    for connections in arguments.connections:
        figures = wrk(url, bodies, connections, arguments.seconds)
        server.line(protocol, connections, figures)
    connections = max(arguments.connections)
    if figures["rate"] > arguments.rate:
        figures = wrk(url, bodies, connections, arguments.seconds, arguments.rate)
        server.line(f"{protocol}, {arguments.rate:,} a second", connections, figures)


def features_of_keys(address: str, job: Job) -> object:
    """Answers of some rows with different keys, by an Arrow stream."""
    import pyarrow

    rows = list({row[job.key]: row for row in job.rows}.values())[:FEAST_KEYS]
    table = pyarrow.Table.from_pylist(rows)
    stream = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    request = urllib.request.Request(f"http://{address}/apply", stream.getvalue().to_pybytes(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answers = pyarrow.ipc.open_stream(answer.read()).read_all()
    row_columns = [name for name in job.columns if name in answers.column_names]
    return answers.drop_columns(row_columns).append_column(job.key, table[job.key])


def state_bytes(address: str) -> float | None:
    """Bytes of the state of series; none for a model without one."""
    with urllib.request.urlopen(f"http://{address}/versions", timeout=10) as answer:
        state = json.load(answer)["current"]["state"]
    return None if state is None else float(state["bytes"])


def grpc_load(address: str, job: Job, connections: int, seconds: int) -> dict:
    import numpy
    import tritonclient.grpc as triton

    def tensors(row: dict) -> list:
        inputs = []
        for name, kind in job.columns.items():
            value = float("nan") if row[name] is None else row[name]
            tensor = triton.InferInput(name, [1], kind)
            tensor.set_data_from_numpy(numpy.array([value], types[kind]))
            inputs.append(tensor)
        return inputs

    types = {"INT64": numpy.int64, "FP64": numpy.float64, "BYTES": numpy.object_}
    prepared = [tensors(row) for row in job.rows[:100]]
    durations: list[float] = []
    end = time.monotonic() + seconds

    def ask() -> None:
        client = triton.InferenceServerClient(address)
        turn = 0
        while time.monotonic() < end:
            started = time.perf_counter()
            client.infer(job.name, prepared[turn % len(prepared)])
            durations.append(time.perf_counter() - started)
            turn += 1
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    durations.sort()
    last = len(durations) - 1
    p50 = durations[int(0.5 * last)] * 1000
    p99 = durations[int(0.99 * last)] * 1000
    return {"rate": len(durations) / seconds, "p50": p50, "p99": p99}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_ready(url: str, started: float, folder: pathlib.Path) -> float:
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).read()
            return time.monotonic() - started
        except OSError:
            if time.monotonic() - started > 120:
                sys.exit(f"{url} does not answer: {(folder / ERRORS).read_text()}")
            time.sleep(0.05)


SKLEARN = """
import numpy, pyarrow.parquet, sys
from fastapi import FastAPI, Request
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

table = pyarrow.parquet.read_table("data/history.parquet").drop_columns("id")
names = table.column_names
numbers = numpy.column_stack([column.to_numpy() for column in table])
model = make_pipeline(SimpleImputer(), StandardScaler()).fit(numbers)
app = FastAPI()

@app.get("/health")
def health():
    return {}

@app.post("/apply")
async def apply(request: Request):
    rows = await request.json()
    numbers = [[numpy.nan if row[name] is None else row[name] for name in names] for row in rows]
    return [dict(zip(names, row)) for row in model.transform(numpy.array(numbers)).tolist()]
"""


def measure_sklearn(arguments: argparse.Namespace, folder: pathlib.Path, rows: list[dict]) -> None:
    (folder / "sklearn_app.py").write_text(SKLEARN)
    port = free_port()
    words = ["uvicorn", "sklearn_app:app", "--port", str(port), "--workers", "1", "--log-level", "error"]
    bodies = write_bodies(folder, [[row] for row in rows])
    started = time.monotonic()
    with running([sys.executable, "-m", *words], folder) as process:
        ready = wait_ready(f"http://127.0.0.1:{port}/health", started, folder)
        server = Running("numbers", "scikit-learn, FastAPI", process, ready)
        measure_http(arguments, server, "JSON", f"http://127.0.0.1:{port}/apply", bodies)


#: Keys that Feast's server knows: it materialises a row of the database for each value.
FEAST_KEYS = 10_000

FEAST = """
from datetime import timedelta
from feast import Entity, FeatureView, Field, FileSource, ValueType
from feast.types import Float64

source = FileSource(path="feast.parquet", timestamp_field="event_timestamp")
key = Entity(name="item", join_keys=["item"], value_type=ValueType.INT64)
windows = FeatureView(name="windows", entities=[key], ttl=timedelta(days=3650), source=source, online=True,
                      schema=[Field(name=name, dtype=Float64) for name in NAMES])
"""

FEAST_STORE = """
project: windows
provider: local
registry: registry.db
online_store: { type: sqlite, path: online.db }
entity_key_serialization_version: 3
"""


def measure_feast(arguments: argparse.Namespace, folder: pathlib.Path, features: object) -> None:
    import datetime

    import pyarrow
    import pyarrow.parquet

    now = datetime.datetime.now(datetime.UTC)
    times = pyarrow.array([now - datetime.timedelta(hours=1)] * len(features), pyarrow.timestamp("us", "UTC"))
    pyarrow.parquet.write_table(features.append_column("event_timestamp", times), folder / "feast.parquet")
    names = [name for name in features.column_names if name != "item"]
    (folder / "features.py").write_text(FEAST.replace("NAMES", repr(names)))
    (folder / "feature_store.yaml").write_text(FEAST_STORE)
    feast = [sys.executable, "-m", "feast.cli.cli"]
    until = (now + datetime.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S")
    for words in [["apply"], ["materialize-incremental", until]]:
        done = subprocess.run([*feast, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"feast {words[0]}: {done.stdout}{done.stderr}")
    asked = [f"windows:{name}" for name in names]
    requests = [{"entities": {"item": [key]}, "features": asked} for key in features["item"].to_pylist()[:1000]]
    bodies = write_bodies(folder, requests)
    port = free_port()
    started = time.monotonic()
    with running([*feast, "serve", "--port", str(port), "--no-access-log"], folder) as process:
        ready = wait_ready(f"http://127.0.0.1:{port}/health", started, folder)
        server = Running("windows", "Feast, SQLite", process, ready)
        measure_http(arguments, server, "Feast's, JSON", f"http://127.0.0.1:{port}/get-online-features", bodies)


if __name__ == "__main__":
    main()
