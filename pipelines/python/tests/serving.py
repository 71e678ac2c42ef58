"""A served shop: an artifact and a model, and what their rows have to become."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet

PROGRAM = os.environ.get("FOREBAY_SERVE_BIN") or str(pathlib.Path(sysconfig.get_path("scripts")) / "forebay")

ROWS = 2000

SPEC = """
version: 1
name: shop
params:
  data: { type: path }
  out: { type: path }
sources:
  shop: { parquet: { path: "${data}" }, keys: [id] }
steps:
  features:
    from: shop
    fit_on: train
    do:
      - standardize: { columns: [price] }
      - derive: { weekday: "CAST(day % 7 AS SMALLINT)", shelf: "item || '/' || store" }
      - vocabulary: { columns: [item], min_count: 1, oov_buckets: 1 }
split: { train: "day < 80", validation: "day >= 80" }
sinks:
  table: { from: features, parquet: { path: "${out}/table" } }
  net:
    from: features
    train: { path: "${out}/net", model: linear, label: bought, dense: [price, weekday], epochs: 1, missing: 0 }
"""

INPUTS = ["id", "day", "price", "item", "store"]


def history(rows: int = ROWS, seed: int = 7) -> pyarrow.Table:
    """Rows with missing prices and stores."""
    rng = numpy.random.default_rng(seed)
    ids = numpy.arange(rows)
    price = pyarrow.array(rng.gamma(2.0, 3.0, rows), mask=rng.random(rows) < 0.05)
    store = pyarrow.array([f"s{number}" for number in rng.integers(0, 5, rows)], mask=rng.random(rows) < 0.05)
    return pyarrow.table(
        {
            "id": pyarrow.array(ids, pyarrow.int32()),
            "day": pyarrow.array(ids * 100 // rows, pyarrow.int32()),
            "price": price,
            "item": [f"item-{number}" for number in rng.integers(0, 40, rows)],
            "store": store,
            "bought": rng.random(rows).astype(numpy.float32),
        }
    )


class Shop:
    """Where the data, the outputs and the state are."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.state = root / "state"
        (root / "data").mkdir(parents=True)
        pyarrow.parquet.write_table(history(), root / "data" / "a.parquet")
        (root / "shop.yaml").write_text(SPEC)

    def run(self) -> dict[str, Any]:
        """Runs the spec. Returns the summary."""
        words = ["run", self.root / "shop.yaml", f"--param=data={self.root / 'data'}"]
        words += [f"--param=out={self.root / 'out'}", "--state", self.state, "--json", "--memory=1GiB"]
        done = program(*words)
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary

    def grow(self, seed: int) -> None:
        """Adds a file, so that the next run learns something else."""
        pyarrow.parquet.write_table(history(seed=seed), self.root / "data" / f"b{seed}.parquet")

    def published(self) -> pyarrow.Table:
        """The features of the first file as the run published them."""
        files = sorted((self.root / "out" / "table").glob("*.parquet"))
        table = pyarrow.concat_tables(pyarrow.parquet.read_table(file) for file in files)
        return table.sort_by("id")


def program(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command."""
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, **more)


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving `"), line + (process.stderr.read() if process.stderr else "")
        self.name = line.split("`")[1]
        self.version = line.split(" version ")[1].split()[0]
        self.address = line.split(" at ")[1].strip()
        self.url = f"http://{self.address}"

    def call(
        self, method: str, path: str, body: bytes | str | None = None, **headers: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Sends a request on a connection of its own."""
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            words = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, words)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """Posts JSON, and reads JSON."""
        status, answer, _ = self.call("POST", path, json.dumps(body), content_type="application/json", **headers)
        assert status == 200, answer
        return json.loads(answer)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        _, text, _ = self.call("GET", "/metrics")
        lines = [line for line in text.decode().splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@contextlib.contextmanager
def serving(*words: object, **more: Any) -> Iterator[Server]:
    """A server on a free port, which ends at SIGTERM."""
    command = [PROGRAM, "serve", *map(str, words), "--listen=127.0.0.1:0", "--memory=1GiB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        yield Server(process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def records(table: pyarrow.Table, start: int, rows: int) -> list[dict[str, Any]]:
    """Rows as objects of the inputs."""
    rows_of_table: list[dict[str, Any]] = table.select(INPUTS).slice(start, rows).to_pylist()
    return rows_of_table


def copied(shop: Shop, root: pathlib.Path) -> Shop:
    """A shop of its own, for tests that run it again."""
    shutil.copytree(shop.root, root, symlinks=True)
    other = Shop.__new__(Shop)
    other.root = root
    other.state = root / "state"
    return other
