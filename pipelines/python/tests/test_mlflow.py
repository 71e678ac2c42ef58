"""Trained models in the registry of MLflow.

MLflow is not among the requirements of all tests; without it, none of these is collected:
  pip install mlflow onnxruntime pandas
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import forebay

SPEC = """
version: 1
name: logged
sources:
  data: { parquet: { path: DATA }, keys: [id] }
steps:
  features:
    from: data
    do:
      - standardize: { columns: [price] }
      - vocabulary: { columns: [item], oov_buckets: 1 }
sinks:
  trees:
    from: features
    train: { path: OUT, model: gbdt, label: y, dense: [price], categorical: [item], rounds: 8 }
"""


def rows() -> pyarrow.Table:
    rng = numpy.random.default_rng(5)
    price = rng.gamma(2.0, 3.0, 2000)
    item = rng.integers(0, 20, 2000)
    return pyarrow.table(
        {
            "id": numpy.arange(2000),
            "price": pyarrow.array(price, mask=rng.random(2000) < 0.1),
            "item": [f"item-{number}" for number in item],
            "y": price + numpy.sin(item) + rng.normal(size=2000),
        }
    )


if importlib.util.find_spec("mlflow") and importlib.util.find_spec("onnxruntime"):

    @pytest.fixture(scope="module")
    def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Any:
        import mlflow

        folder = tmp_path_factory.mktemp("mlflow")
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.create_experiment("logged", artifact_location=str(folder / "artifacts"))
        mlflow.set_experiment("logged")
        return mlflow

    @pytest.fixture(scope="module")
    def trained(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
        """A folder with a trained model, `trees`, and its data."""
        root = tmp_path_factory.mktemp("trained")
        (root / "data").mkdir()
        pyarrow.parquet.write_table(rows(), root / "data" / "a.parquet")
        spec = root / "spec.yaml"
        spec.write_text(SPEC.replace("DATA", str(root / "data")).replace("OUT", str(root / "trees")))
        forebay.run(spec, state=root / "state")
        return root

    def features() -> Any:
        """The columns that the model takes, as a frame."""
        return rows().select(["price", "item"]).to_pandas().astype({"item": object})

    def expected(root: pathlib.Path, output: pathlib.Path) -> Any:
        """The program's own predictions, in the order of the rows."""
        forebay.predict(root / "trees", {"data": root / "data"}, output, columns=["id"])
        return pyarrow.parquet.read_table(output).sort_by("id")["prediction"].to_numpy()

    def test_a_model_is_registered_and_predicts_as_the_program(
        mlflow: Any, trained: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        from forebay.mlflow import log_model

        frame = features()
        for version in ["1", "2"]:
            with mlflow.start_run():
                info = log_model(trained / "trees", frame.head(3), registered_model_name="demand")
            assert {column.name for column in info.signature.inputs} == {"price", "item"}
            assert str(info.registered_model_version) == version
        model = mlflow.pyfunc.load_model("models:/demand/2")
        found = model.predict(frame)["prediction"].to_numpy()
        numpy.testing.assert_allclose(found, expected(trained, tmp_path / "predicted"), rtol=1e-6)

    def test_a_served_model_answers_as_the_program(mlflow: Any, trained: pathlib.Path, tmp_path: pathlib.Path) -> None:
        from forebay.mlflow import log_model

        frame = features()
        with mlflow.start_run():
            info = log_model(trained / "trees", frame.head(3))
        prices = [None if numpy.isnan(price) else price for price in frame["price"].tolist()]
        data = [list(row) for row in zip(prices, frame["item"].tolist(), strict=True)]
        with served(mlflow, info.model_uri) as url:
            answer = answered(url, {"dataframe_split": {"columns": ["price", "item"], "data": data}})
            # One row, and a column that is missing.
            single = answered(url, {"dataframe_records": [{"price": prices[1], "item": frame["item"][1]}]})
            with pytest.raises(urllib.error.HTTPError) as refused:
                answered(url, {"dataframe_records": [{"price": 1.0}]})
        wanted = expected(trained, tmp_path / "predicted")
        found = [row["prediction"] for row in answer["predictions"]]
        numpy.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert [row["prediction"] for row in single["predictions"]] == [found[1]]
        assert refused.value.code == 400

    @contextlib.contextmanager
    def served(mlflow: Any, model: str) -> Iterator[str]:
        """The address of `mlflow models serve` on a free port, in this environment."""
        folder = os.path.dirname(sys.executable)
        environment = {
            **os.environ,
            "MLFLOW_TRACKING_URI": mlflow.get_tracking_uri(),
            "PATH": os.pathsep.join([folder, os.environ["PATH"]]),
            # MLflow passes no port 0 on to its server.
            "UVICORN_PORT": "0",
        }
        words = ["mlflow", "models", "serve", "--model-uri", model, "--env-manager", "local"]
        address = ["--host", "127.0.0.1", "--port", "0", "--workers", "1"]
        server = subprocess.Popen(
            [sys.executable, "-m", *words, *address],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield address_of(server)
        finally:
            # The server is a process of its own below the command.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.communicate(timeout=60)

    def address_of(server: subprocess.Popen[str]) -> str:
        """The address that the server names once it listens."""
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(line)
            address = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            if address:
                return address[1]
        raise AssertionError("".join(lines))

    def answered(url: str, body: dict[str, Any]) -> Any:
        """The answer to rows."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/invocations", json.dumps(body).encode(), headers)
        # Straight to the server, whatever proxies the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)
