"""The object server of the benchmarks answers clients that are not Forebay's."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.exceptions
import pyarrow
import pyarrow.fs
import pyarrow.parquet
import pytest

SERVER = pathlib.Path(__file__).resolve().parents[3] / "benches" / "macro" / "object_server.py"
ROWS = 1000
#: More than a page of a listing.
OBJECTS = 2100


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("store") / "buckets"
    (root / "lake" / "data").mkdir(parents=True)
    (root / "new").mkdir()
    rows = pyarrow.table({"x": range(ROWS)})
    pyarrow.parquet.write_table(rows, root / "lake" / "data" / "part.parquet")
    for number in range(OBJECTS):
        (root / "lake" / f"many-{number:05}").write_text(str(number))
    words = [sys.executable, str(SERVER), str(root), "--latency=0", "--bandwidth=0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def client(endpoint: str) -> Any:
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **keys)


def test_boto3_lists_all_pages(client: Any) -> None:
    pages = list(client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix="many-"))
    keys = [entry["Key"] for page in pages for entry in page["Contents"]]
    assert len(pages) == 3
    assert keys == [f"many-{number:05}" for number in range(OBJECTS)]
    folders = client.list_objects_v2(Bucket="lake", Delimiter="/", Prefix="d")
    assert [folder["Prefix"] for folder in folders["CommonPrefixes"]] == ["data/"]


def test_boto3_reads_whole_objects_and_ranges(client: Any, tmp_path: pathlib.Path) -> None:
    file = {"Bucket": "lake", "Key": "data/part.parquet"}
    whole = client.get_object(**file)
    content = whole["Body"].read()
    assert client.head_object(**file)["ETag"] == whole["ETag"]
    assert whole["ContentLength"] == len(content)
    for text, part in [("bytes=4-9", content[4:10]), ("bytes=4-", content[4:]), ("bytes=-8", content[-8:])]:
        answer = client.get_object(**file, Range=text, IfMatch=whole["ETag"])
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert answer["Body"].read() == part
    client.download_file("lake", "data/part.parquet", str(tmp_path / "part.parquet"))
    assert (tmp_path / "part.parquet").read_bytes() == content


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"Key": "nothing"}, 404),
        ({"Key": "data/part.parquet", "IfMatch": '"other"'}, 412),
        ({"Key": "data/part.parquet", "Range": "bytes=99999999-"}, 416),
    ],
)
def test_boto3_is_refused(client: Any, options: dict[str, str], status: int) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as fault:
        client.get_object(Bucket="lake", **options)
    assert fault.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_boto3_reads_what_it_wrote(client: Any) -> None:
    client.put_object(Bucket="new", Key="a/b", Body=b"content")
    assert client.get_object(Bucket="new", Key="a/b")["Body"].read() == b"content"
    large = bytes(range(256)) * (10 << 12)
    client.upload_fileobj(io.BytesIO(large), "new", "large")
    assert client.get_object(Bucket="new", Key="large")["Body"].read() == large


def test_arrow_reads_a_table(endpoint: str) -> None:
    store = pyarrow.fs.S3FileSystem(
        access_key="key", secret_key="secret", region="us-east-1", endpoint_override=endpoint
    )
    table = pyarrow.parquet.read_table("lake/data", filesystem=store)
    assert table["x"].to_pylist() == list(range(ROWS))
