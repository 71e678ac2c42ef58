"""`forebay serve` as real clients see it.

`requirements-serve.txt` names the clients that are not among the requirements of all tests: without them, their tests
are not collected.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from serving import INPUTS, Server, Shop, history, program, records, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("clients") / "shop")
    shop.artifact = shop.run()["artifact_path"]
    return shop


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Server]:
    with serving(shop.artifact) as server:
        yield server


def arrays(start: int, rows: int) -> dict[str, Any]:
    """Inputs as numpy arrays; texts and prices without gaps, which binary texts cannot show."""
    table = history().select(INPUTS).slice(start, rows)
    columns = {name: table[name].to_pylist() for name in INPUTS}
    return {
        "id": numpy.array(columns["id"], numpy.int32),
        "day": numpy.array(columns["day"], numpy.int32),
        "price": numpy.array([2.0 if price is None else price for price in columns["price"]]),
        "item": numpy.array(columns["item"], numpy.object_),
        "store": numpy.array([store or "s0" for store in columns["store"]], numpy.object_),
    }


TYPES = {"id": "INT32", "day": "INT32", "price": "FP64", "item": "BYTES", "store": "BYTES"}


def expected_rows(server: Server, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    rows = len(inputs["id"])
    rows_of_json = [{name: inputs[name].tolist()[row] for name in INPUTS} for row in range(rows)]
    answered: list[dict[str, Any]] = server.post("/apply", rows_of_json)["rows"]
    return answered


if importlib.util.find_spec("tritonclient"):

    def triton_inputs(client: Any, inputs: dict[str, Any]) -> list[Any]:
        tensors = []
        for name, values in inputs.items():
            tensor = client.InferInput(name, list(values.shape), TYPES[name])
            tensor.set_data_from_numpy(values)
            tensors.append(tensor)
        return tensors

    def check_triton(server: Server, answer: Any, inputs: dict[str, Any], names: list[str]) -> None:
        expected = expected_rows(server, inputs)
        for name in names:
            found = answer.as_numpy(name)
            if found.dtype == numpy.object_:
                texts = [text.decode() if isinstance(text, bytes) else text for text in found]
                assert texts == [row[name] for row in expected], name
            else:
                assert found.tolist() == [row[name] for row in expected], name

    @pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
    @pytest.mark.parametrize("binary", [True, False])
    def test_tritonclient_http(server: Server, binary: bool, compression: str | None) -> None:
        import tritonclient.http as triton

        client = triton.InferenceServerClient(server.address)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("shop")
        assert client.get_model_metadata("shop")["versions"] == [server.version]
        inputs = arrays(5, 20)
        tensors = triton_inputs(triton, inputs)
        if not binary:
            for tensor in tensors:
                tensor.set_data_from_numpy(inputs[tensor.name()], binary_data=False)
        answer = client.infer("shop", tensors, request_id="42", request_compression_algorithm=compression)
        assert answer.get_response()["id"] == "42"
        check_triton(server, answer, inputs, ["price", "weekday", "item", "shelf"])
        outputs = [triton.InferRequestedOutput("weekday"), triton.InferRequestedOutput("price", binary_data=False)]
        answer = client.infer("shop", tensors, outputs=outputs)
        check_triton(server, answer, inputs, ["weekday", "price"])
        assert answer.as_numpy("shelf") is None
        with pytest.raises(Exception, match="there is no model `other`"):
            client.infer("other", tensors)
        with pytest.raises(Exception, match="no column `item`"):
            client.infer("shop", tensors[:3])
        client.close()

    def test_tritonclient_grpc(server: Server) -> None:
        import tritonclient.grpc as triton
        from tritonclient.utils import InferenceServerException

        client = triton.InferenceServerClient(server.address)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("shop")
        metadata = client.get_model_metadata("shop")
        assert list(metadata.versions) == [server.version]
        inputs = arrays(5, 20)
        tensors = triton_inputs(triton, inputs)
        answer = client.infer("shop", tensors, request_id="42", client_timeout=10)
        assert answer.get_response().id == "42"
        check_triton(server, answer, inputs, ["price", "weekday", "item", "shelf"])
        for compression in ["gzip", "deflate"]:
            answer = client.infer("shop", tensors, compression_algorithm=compression)
            check_triton(server, answer, inputs, ["price", "weekday", "item", "shelf"])
        answer = client.infer("shop", tensors, outputs=[triton.InferRequestedOutput("weekday")])
        check_triton(server, answer, inputs, ["weekday"])
        with pytest.raises(InferenceServerException, match="there is no model `other`") as refused:
            client.infer("other", tensors)
        assert refused.value.status() == "StatusCode.NOT_FOUND"
        with pytest.raises(InferenceServerException, match="no column `item`") as refused:
            client.infer("shop", tensors[:3])
        assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
        with pytest.raises(InferenceServerException) as refused:
            client.get_model_config("shop")
        assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
        client.close()


if importlib.util.find_spec("kserve"):

    @pytest.mark.parametrize("protocol", ["rest", "grpc"])
    @pytest.mark.parametrize("form", ["binary", "json"])
    def test_kserve(server: Server, tmp_path: pathlib.Path, protocol: str, form: str) -> None:
        """In a process of its own: the messages of kserve and tritonclient have the same names."""
        inputs = arrays(5, 20)
        request = tmp_path / "request.json"
        request.write_text(json.dumps({name: [TYPES[name], values.tolist()] for name, values in inputs.items()}))
        script = pathlib.Path(__file__).with_name("kserve_client.py")
        words = [sys.executable, script, protocol, form, server.address, request]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        expected = expected_rows(server, inputs)
        for name in ["weekday", "price", "item"]:
            assert found[name] == [row[name] for row in expected], name


if importlib.util.find_spec("mlflow"):

    def test_the_scoring_client_of_mlflow(server: Server) -> None:
        import pandas
        from mlflow.pyfunc.scoring_server.client import ScoringServerClient

        host, port = server.address.split(":")
        client = ScoringServerClient(host, int(port))
        client.ping()
        assert client.get_version()
        inputs = arrays(5, 20)
        answer = client.invoke(pandas.DataFrame(inputs)).get_predictions()
        expected = expected_rows(server, inputs)
        for name in ["weekday", "price", "shelf"]:
            assert answer[name].tolist() == [row[name] for row in expected], name
        with pytest.raises(Exception, match="no column `item`"):
            client.invoke(pandas.DataFrame({"id": [1]}))


if shutil.which("curl"):

    def test_curl(server: Server, tmp_path: pathlib.Path) -> None:
        rows = records(history(), 3, 4)
        expected = server.post("/apply", rows)["rows"]
        words = ["curl", "--silent", "--show-error", "--fail", f"{server.url}/apply"]
        done = subprocess.run([*words, "-d", json.dumps({"rows": rows})], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == expected
        # A stream of Arrow, answered with one.
        stream = tmp_path / "rows.arrow"
        table = history().select(INPUTS).slice(3, 4)
        with pyarrow.ipc.new_stream(str(stream), table.schema) as writer:
            writer.write_table(table)
        kind = "Content-Type: application/vnd.apache.arrow.stream"
        answered = subprocess.run([*words, "-H", kind, "--data-binary", f"@{stream}"], capture_output=True, check=False)
        assert answered.returncode == 0, answered.stderr
        answer = pyarrow.ipc.open_stream(answered.stdout).read_all()
        assert answer["weekday"].to_pylist() == [row["weekday"] for row in expected]


if importlib.util.find_spec("feast"):

    def test_feast_remote_online_store(server: Server, tmp_path: pathlib.Path) -> None:
        from feast import FeatureStore
        from feast.errors import FeatureViewNotFoundException

        (tmp_path / "feature_store.yaml").write_text(
            f"""
project: shop
provider: local
registry: {{ registry_type: file, path: missing.db }}
online_store: {{ type: remote, path: "{server.url}" }}
entity_key_serialization_version: 3
"""
        )
        store = FeatureStore(repo_path=str(tmp_path))
        rows = records(history(), 3, 6)
        expected = server.post("/apply", rows)["rows"]
        response = store.get_online_features(features=["shop:price", "shop:weekday", "shop:shelf"], entity_rows=rows)
        found = response.to_dict()
        for name in ["weekday", "shelf"]:
            assert found[name] == [row[name] for row in expected], name
        for price, row in zip(found["price"], expected, strict=True):
            assert price == row["price"] or price == pytest.approx(row["price"], rel=1e-6)
        assert found["id"] == [3, 4, 5, 6, 7, 8]
        full = store.get_online_features(features=["shop:weekday"], entity_rows=rows, full_feature_names=True)
        assert full.to_dict()["shop__weekday"] == found["weekday"]
        with pytest.raises(FeatureViewNotFoundException):
            store.get_online_features(features=["sales:price"], entity_rows=rows)

    def test_the_feature_view_that_is_exported_for_feast(shop: Shop, server: Server, tmp_path: pathlib.Path) -> None:
        from feast import FeatureStore

        repository = tmp_path / "repository"
        done = program("export", shop.artifact, repository, "--for=feast")
        assert done.returncode == 0, done.stderr
        settings = repository / "feature_store.yaml"
        settings.write_text(settings.read_text().replace("http://127.0.0.1:8080", server.url))
        words = [sys.executable, "-m", "feast.cli.cli", "-c", str(repository), "apply", "--skip-source-validation"]
        applied = subprocess.run(words, capture_output=True, text=True, check=False)
        assert applied.returncode == 0, applied.stderr
        store = FeatureStore(repo_path=str(repository))
        rows = records(history(), 3, 3)
        expected = server.post("/apply", rows)["rows"]
        view = store.get_feature_view("shop")
        names = [f"shop:{field.name}" for field in view.features]
        found = store.get_online_features(features=names, entity_rows=rows).to_dict()
        assert found["weekday"] == [row["weekday"] for row in expected]

    SALES = """
version: 1
name: sales
sources:
  sales: { parquet: { path: DATA }, time: day, keys: [item] }
steps:
  features:
    from: sales
    do:
      - lag: { columns: [qty], by: [1d] }
      - rolling: { columns: [qty], compute: [sum], over: [3d], gap: 1d }
serving: { from: features }
sinks:
  table: { from: features, parquet: { path: OUT } }
"""

    def test_feast_pushes_facts_and_reads_the_features_of_now(tmp_path: pathlib.Path) -> None:
        import pandas
        from feast import FeatureStore

        today = datetime.datetime.now(datetime.UTC).date()
        days = [today - datetime.timedelta(days=day) for day in range(9, 1, -1)]
        (tmp_path / "data").mkdir()
        sold = pyarrow.table({"day": [*days, *days], "item": ["a"] * 8 + ["b"] * 8, "qty": [1.0] * 8 + [2.0] * 8})
        pyarrow.parquet.write_table(sold.sort_by([("day", "ascending")]), tmp_path / "data" / "a.parquet")
        spec = SALES.replace("DATA", str(tmp_path / "data")).replace("OUT", str(tmp_path / "out"))
        (tmp_path / "sales.yaml").write_text(spec)
        done = program("run", tmp_path / "sales.yaml", "--state", tmp_path / "state", "--json")
        assert done.returncode == 0, done.stderr
        artifact = json.loads(done.stdout.splitlines()[-1])["artifact_path"]
        repository = tmp_path / "repository"
        assert program("export", artifact, repository, "--for=feast").returncode == 0
        with serving(artifact) as server:
            settings = repository / "feature_store.yaml"
            settings.write_text(settings.read_text().replace("http://127.0.0.1:8080", server.url))
            words = [sys.executable, "-m", "feast.cli.cli", "-c", str(repository), "apply", "--skip-source-validation"]
            applied = subprocess.run(words, capture_output=True, text=True, check=False)
            assert applied.returncode == 0, applied.stderr
            store = FeatureStore(repo_path=str(repository))
            yesterday = pandas.Timestamp(today, tz="UTC") - pandas.Timedelta(days=1)
            facts = pandas.DataFrame({"item": ["a", "b"], "qty": [10.0, 20.0], "day": [yesterday] * 2})
            store.push("sales_facts", facts)
            # Keys alone are asked for: the features are those of today.
            names = ["sales:qty_lag_1d", "sales:qty_sum_3d"]
            answer = store.get_online_features(features=names, entity_rows=[{"item": "a"}, {"item": "b"}])
            found = answer.to_dict()
            if datetime.datetime.now(datetime.UTC).date() == today:
                assert found["qty_lag_1d"] == [10.0, 20.0]
                assert found["qty_sum_3d"] == [12.0, 24.0]
            # Facts that came before are refused, and the SDK raises the reason.
            with pytest.raises(Exception, match="`item` a"):
                store.push("sales_facts", facts)
