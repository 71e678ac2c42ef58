"""Trained models in the registry of MLflow.

>>> import forebay.mlflow                                                            # doctest: +SKIP
>>> forebay.mlflow.log_model("out/net", frame, registered_model_name="demand")       # doctest: +SKIP

Needs mlflow, onnxruntime and pandas. A logged model is a file of ONNX: where it is loaded, it needs onnxruntime and
pandas, and nothing of Forebay.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from . import _arguments

__all__ = ["log_model"]

#: The file that MLflow copies into a model, and loads it with.
_WRAPPER = pathlib.Path(__file__).with_name("_mlflow_onnx.py")

#: Types of MLflow by those of a tensor.
_TYPES = {"float32": "float", "float64": "double", "int64": "long", "string": "string"}


def log_model(
    path: str | os.PathLike[str],
    input_example: object,
    *,
    name: str = "model",
    registered_model_name: str | None = None,
    group: list[str] | None = None,
    step: int | None = None,
) -> Any:
    """Logs a trained model to the run of MLflow that is active, with its signature, and returns MLflow's description.

    ``mlflow.pyfunc.load_model`` loads it, and ``mlflow models serve`` serves it. It takes frames with the columns of
    the exported file: those of the source, and results of windows and joins. A step that ONNX does not have is refused
    by its name.

    path: The output of a ``train`` sink.
    input_example: A frame with some rows of the model's inputs.
    name: The name of the logged model.
    registered_model_name: The name in the registry, where the model becomes a new version.
    group: The group whose model is logged, for models ``by`` group.
    step: The step of the horizon whose model is logged, for models by step.
    """
    mlflow: Any = importlib.import_module("mlflow")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "model.onnx"
        _export(_arguments.path("path", path), file, group, step)
        metadata = _metadata(file)
        return mlflow.pyfunc.log_model(
            name=name,
            python_model=str(_WRAPPER),
            artifacts={"model": str(file)},
            signature=_signature(mlflow, metadata),
            input_example=input_example,
            registered_model_name=registered_model_name,
            pip_requirements=["onnxruntime", "numpy", "pandas"],
            metadata={key: value for key, value in metadata.items() if key.startswith("forebay.")},
        )


def _export(path: str, file: pathlib.Path, group: list[str] | None, step: int | None) -> None:
    words = [sys.executable, "-m", "forebay", "export", path, str(file)]
    if group is not None:
        words += ["--group", ",".join(group)]
    if step is not None:
        words += ["--step", str(step)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())


def _metadata(file: pathlib.Path) -> dict[str, str]:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    metadata: dict[str, str] = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    return metadata


def _signature(mlflow: Any, metadata: dict[str, str]) -> Any:
    def schema(columns: list[dict[str, Any]]) -> Any:
        types = importlib.import_module("mlflow.types.schema")
        specs = []
        for column in columns:
            kind = types.DataType[_TYPES[column["type"]]]
            is_list = len(column["shape"]) > 1
            specs.append(types.ColSpec(types.Array(kind) if is_list else kind, column["name"]))
        return types.Schema(specs)

    return mlflow.models.ModelSignature(
        inputs=schema(json.loads(metadata["forebay.inputs"])),
        outputs=schema(json.loads(metadata["forebay.outputs"])),
    )
