"""A model of ONNX as MLflow loads it. MLflow copies this file into a logged model: it imports nothing of Forebay."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy

mlflow: Any = importlib.import_module("mlflow")
onnxruntime: Any = importlib.import_module("onnxruntime")
pandas: Any = importlib.import_module("pandas")

PythonModel: Any = mlflow.pyfunc.PythonModel


class OnnxModel(PythonModel):  # type: ignore[misc]
    """Predicts rows of a frame. Missing numbers are NaN, missing texts empty, and missing ids -1."""

    def load_context(self, context: Any) -> None:
        """Reads the file."""
        self.session = onnxruntime.InferenceSession(context.artifacts["model"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.inputs: list[dict[str, Any]] = json.loads(metadata["forebay.inputs"])

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        """Returns a frame with a column for each output."""
        frame = pandas.DataFrame(model_input)
        feed = {column["name"]: _tensor(frame[column["name"]], column) for column in self.inputs}
        names = [output.name for output in self.session.get_outputs()]
        return pandas.DataFrame(dict(zip(names, self.session.run(names, feed), strict=True)), index=frame.index)


def _tensor(values: Any, column: dict[str, Any]) -> Any:
    """The values of a column in its type."""
    if len(column["shape"]) > 1 and column["type"] == "string":
        return _padded(values)
    if len(column["shape"]) > 1:
        return numpy.stack([numpy.asarray(row, column["type"]) for row in values])
    if column["type"] == "string":
        return numpy.array(["" if pandas.isna(value) else str(value) for value in values], dtype=object)
    numbers = pandas.to_numeric(values)
    if column["type"] == "int64":
        return numbers.fillna(-1).to_numpy(dtype=numpy.int64)
    return numbers.to_numpy(dtype=column["type"], na_value=numpy.nan)


def _padded(values: Any) -> Any:
    """Lists of texts as rows of one length, with empty texts at the ends of shorter ones."""
    lists = [[] if row is None or numpy.ndim(row) == 0 else list(row) for row in values]
    width = max([1, *map(len, lists)])
    padded = numpy.full((len(lists), width), "", dtype=object)
    for number, texts in enumerate(lists):
        padded[number, : len(texts)] = ["" if pandas.isna(text) else str(text) for text in texts]
    return padded


mlflow.models.set_model(OnnxModel())
