"""Other frameworks, as the README shows them. Those that are not installed are skipped."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy
import pyarrow
import pytest
import torch
from conftest import ROWS, Shop, table

import forebay

TRAIN = ROWS * 80 // 100


def test_scikit_learn_learns_batch_by_batch(shop: Shop) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.SGDClassifier(loss="log_loss", random_state=0)
    for batch in shop.loader(format="numpy", dense=["price"]):
        model.partial_fit(batch["dense"], batch["label"], classes=[0, 1])
    assert model.t_ == ROWS + 1


def test_xgboost_iterates(shop: Shop) -> None:
    xgboost = pytest.importorskip("xgboost")

    class Batches(xgboost.DataIter):  # type: ignore[misc, name-defined]
        def __init__(self, loader: forebay.Loader) -> None:
            super().__init__()
            self.loader = loader
            self.reset()

        def reset(self) -> None:
            self.loader.set_epoch(0)
            self.batches = iter(self.loader)

        def next(self, input_data: Any) -> bool:
            batch = next(self.batches, None)
            if batch is not None:
                input_data(data=batch["dense"], label=batch["label"])
            return batch is not None

    matrix = xgboost.QuantileDMatrix(Batches(shop.loader(split="train", format="numpy", label="id")))
    assert (matrix.num_row(), matrix.num_col()) == (TRAIN, 2)
    model = xgboost.train({"max_depth": 4, "eta": 0.5}, matrix, num_boost_round=20)
    rows = numpy.column_stack([numpy.zeros(3), [10, 1000, 3000]]).astype(numpy.float32)
    # The number of the row is one of its features.
    assert numpy.allclose(model.predict(xgboost.DMatrix(rows)), rows[:, 1], atol=150)


def test_lightgbm_takes_arrow(shop: Shop) -> None:
    pytest.importorskip("cffi")
    lightgbm = pytest.importorskip("lightgbm")
    batches = shop.loader(split="train", format="arrow", dense=["price", "day"], label="id")
    rows = pyarrow.concat_tables(pyarrow.table(batch) for batch in batches)
    assert rows.num_rows == TRAIN
    data = lightgbm.Dataset(rows.select(["price", "day"]), label=rows["id"])
    model = lightgbm.train({"objective": "regression", "verbosity": -1, "learning_rate": 0.5}, data, 20)
    # Fifty rows a day.
    assert abs(model.predict(numpy.array([[0.0, 20.0]]))[0] - 1000) < 150


def test_jax_takes_dlpack(shop: Shop) -> None:
    jax = pytest.importorskip("jax")
    total, rows = 0.0, 0
    for batch in shop.loader(format="raw"):
        parts = {name: jax.dlpack.from_dlpack(part) for name, part in batch.parts().items()}
        total += float(jax.numpy.sum(parts["label"]))
        rows += parts["dense"].shape[0]
    assert (total, rows) == (sum(table(ROWS)["bought"].to_pylist()), ROWS)


TENSORFLOW = """
import json, sys
import tensorflow
import forebay

signature = {
    "dense": tensorflow.TensorSpec((None, 2), tensorflow.float32),
    "label": tensorflow.TensorSpec((None,), tensorflow.float32),
}

def batches():
    for batch in forebay.Loader(sys.argv[1], params=json.loads(sys.argv[2]), state=sys.argv[3], format="numpy"):
        yield {name: batch[name] for name in signature}

data = tensorflow.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
# What was prefetched must not change while it is held.
held = list(data)
total = sum(float(tensorflow.reduce_sum(batch["label"])) for batch in held)
print(json.dumps([total, sorted(int(row) for batch in held for row in batch["dense"][:, 1])]))
"""


def test_tensorflow_takes_batches(shop: Shop) -> None:
    """In a process of its own: TensorFlow and PyTorch's Triton bring different versions of LLVM."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    words = [str(shop.spec), json.dumps({name: str(path) for name, path in shop.params.items()}), str(shop.state)]
    done = subprocess.run([sys.executable, "-c", TENSORFLOW, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    total, seen = json.loads(done.stdout.splitlines()[-1])
    assert (total, seen) == (sum(table(ROWS)["bought"].to_pylist()), list(range(ROWS)))


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains_and_resumes_within_an_epoch(shop: Shop, tmp_path: pathlib.Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[int] = []

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            self.seen += [int(row) for row in batch["dense"][:, 1]]
            odds = self.layer(batch["dense"][:, :1])[:, 0]
            return torch.nn.functional.binary_cross_entropy_with_logits(odds, batch["label"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    def fit(model: Model, **more: Any) -> None:
        save = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=17)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, callbacks=[save], **quiet)
        trainer.fit(model, shop.loader(seed=3), **more)

    model = Model()
    fit(model)
    first, second = model.seen[:ROWS], model.seen[ROWS:]
    assert sorted(first) == sorted(second) == list(range(ROWS)) and first != second
    resumed = Model()
    fit(resumed, ckpt_path=tmp_path / "step=17.ckpt", weights_only=False)
    assert resumed.seen == model.seen[17 * 128 :]
