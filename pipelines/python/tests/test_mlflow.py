"""Trained models in the registry of MLflow.

MLflow is not among the requirements of all tests; without it, none of these is collected:
  pip install mlflow onnxruntime pandas
"""

from __future__ import annotations

import importlib.util
import pathlib
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

    def test_a_model_is_registered_and_predicts_as_the_program(mlflow: Any, tmp_path: pathlib.Path) -> None:
        from forebay.mlflow import log_model

        (tmp_path / "data").mkdir()
        pyarrow.parquet.write_table(rows(), tmp_path / "data" / "a.parquet")
        spec = tmp_path / "spec.yaml"
        spec.write_text(SPEC.replace("DATA", str(tmp_path / "data")).replace("OUT", str(tmp_path / "trees")))
        forebay.run(spec, state=tmp_path / "state")
        frame = rows().select(["price", "item"]).to_pandas().astype({"item": object})
        for version in ["1", "2"]:
            with mlflow.start_run():
                info = log_model(tmp_path / "trees", frame.head(3), registered_model_name="demand")
            assert {column.name for column in info.signature.inputs} == {"price", "item"}
            assert str(info.registered_model_version) == version
        model = mlflow.pyfunc.load_model("models:/demand/2")
        found = model.predict(frame)["prediction"].to_numpy()
        forebay.predict(tmp_path / "trees", {"data": tmp_path / "data"}, tmp_path / "predicted", columns=["id"])
        expected = pyarrow.parquet.read_table(tmp_path / "predicted").sort_by("id")["prediction"].to_numpy()
        numpy.testing.assert_allclose(found, expected, rtol=1e-6)
