"""`forebay serve`: the protocols by hand, limits, versions, and the end in good order."""

from __future__ import annotations

import datetime
import gzip
import http.client
import json
import pathlib
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from serving import INPUTS, Server, Shop, copied, history, program, records, serving

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("served") / "shop")
    summary = shop.run()
    shop.artifact = summary["artifact_path"]
    return shop


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Server]:
    with serving(shop.artifact) as server:
        yield server


def stream(table: pyarrow.Table) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def tensors(table: pyarrow.Table) -> list[dict[str, Any]]:
    """Columns as tensors of JSON."""
    types = {"int32": "INT32", "double": "FP64", "string": "BYTES"}
    return [
        {"name": name, "datatype": types[str(table[name].type)], "shape": [len(table)], "data": table[name].to_pylist()}
        for name in INPUTS
    ]


def infer(server: Server, table: pyarrow.Table, **more: Any) -> dict[str, Any]:
    answer = server.post(f"/v2/models/{server.name}/infer", {"inputs": tensors(table), **more})
    return {output["name"]: output for output in answer["outputs"]} | {"version": answer["model_version"]}


def test_health_and_metadata(server: Server) -> None:
    for path in ["/v2/health/live", "/v2/health/ready", "/v2/models/shop/ready", "/ping", "/health"]:
        assert server.call("GET", path)[0] == 200, path
    assert json.loads(server.call("GET", "/v2")[1])["extensions"] == ["binary_tensor_data"]
    metadata = json.loads(server.call("GET", "/v2/models/shop")[1])
    assert metadata["versions"] == [server.version] and metadata["platform"] == "forebay_artifact"
    kinds = {tensor["name"]: tensor["datatype"] for tensor in metadata["inputs"]}
    assert kinds["price"] == "FP64" and kinds["item"] == "BYTES" and kinds["day"] == "INT32"
    outputs = {tensor["name"]: tensor["datatype"] for tensor in metadata["outputs"]}
    assert outputs["weekday"] == "INT16" and outputs["shelf"] == "BYTES"
    status, body, headers = server.call("GET", "/v2/models/other")
    assert status == 404 and "`shop`" in json.loads(body)["error"] and headers["content-type"] == "application/json"
    document = json.loads(server.call("GET", "/openapi.json")[1])
    assert document["components"]["schemas"]["Row"]["required"] == INPUTS[1:]
    assert "/v2/models/shop/infer" in document["paths"]


def test_answers_have_the_bits_of_the_published_rows(shop: Shop, server: Server) -> None:
    published = shop.published()
    rows = history()
    for start, length in [(0, 1), (17, 300), (1500, 500)]:
        expected = published.slice(start, length)
        part = rows.select(INPUTS).slice(start, length)
        status, body, headers = server.call("POST", "/apply", stream(part), content_type=ARROW)
        assert status == 200 and headers["forebay-version"] == server.version
        answer = pyarrow.ipc.open_stream(body).read_all()
        for name in answer.column_names:
            assert answer[name].to_pylist() == expected[name].to_pylist(), name
        found = infer(server, part)
        for name in ["price", "weekday", "item", "shelf"]:
            assert found[name]["data"] == expected[name].to_pylist(), name
        assert "bought" not in found
        rows_of_json = server.post("/apply", {"rows": records(rows, start, length)})["rows"]
        assert [row["price"] for row in rows_of_json] == expected["price"].to_pylist()
        assert [row["shelf"] for row in rows_of_json] == expected["shelf"].to_pylist()


def test_binary_tensors_mix_with_json(shop: Shop, server: Server) -> None:
    rows = history().slice(40, 5)
    inputs = tensors(rows)
    price = numpy.array([1.5, float("nan"), 2.5, 3.5, 4.5])
    items = b"".join(struct.pack("<I", len(text)) + text.encode() for text in rows["item"].to_pylist())
    inputs[2] = {"name": "price", "datatype": "FP64", "shape": [5, 1], "parameters": {"binary_data_size": 40}}
    inputs[3] = {
        "name": "item",
        "datatype": "BYTES",
        "shape": [5],
        "parameters": {"binary_data_size": len(items), "null_rows": "1,4"},
    }
    outputs = [{"name": "weekday", "parameters": {"binary_data": True}}, {"name": "price"}]
    outputs += [{"name": "shelf", "parameters": {"binary_data": True}}]
    text = json.dumps({"id": "a7", "inputs": inputs, "outputs": outputs}).encode()
    body = text + price.tobytes() + items
    headers = {"Inference_Header_Content_Length": str(len(text))}
    status, answer, found = server.call("POST", "/v2/models/shop/infer", body, **headers)
    assert status == 200, answer
    length = int(found["inference-header-content-length"])
    described = json.loads(answer[:length])
    assert described["id"] == "a7" and [output["name"] for output in described["outputs"]] == [
        "weekday",
        "price",
        "shelf",
    ]
    weekday = numpy.frombuffer(answer[length : length + 10], "<i2")
    assert weekday.tolist() == [day % 7 for day in rows["day"].to_pylist()]
    assert described["outputs"][1]["data"][1] is None
    # A text without a value is empty in the binary form; the parameter tells which those are.
    missing = described["outputs"][2]["parameters"]["null_rows"].split(",")
    assert {"1", "4"} <= set(missing)
    # The same, compressed.
    headers["Content_Encoding"] = "gzip"
    status, packed, _ = server.call("POST", "/v2/models/shop/infer", gzip.compress(body), **headers)
    assert status == 200 and packed == answer


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda request: request["inputs"].pop(1), "no column `day`"),
        (lambda request: request["inputs"].append(dict(request["inputs"][0])), "there twice"),
        (
            lambda request: request["inputs"].append(
                {"name": "prize", "datatype": "FP64", "shape": [2], "data": [1, 2]}
            ),
            "`price`",
        ),
        (lambda request: request["inputs"][0].update(shape=[3]), "its shape needs 3"),
        (lambda request: request["inputs"][0].update(shape=[1], data=[1]), "have 1"),
        (lambda request: request["inputs"][0].update(data=[1, 2.5]), "2.5"),
        (lambda request: request["inputs"][0].update(datatype="FP64", data=[1, 2.5]), "2.5"),
        (lambda request: request["inputs"][3].update(datatype="INT32", data=[1, 2]), "`item` is a string"),
        (lambda request: request["inputs"][0].update(datatype="INT128"), "INT128"),
        (lambda request: request["inputs"][0].pop("data"), "binary_data_size"),
        (lambda request: request.update(outputs=[{"name": "weekdays"}]), "`weekday`"),
        (lambda request: request.update(inputs=[]), "no inputs"),
        (lambda request: request.pop("inputs"), "inputs"),
    ],
)
def test_mistakes_are_named(server: Server, change: Any, words: str) -> None:
    request = {"inputs": tensors(history().slice(0, 2))}
    change(request)
    status, body, _ = server.call("POST", "/v2/models/shop/infer", json.dumps(request))
    assert status == 400, body
    assert words in json.loads(body)["error"], body


def test_bare_nan_is_refused_with_the_way_out(server: Server) -> None:
    text = json.dumps({"inputs": [{"name": "price", "datatype": "FP64", "shape": [1], "data": [float("nan")]}]})
    status, body, _ = server.call("POST", "/v2/models/shop/infer", text)
    assert status == 400 and "binary tensors" in json.loads(body)["error"]


def test_mlflow_forms(shop: Shop, server: Server) -> None:
    rows = history()
    expected = shop.published().slice(3, 4)
    some = records(rows, 3, 4)
    split = {"columns": INPUTS, "data": [list(row.values()) for row in some]}
    columns = {name: [row[name] for row in some] for name in INPUTS}
    # Values without names are those of the inputs that some step uses.
    matrix = [list(row.values())[1:] for row in some]
    forms = [
        {"dataframe_records": some},
        {"dataframe_split": split},
        {"inputs": columns},
        {"instances": some},
        {"instances": matrix},
    ]
    for form in forms:
        answer = server.post("/invocations", form)["predictions"]
        assert [row["price"] for row in answer] == expected["price"].to_pylist(), form
        assert [row["item"] for row in answer] == expected["item"].to_pylist(), form
    part = rows.select(INPUTS).slice(3, 4)
    text = "\n".join([",".join(INPUTS), *(",".join("" if v is None else str(v) for v in row.values()) for row in some)])
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(part, sink)
    bodies = [
        ("text/csv", text.encode()),
        ("application/vnd.apache.parquet", sink.getvalue().to_pybytes()),
        (ARROW, stream(part)),
    ]
    for kind, body in bodies:
        status, answer, _ = server.call("POST", "/invocations", body, content_type=kind)
        assert status == 200, answer
        found = [row["price"] for row in json.loads(answer)["predictions"]]
        assert found == expected["price"].to_pylist(), kind
    status, body, _ = server.call("POST", "/invocations", "x", content_type="text/html")
    assert status == 415 and json.loads(body)["error_code"] == "BAD_REQUEST"
    for wrong in [
        {},
        {"instances": some, "inputs": columns},
        {"instances": [[1, 2]]},
        {"inputs": {"id": [1], "day": [1, 2]}},
    ]:
        status, body, _ = server.call("POST", "/invocations", json.dumps(wrong), content_type="application/json")
        assert status == 400, wrong


def test_feast_by_hand(shop: Shop, server: Server) -> None:
    some = records(history(), 3, 4)
    entities = {name: [row[name] for row in some] for name in INPUTS}
    expected = shop.published().slice(3, 4)
    request = {"entities": entities, "features": ["shop:weekday", "shop:price"], "full_feature_names": True}
    answer = server.post("/get-online-features", request)
    assert answer["metadata"]["feature_names"] == [*INPUTS, "shop__weekday", "shop__price"]
    price = answer["results"][-1]
    assert price["values"] == expected["price"].to_pylist()
    assert price["statuses"] == ["NULL_VALUE" if value is None else "PRESENT" for value in price["values"]]
    whole = server.post("/get-online-features", {"entities": entities, "feature_service": "shop"})
    assert {"weekday", "shelf"} <= set(whole["metadata"]["feature_names"])
    for features, error in [(["sales:price"], "FeatureViewNotFoundException"), (["shop:cost"], "FeastError")]:
        body = json.dumps({"entities": entities, "features": features})
        status, text, _ = server.call("POST", "/get-online-features", body)
        assert status == 404 and json.loads(json.loads(text))["class"] == error
    # An artifact without state takes no facts. The SDK repeats requests that end with 5xx.
    body = json.dumps({"push_source_name": "shop", "df": entities, "to": "online"})
    status, text, _ = server.call("POST", "/push", body)
    assert status == 422 and "state" in json.loads(json.loads(text))["message"]


def test_a_model_answers_with_the_predictions_of_predict(shop: Shop, tmp_path: pathlib.Path) -> None:
    done = program(
        "predict", shop.root / "out" / "net", "--source", shop.root / "data", "--output", tmp_path / "p", "--columns=id"
    )
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "p").glob("*.parquet"))
    expected = pyarrow.concat_tables(pyarrow.parquet.read_table(file) for file in files).sort_by("id")
    with serving(shop.root / "out" / "net", "--with-features", "--name=net") as server:
        rows = history().select(INPUTS)
        status, body, _ = server.call("POST", "/apply", stream(rows), content_type=ARROW)
        assert status == 200, body
        answer = pyarrow.ipc.open_stream(body).read_all()
        assert answer["prediction"].to_pylist() == expected["prediction"].to_pylist()
        assert answer["weekday"].to_pylist() == [day % 7 for day in rows["day"].to_pylist()]
        predicted = server.post("/invocations", {"dataframe_records": records(rows, 5, 2)})["predictions"]
        assert [row["prediction"] for row in predicted] == pytest.approx(
            expected["prediction"].slice(5, 2).to_pylist(), rel=1e-7
        )


def test_limits(shop: Shop) -> None:
    words = ["--request-rows=10", "--request-bytes=20KiB", "--idle-seconds=1"]
    with serving(shop.artifact, *words) as server:
        status, body, _ = server.call("POST", "/apply", json.dumps(records(history(), 0, 11)))
        assert status == 413 and "10 is the most" in json.loads(body)["error"]
        status, body, _ = server.call("POST", "/apply", b"x" * 30_000)
        assert status == 413 and "bytes" in json.loads(body)["error"]
        bomb = gzip.compress(b" " * 10_000_000)
        assert len(bomb) < 20_000
        status, body, _ = server.call("POST", "/apply", bomb, content_encoding="gzip")
        assert status == 413
        # A client that begins a request and goes silent is dropped.
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(b"POST /apply HTTP/1.1\r\nhost: x\r\n")
            answer = slow.recv(100)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408"), answer
        assert server.call("GET", "/ping")[0] == 200


def test_a_full_server_refuses_and_goes_on(shop: Shop) -> None:
    with serving(shop.artifact, "--requests=1") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as held:
            held.sendall(b"POST /apply HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            wait_for_request(server)
            status, body, headers = server.call("POST", "/apply", json.dumps(records(history(), 0, 1)))
            assert status == 429 and headers["retry-after"] == "1" and "answered already" in json.loads(body)["error"]
            # Probes are answered all the same.
            assert server.call("GET", "/v2/health/ready")[0] == 200
        for _ in range(200):
            if server.call("POST", "/apply", json.dumps(records(history(), 0, 1)))[0] == 200:
                return
            time.sleep(0.01)
        raise AssertionError("the place of a client that went is not given back")


def wait_for_request(server: Server) -> None:
    """Waits until a request is being answered.

    The metrics tell it, since they take no place among the requests: a question that took one could itself be
    what fills the server, so that the request waited for would be refused.
    """
    wait_for(lambda: server.metric("forebay_serve_in_flight_requests") == 1)


def test_requests_form_batches(shop: Shop) -> None:
    """Requests of other rows in a batch change no bit, and a wrong one fails alone."""
    published = shop.published()
    with serving(shop.artifact, "--batch-delay-ms=20", "--threads=1") as server:
        wrong: list[str] = []

        def ask(number: int) -> None:
            for turn in range(10):
                start = (number * 37 + turn * 11) % 1900
                rows = records(history(), start, 3)
                if number == 0:
                    rows[1]["day"] = 2**40
                status, body, _ = server.call("POST", "/apply", json.dumps(rows))
                if number == 0:
                    if status != 400:
                        wrong.append(f"{status}: {body!r}")
                    continue
                found = [row["price"] for row in json.loads(body)["rows"]] if status == 200 else body
                if found != published["price"].slice(start, 3).to_pylist():
                    wrong.append(f"{status}: {found!r}")

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]
        batches = server.metric("forebay_serve_batch_requests_count")
        requests = server.metric("forebay_serve_batch_requests_sum")
        assert requests >= 80 and batches < requests, (batches, requests)


def test_a_token_is_asked_for(shop: Shop, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-of-the-shop\n")
    token.chmod(0o600)
    with serving(shop.artifact, "--token-file", token) as server:
        assert server.call("GET", "/v2/health/ready")[0] == 200
        for headers in [{}, {"authorization": "Bearer wrong"}, {"authorization": "secret-of-the-shop"}]:
            status, body, _ = server.call("GET", "/v2/models/shop", **headers)
            assert status == 401 and "Bearer" in json.loads(body)["error"]
        assert server.call("GET", "/v2/models/shop", authorization="Bearer secret-of-the-shop")[0] == 200
    done = program("serve", shop.artifact, "--listen=0.0.0.0:0")
    assert done.returncode == 78 and "--token-file" in done.stderr


def make_certificates(folder: pathlib.Path) -> None:
    """Two authorities, each with a certificate for 127.0.0.1."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "leaf.cnf").write_text("basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ["server", "stranger"]:
        authority = f"{name}-ca"
        openssl(
            "req",
            "-x509",
            *key,
            "-keyout",
            f"{authority}.key",
            "-out",
            f"{authority}.pem",
            "-days",
            "2",
            "-subj",
            f"/CN={authority}",
        )
        openssl("req", "-new", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-extfile", "leaf.cnf"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-days", "2", "-out", f"{name}.pem")


def test_tls_with_certificates_of_clients(shop: Shop, tmp_path: pathlib.Path) -> None:
    make_certificates(tmp_path)
    words = ["--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key"]

    def ready(server: Server, certificate: str | None) -> int:
        context = ssl.create_default_context(cafile=str(tmp_path / "server-ca.pem"))
        if certificate is not None:
            context.load_cert_chain(tmp_path / f"{certificate}.pem", tmp_path / f"{certificate}.key")
        connection = http.client.HTTPSConnection(server.address, timeout=20, context=context)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status
        finally:
            connection.close()

    with serving(shop.artifact, *words) as server:
        assert ready(server, None) == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            server.call("GET", "/v2/health/ready")
    with serving(shop.artifact, *words, "--tls-ca", tmp_path / "server-ca.pem") as server:
        assert ready(server, "server") == 200
        for certificate in [None, "stranger"]:
            with pytest.raises((OSError, http.client.HTTPException)):
                ready(server, certificate)


def test_versions_switch_without_a_failed_request(shop: Shop, tmp_path: pathlib.Path) -> None:
    other = copied(shop, tmp_path / "shop")
    words = ["shop", "--state", other.state, "--follow-seconds=0.1", "--keep-versions=1"]
    with serving(*words) as server:
        stop = threading.Event()
        failed: list[bytes] = []
        versions: list[str] = []

        def ask() -> None:
            connection = http.client.HTTPConnection(server.address, timeout=30)
            text = json.dumps({"inputs": tensors(history().slice(0, 3))})
            while not stop.is_set():
                connection.request("POST", "/v2/models/shop/infer", text)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    failed.append(body)
                else:
                    versions.append(json.loads(body)["model_version"])
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for seed in [11, 12]:
            other.grow(seed)
            before = set(versions)
            newest = pathlib.Path(other.run()["artifact_path"]).name[:12]
            wait_for(lambda newest=newest: newest in versions)
            assert newest not in before
        ids = json.loads(server.call("GET", "/v2/models/shop")[1])["versions"]
        assert len(ids) == 2
        # A request that had begun before the switch may be answered after others.
        wait_for(lambda: versions[-1] == ids[0])
        # The version before is still there by name.
        assert server.call("GET", f"/v2/models/shop/versions/{ids[1]}/ready")[0] == 200
        assert server.call("GET", f"/v2/models/shop/versions/{server.version}/ready")[0] == 404
        done = program("serve", "--rollback", server.url)
        assert done.returncode == 0 and ids[1] in done.stdout, done.stderr
        wait_for(lambda: versions[-1] == ids[1])
        # It stays: the version that was left is not followed again.
        switched = len(versions)
        wait_for(lambda: len(versions) > switched + 200)
        assert versions[-1] == ids[1]
        done = program("serve", "--rollback", server.url)
        assert done.returncode != 0 and "no earlier version" in done.stderr
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed[:3]
        assert len(set(versions)) == 3


SALES = """
version: 1
name: sales
params:
  data: { type: path }
  out: { type: path }
sources:
  sales: { parquet: { path: "${data}" }, time: day, keys: [item] }
steps:
  features:
    from: sales
    do:
      - lag: { columns: [qty], by: [1d, 3d] }
      - rolling: { columns: [qty], compute: [mean, sum], over: [3d], gap: 1d }
serving: { from: features }
sinks:
  table: { from: features, parquet: { path: "${out}" } }
"""


def sold(first: int, days: int) -> pyarrow.Table:
    """The sales of two items, from one day on."""
    start = datetime.date(2026, 1, 1)
    rows = [(day, item) for day in range(first, first + days) for item in ["a", "b"]]
    return pyarrow.table(
        {
            "day": [start + datetime.timedelta(days=day) for day, _ in rows],
            "item": [item for _, item in rows],
            "qty": [float(day * day % 11 + (item == "b")) for day, item in rows],
        }
    )


def rows_of(table: pyarrow.Table) -> list[dict[str, Any]]:
    """Rows for a request, with dates as texts."""
    return [row | {"day": str(row["day"])} for row in table.to_pylist()]


def test_facts_are_part_of_the_answers_of_all_versions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sales.yaml").write_text(SALES)
    (tmp_path / "data").mkdir()

    def run(first: int, days: int) -> None:
        pyarrow.parquet.write_table(sold(first, days), tmp_path / "data" / f"{first:03}.parquet")
        words = ["run", tmp_path / "sales.yaml", f"--param=data={tmp_path / 'data'}"]
        words += [f"--param=out={tmp_path / 'out'}", "--state", tmp_path / "state", "--memory=1GiB"]
        done = program(*words)
        assert done.returncode == 0, done.stderr

    def features(server: Server, day: int) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = server.post("/apply", {"rows": rows_of(sold(day, 1))})["rows"]
        return answers

    def published(day: int) -> list[dict[str, Any]]:
        files = sorted((tmp_path / "out").glob("*.parquet"))
        table = pyarrow.concat_tables(pyarrow.parquet.read_table(file) for file in files)
        return [row for row in rows_of(table) if row["day"] == str(sold(day, 1)["day"][0])]

    run(0, 20)
    words = ["sales", "--state", tmp_path / "state", "--follow-seconds=0.1"]
    with serving(*words) as server:
        of_day_20 = features(server, 20)
        assert server.post("/rows", {"rows": rows_of(sold(20, 1))}) == {"rows": 2}
        of_day_21 = features(server, 21)
        assert server.post("/rows", {"rows": rows_of(sold(21, 1))}) == {"rows": 2}
        of_day_22 = features(server, 22)
        # A fact that came before is refused, and changes nothing.
        text = json.dumps({"rows": rows_of(sold(20, 1))})
        status, body, _ = server.call("POST", "/rows", text, content_type="application/json")
        assert 400 <= status < 500 and b"2026-01-21" in body, body
        # The next night has the first day of facts: the second is taken over.
        run(20, 1)
        wait_for(lambda: server.metric("forebay_serve_switches_total") >= 1)
        assert features(server, 22) == of_day_22
        assert server.post("/rows", {"rows": rows_of(sold(22, 1))}) == {"rows": 2}
        of_day_23 = features(server, 23)
        # Feast tells a series without any row from one without a value.
        entities = {"day": ["2026-01-24", "2026-01-24"], "item": ["a", "zebra"], "qty": [1.0, 1.0]}
        asked = {"entities": entities, "features": ["sales:qty_lag_1d"]}
        lag = server.post("/get-online-features", asked)["results"][-1]
        assert lag["statuses"] == ["PRESENT", "NOT_FOUND"] and lag["values"][1] is None
        # The version before gets the facts that came since.
        done = program("serve", "--rollback", server.url)
        assert done.returncode == 0, done.stderr
        assert features(server, 23) == of_day_23
    # What was acknowledged is there again after a kill.
    with serving(*words) as server:
        assert features(server, 23) == of_day_23
        server.process.kill()
        server.process.wait()
    run(21, 3)
    expected = [published(day) for day in (20, 21, 22, 23)]
    for answers, rows in zip([of_day_20, of_day_21, of_day_22, of_day_23], expected, strict=True):
        assert sorted(answers, key=lambda row: row["item"]) == sorted(rows, key=lambda row: row["item"])


NET = """
  net:
    from: features
    train:
      path: "${out}/net"
      model: linear
      label: qty
      dense: [qty_lag_1d, qty_lag_3d, qty_mean_3d, qty_sum_3d]
      epochs: 2
      missing: 0
      refit: 100d
"""


def test_a_model_with_windows_is_served_from_the_state_of_its_step(tmp_path: pathlib.Path) -> None:
    spec = tmp_path / "sales.yaml"
    spec.write_text(SALES.replace('path: "${out}" } }', 'path: "${out}/table" } }') + NET.lstrip("\n"))
    (tmp_path / "data").mkdir()
    net = tmp_path / "out" / "net"

    def run(first: int, days: int) -> None:
        pyarrow.parquet.write_table(sold(first, days), tmp_path / "data" / f"{first:03}.parquet")
        words = ["run", spec, f"--param=data={tmp_path / 'data'}", f"--param=out={tmp_path / 'out'}"]
        done = program(*words, "--state", tmp_path / "state", "--memory=1GiB")
        assert done.returncode == 0, done.stderr

    def predicted(server: Server, day: int) -> dict[str, float]:
        answers = server.post("/apply", {"rows": rows_of(sold(day, 1))})["rows"]
        return {row["item"]: row["prediction"] for row in answers}

    def expected(day: int) -> dict[str, float]:
        """What `forebay predict` says of a day, with all days before."""
        output = tmp_path / f"predicted-{day}"
        days = tmp_path / f"days-{day}"
        days.mkdir()
        pyarrow.parquet.write_table(sold(0, day + 1), days / "days.parquet")
        words = ["predict", net, "--source", days, "--output", output, "--columns=day,item", "--whole-history"]
        done = program(*words, "--state", tmp_path / "other-state")
        assert done.returncode == 0, done.stderr
        files = sorted(output.glob("*.parquet"))
        table = pyarrow.concat_tables(pyarrow.parquet.read_table(file) for file in files)
        of_day = [row for row in table.to_pylist() if row["day"] == sold(day, 1)["day"][0].as_py()]
        return {row["item"]: pytest.approx(row["prediction"], rel=1e-6) for row in of_day}

    run(0, 20)
    words = [net, "--state", tmp_path / "state", "--follow-seconds=0.1", "--with-features"]
    with serving(*words) as server:
        assert predicted(server, 20) == expected(20)
        first = server.version
        # A night that trains nothing brings a newer state, which the server follows.
        run(20, 2)
        wait_for(lambda: server.metric("forebay_serve_switches_total") >= 1)
        assert predicted(server, 22) == expected(22)
        assert server.post("/rows", {"rows": rows_of(sold(22, 1))}) == {"rows": 2}
        assert predicted(server, 23) == expected(23)
        assert "-" in first
    # Without a state the rows before are nowhere.
    done = program("serve", net, "--listen=127.0.0.1:0", "--state", tmp_path / "other-state")
    assert done.returncode != 0 and "serving: { from: features }" in done.stderr, done.stderr


def wait_for(holds: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_a_second_version_is_compared_and_gets_its_keys(shop: Shop, tmp_path: pathlib.Path) -> None:
    other = copied(shop, tmp_path / "shop")
    other.grow(21)
    second = other.run()["artifact_path"]
    rows = history()
    with serving(shop.artifact, "--shadow", second) as server:
        answers = server.post("/apply", records(rows, 0, 50))["rows"]
        assert [row["price"] for row in answers] == shop.published()["price"].slice(0, 50).to_pylist()
        wait_for(lambda: json.loads(server.call("GET", "/shadow")[1])["compared_rows"] == 50)
        report = json.loads(server.call("GET", "/shadow")[1])
        missing = rows["price"].slice(0, 50).null_count
        assert report["differing_columns"]["price"]["rows"] == 50 - missing
        assert report["differing_columns"]["price"]["greatest_difference"] > 0
        assert "weekday" not in report["differing_columns"]
    with serving(second) as server:
        second_prices = [row["price"] for row in server.post("/apply", records(rows, 0, 500))["rows"]]
    with serving(shop.artifact, "--shadow", second, "--split=20%") as server:
        first_prices = shop.published()["price"].slice(0, 500).to_pylist()
        found = [row["price"] for row in server.post("/apply", records(rows, 0, 500))["rows"]]
        chosen = [
            price == of_second and price != of_first
            for price, of_first, of_second in zip(found, first_prices, second_prices, strict=True)
        ]
        assert all(price in pair for price, *pair in zip(found, first_prices, second_prices, strict=True))
        assert 60 <= sum(chosen) <= 140
        # A key is answered by the same version, alone or in company.
        for row in range(0, 60):
            alone = server.post("/apply", records(rows, row, 1))["rows"][0]["price"]
            assert alone == found[row]


def test_a_sample_of_requests_is_logged_for_profile_and_drift(shop: Shop, tmp_path: pathlib.Path) -> None:
    rows = history()
    with serving(shop.artifact, "--log", tmp_path / "log", "--log-share=100%") as server:
        for start in range(0, 1000, 100):
            server.post("/apply", records(rows, start, 100))
        infer(server, rows.slice(1000, 20))
    table = pyarrow.parquet.read_table(tmp_path / "log" / "requests")
    assert len(table) == 1020 and set(table["version"].to_pylist()) == {server.version}
    assert sorted(table["id"].to_pylist()) == list(range(1020))
    done = program("drift", shop.root / "out" / "table", tmp_path / "log" / "answers", "--json")
    assert done.returncode == 0, done.stderr
    columns = {column["name"]: column for column in json.loads(done.stdout.splitlines()[-1])["drift"]["columns"]}
    assert columns["price"]["reasons"] == []


def test_a_request_that_has_begun_is_answered_after_sigterm(shop: Shop) -> None:
    body = json.dumps(records(history(), 0, 2)).encode()
    with serving(shop.artifact) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            head = f"POST /apply HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body[:10])
            wait_for_request(server)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: is_refused(host, int(port)))
            client.sendall(body[10:])
            answer = http.client.HTTPResponse(client)
            answer.begin()
            assert answer.status == 200 and len(json.loads(answer.read())["rows"]) == 2
        assert server.process.wait(timeout=20) == 0


def is_refused(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return False
    except ConnectionRefusedError:
        return True


def test_what_cannot_be_served_is_named(shop: Shop, tmp_path: pathlib.Path) -> None:
    for path, words in [
        (tmp_path / "nothing", "no artifact and no model here"),
        (shop.root / "out" / "table", "holds rows, and no model"),
        ("unknown", "no artifact and no model here"),
    ]:
        done = program("serve", path, "--listen=127.0.0.1:0", "--state", shop.state)
        assert done.returncode != 0 and words in done.stderr, done.stderr
    spec = """
version: 1
name: daily
sources:
  shop: { parquet: { path: DATA } }
steps:
  features: { sql: "SELECT day, COUNT(*) AS rows_of_day FROM shop GROUP BY day ORDER BY day" }
sinks:
  table: { from: features, parquet: { path: OUT } }
"""
    daily = tmp_path / "daily.yaml"
    daily.write_text(spec.replace("DATA", str(shop.root / "data")).replace("OUT", str(tmp_path / "out")))
    done = program("run", daily, "--state", tmp_path / "state", "--json")
    assert done.returncode == 0, done.stderr
    path = json.loads(done.stdout.splitlines()[-1])["artifact_path"]
    done = program("serve", path, "--listen=127.0.0.1:0")
    assert done.returncode != 0 and "needs all rows at once" in done.stderr, done.stderr


def test_exports_describe_the_server(shop: Shop, tmp_path: pathlib.Path) -> None:
    done = program("export", shop.artifact, tmp_path / "service.yaml", "--for=kserve")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "service.yaml").read_text()
    assert "kind: InferenceService" in text and shop.artifact in text and "/v2/health/ready" in text
    done = program("export", shop.artifact, tmp_path / "feast", "--for=feast")
    assert done.returncode == 0, done.stderr
    assert "type: remote" in (tmp_path / "feast" / "feature_store.yaml").read_text()
    features = (tmp_path / "feast" / "features.py").read_text()
    compile(features, "features.py", "exec")
    assert 'Field(name="weekday", dtype=Int32)' in features
    assert program("export", shop.artifact, tmp_path / "service.yaml", "--for=kserve").returncode != 0
