"""Asks a server with kserve's client, and prints the columns of the answer as JSON."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
from typing import Any

import numpy
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.constants.constants import PredictorProtocol

DTYPES = {"INT32": numpy.int32, "FP64": numpy.float64, "BYTES": numpy.object_}


def read_request(path: str, binary: bool) -> InferRequest:
    tensors = []
    for name, (datatype, values) in json.loads(pathlib.Path(path).read_text()).items():
        tensor = InferInput(name, [len(values)], datatype)
        tensor.set_data_from_numpy(numpy.array(values, DTYPES[datatype]), binary_data=binary)
        tensors.append(tensor)
    return InferRequest(model_name="shop", infer_inputs=tensors, request_id="7")


async def ask(protocol: str, address: str, request: InferRequest) -> Any:
    if protocol == "grpc":
        grpc = InferenceGRPCClient(address, timeout=20)
        assert await grpc.is_server_live()
        assert await grpc.is_server_ready()
        assert await grpc.is_model_ready("shop")
        answer = await grpc.infer(request)
        await grpc.close()
        return answer
    rest = InferenceRESTClient(RESTConfig(protocol=PredictorProtocol.REST_V2, timeout=20))
    url = f"http://{address}"
    assert await rest.is_server_live(url)
    assert await rest.is_server_ready(url)
    assert await rest.is_model_ready(url, "shop")
    return await rest.infer(url, request, model_name="shop")


def main() -> None:
    protocol, form, address, path = sys.argv[1:]
    answer = asyncio.run(ask(protocol, address, read_request(path, form == "binary")))
    columns = {}
    for output in answer.outputs:
        values = output.as_numpy().tolist()
        columns[output.name] = [value.decode() if isinstance(value, bytes) else value for value in values]
    print(json.dumps(columns))


main()
