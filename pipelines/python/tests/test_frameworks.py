"""Other frameworks, as the README shows them. Those that are not installed are skipped."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import shutil
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

    matrix = xgboost.QuantileDMatrix(Batches(shop.loader(split="train", format="numpy", dense=["id"], label="day")))
    assert (matrix.num_row(), matrix.num_col()) == (TRAIN, 1)
    model = xgboost.train({"max_depth": 4, "eta": 0.5}, matrix, num_boost_round=20)
    rows = numpy.array([[10], [1000], [3000]]).astype(numpy.float32)
    # The day of a row follows from its number.
    days = rows[:, 0] * 100 // ROWS
    assert numpy.allclose(model.predict(xgboost.DMatrix(rows)), days, atol=3)


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


def example(word: str) -> str:
    """The example of the README that holds a word."""
    readme = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    [block] = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if word in block]
    return block


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains_and_resumes_as_the_readme_says(
    shop: Shop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightning = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, steps: int) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.steps = steps
            self.seen: list[int] = []

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            if self.steps == 0:
                raise RuntimeError("the machine is gone")
            self.steps -= 1
            self.seen += [int(row) for row in batch["dense"][:, 1]]
            odds = self.layer(batch["dense"][:, :1])[:, 0]
            return torch.nn.functional.binary_cross_entropy_with_logits(odds, batch["label"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    block = example("lightning.Trainer(")
    assert "every_n_train_steps=1000" in block
    block = block.replace("every_n_train_steps=1000", "every_n_train_steps=17")
    # Where the package looks for the spec's parameters and state is the only thing that the example does not say.
    monkeypatch.setattr(forebay, "Loader", functools.partial(forebay.Loader, params=shop.params, state=shop.state))
    monkeypatch.chdir(tmp_path)

    def run(model: Model) -> list[int]:
        exec(block, {"forebay": forebay, "spec": shop.spec, "model": model})
        return model.seen

    whole = run(Model(1_000_000))
    first, second = whole[:TRAIN], whole[TRAIN:]
    assert sorted(first) == sorted(second) == list(range(TRAIN)) and first != second
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(RuntimeError, match="the machine is gone"):
        run(Model(20))
    assert run(Model(1_000_000)) == whole[17 * 128 :]
