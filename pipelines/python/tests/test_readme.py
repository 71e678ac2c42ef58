"""The examples of the README, the guide and the page on workers, run as they are written, each in a process of its own.

A block below `<!-- not run: REASON -->` is skipped; the reason is printed.

What an example leaves to its reader (a model, a table, an import) is said here, and no more.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

PACKAGE = pathlib.Path(__file__).parents[1]
PAGES = [
    PACKAGE / "README.md",
    PACKAGE.parent / "GUIDE.md",
    PACKAGE.parent / "workers" / "README.md",
    PACKAGE.parent / "workers" / "CLUSTERS.md",
]
README = PAGES[0].read_text()
MARKED = [
    found
    for page in PAGES
    for found in re.findall(r"(?:<!-- not run: ([^\n]*) -->\n+)?```python\n(.*?)```", page.read_text(), re.DOTALL)
]
BLOCKS = [block for reason, block in MARKED if not reason]

SPEC = 'import forebay\nspec = "pipelines/specs/clicks.yaml"\n'
LEARNED = SPEC + "summary = forebay.run(spec)\n"
TORCH = LEARNED + "import torch\nmodel = torch.nn.Linear(13, 1)\nloader = forebay.Loader(spec)\n"
LIGHTNING = """
class Model(__import__("lightning").LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(13, 1)
    def training_step(self, batch, _):
        odds = self.layer(batch["dense"])[:, 0]
        return torch.nn.functional.binary_cross_entropy_with_logits(odds, batch["label"])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
model = Model()
"""
#: The spec's `train` part is an example's own.
SPLIT = (
    'text = open(spec).read()\nspec = "split.yaml"\nopen(spec, "w").write(text + "split: { train: \\"f1 > 0\\" }\\n")\n'
)

#: A word of each example, the modules that it needs, and what comes before it.
EXAMPLES = {
    "forebay.Pipeline(": ([], ""),
    'sources={"demand": table(': (["pandas", "pyarrow"], ""),
    "ForebayTransformer(": (["pandas", "pyarrow", "sklearn"], ""),
    "import forebay, torch": (["torch"], ""),
    'model(batch["dense"], batch["categorical"], batch["label"])': (
        ["torch"],
        TORCH + "model = lambda *parts: parts[0].sum()\n",
    ),
    'device="cuda"': (["a GPU"], ""),
    "torch.save(": (["torch"], TORCH),
    "DistributedDataParallel(": (["torch"], TORCH),
    "lightning.Trainer(": (["lightning"], SPEC + SPLIT + "forebay.run(spec)\nimport torch\n" + LIGHTNING),
    "SGDClassifier": (["sklearn"], LEARNED),
    "xgboost.DataIter": (["xgboost"], LEARNED + "import xgboost\n"),
    "lightgbm.Dataset": (["lightgbm", "cffi"], LEARNED + "import lightgbm, pyarrow\n"),
    "jax.dlpack": (["jax"], LEARNED + "import jax\n"),
    "tensorflow.TensorSpec": (["tensorflow"], LEARNED + "import tensorflow\n"),
    "forebay.dataset(": (["duckdb", "polars"], LEARNED + "import duckdb\n"),
    "artifact.apply(": (
        ["pyarrow"],
        LEARNED + 'import pyarrow, pyarrow.parquet\ntable = pyarrow.parquet.read_table("data/clicks")\n',
    ),
}

#: What stands for places that only the reader has.
PLACES = {
    '"s3://lake/features"': '"out/clicks"',
    '".forebay/artifacts/788392f4bedb020e96646acd4a90cb54"': 'summary["artifact_path"]',
    "\n...\n": "\n",
}


def block_of(word: str) -> str:
    """The example that holds a word."""
    [block] = [block for block in BLOCKS if word in block]
    return block


def test_each_example_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(BLOCKS) == sorted(block_of(word) for word in EXAMPLES)
    with capsys.disabled():
        print(f"\ndocumentation: {len(BLOCKS)} blocks of Python run, {len(MARKED) - len(BLOCKS)} not run")
        for reason, block in MARKED:
            if reason:
                print(f"  {block.splitlines()[0]}: {reason}")


def test_no_page_is_left_out() -> None:
    """Each page of the repository with examples in Python is among the pages, or has tests of its own."""
    repository = PACKAGE.parents[1]
    if not (repository / "Cargo.toml").exists():
        pytest.skip("the package is tested without its repository")
    pages = []
    for folder, folders, files in os.walk(repository):
        folders[:] = [name for name in folders if name not in ("target", "node_modules") and not name.startswith(".")]
        pages += [pathlib.Path(folder) / name for name in files if name.endswith(".md")]
    with_python = {page for page in pages if re.search(r"^\s*```python", page.read_text(), re.MULTILINE)}
    # `pipelines/airflow/tests/test_readme.py` runs the DAGs of that page.
    assert with_python == {*PAGES, PACKAGE.parent / "airflow" / "README.md"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory as the README has it: the repository's specs, and generated data."""
    root = tmp_path_factory.mktemp("readme")
    (root / "pipelines").symlink_to(PACKAGE.parent)
    for command in re.findall(r"^forebay (generate .*)$", README, re.MULTILINE):
        words = re.sub(r"--rows \d+", "--rows 3000", command).split()
        subprocess.run([sys.executable, "-m", "forebay", *words], cwd=root, check=True, capture_output=True)
    return root


@pytest.mark.parametrize("word", EXAMPLES)
def test_an_example(place: pathlib.Path, word: str) -> None:
    needs, before = EXAMPLES[word]
    code = before + block_of(word)
    compile(code, word, "exec")
    if needs == ["a GPU"]:
        # `test_device.py` runs loaders for a GPU on a driver of the host.
        return
    for module in needs:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    for readers, ours in PLACES.items():
        code = code.replace(readers, ours)
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    # Few rows make a poor shuffle, which loaders warn of; other warnings are those of the frameworks.
    words = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
