"""Functions of a program as steps: of modules, and of the script that runs."""

from __future__ import annotations

import datetime
import importlib
import pathlib
import subprocess
import sys
import xml.dom.minidom
from collections.abc import Callable
from typing import Any

import pytest

import forebay
from forebay import transforms as t

ROWS = [{"qty": 2, "price": 1.5}, {"qty": 3, "price": 4.0}]

MODULE = """\
import pyarrow.compute as pc

def revenue(batch):
    return pc.multiply(batch["qty"], batch["price"])
"""

SCRIPT = """\
import math as numbers

import forebay
import limits
from forebay import transforms as t

LEAST = 1.0

def bounded(value):
    return max(min(numbers.floor(value), limits.LIMIT), LEAST)

def revenue(batch):
    pairs = zip(batch["qty"].to_pylist(), batch["price"].to_pylist())
    return {"revenue": [bounded(qty * price) for qty, price in pairs]}

step = t.map_batches(revenue, columns=["qty", "price"], returns={"revenue": "float64"})
pipeline = forebay.Pipeline(
    "script",
    sources={"rows": [{"qty": 2, "price": 1.75}, {"qty": 3, "price": 4.0}]},
    steps={"earned": {"from": "rows", "do": [step]}},
)
print(pipeline.collect("earned").to_pyarrow()["revenue"].to_pylist())
"""

STATE = object()
TABLE = {"a": [1, 2.5], "b": (None, "x")}


def looked_up(batch: Any) -> Any:
    return [TABLE[key] for key in batch["key"].to_pylist()]


def parsed(batch: Any) -> Any:
    documents = map(xml.dom.minidom.parseString, batch["text"].to_pylist())
    return [document.toxml() for document in documents]


def with_default(batch: Any, factor: int = 2) -> Any:
    return batch


def with_state(batch: Any) -> Any:
    return STATE


def inner() -> Callable[[Any], Any]:
    factor = 2
    return lambda batch: batch * factor


def test_a_function_of_a_module_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "cleaning.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("shop.cleaning")
    step: Any = t.map_batches(module.revenue, returns={"revenue": "float64"}, batch_rows=1)
    fields = step["python"]
    assert fields["function"] == "shop.cleaning:revenue" and "path" not in fields and "code" not in fields
    pipeline = forebay.Pipeline("shop", sources={"rows": ROWS}, steps={"earned": {"from": "rows", "do": [step]}})
    assert pipeline.collect("earned").to_pyarrow()["revenue"].to_pylist() == [3.0, 12.0]
    # From elsewhere, the step names the directory above the package.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    step = t.map_batches(module.revenue, returns={"revenue": "float64"})
    assert step["python"]["path"] == [str(tmp_path)]


def test_a_function_of_a_script_brings_what_it_uses(tmp_path: pathlib.Path) -> None:
    """The script runs once: no process imports it."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.py").write_text(SCRIPT)
    (tmp_path / "jobs" / "limits.py").write_text("LIMIT = 5.0\n")
    for script, directory in [("job.py", tmp_path / "jobs"), ("jobs/job.py", tmp_path)]:
        words = [sys.executable, script]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=directory)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[3.0, 5.0]"


ESTIMATOR = """\
class Share:
    greatest = 0.0

    def partial_fit(self, batch):
        self.greatest = max([self.greatest, *batch["price"].to_pylist()])

    def transform(self, batch):
        return [price / self.greatest for price in batch["price"].to_pylist()]

def share():
    return Share()
"""


def test_an_estimator_learns_before(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shares.py").write_text(ESTIMATOR)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("shares")
    step: Any = t.fit_estimator(
        module.share, columns=["price"], returns={"share": "float64"}, frames="arrow", fit_rows=1
    )
    fields = step["estimator"]
    assert fields["function"] == "shares:share" and "path" not in fields and "code" not in fields
    pipeline = forebay.Pipeline("shop", sources={"rows": ROWS}, steps={"shared": {"from": "rows", "do": [step]}})
    assert pipeline.collect("shared").to_pyarrow()["share"].to_pylist() == [0.375, 1.0]
    with pytest.raises(forebay.SpecFault, match="a function"):
        t.fit_estimator(module.Share, columns=["price"], returns={"share": "float64"})


def reversed_places(batch: Any) -> Any:
    return {"left": list(range(batch.num_rows))[::-1]}


@pytest.mark.parametrize(
    ("by", "left"),
    [("series", [1, 0, 0, 2]), (["item", "shop"], [0, 0, 0, 1]), ([], [2, 0, 1, 3])],
)
def test_a_function_is_given_whole_series(by: Any, left: list[int]) -> None:
    days = [datetime.date(2024, 1, day) for day in (2, 4, 3, 1)]
    rows = [{"day": day, "item": item, "shop": shop} for day, item, shop in zip(days, "aaba", "xyxx", strict=True)]
    step: Any = t.map_batches(
        as_script(reversed_places), columns=["item"], returns={"left": "int64"}, by=by, looks_ahead="series"
    )
    assert step["python"]["by"] == by and step["python"]["looks_ahead"] == "series"
    pipeline = forebay.Pipeline(
        "shop",
        sources={"rows": forebay.table(rows, time="day", keys=["item"])},
        steps={"seen": {"from": "rows", "do": [step]}},
    )
    assert pipeline.collect("seen").to_pyarrow()["left"].to_pylist() == left


def as_script(function: Any) -> Any:
    """The function as one of a script: no other process can import it."""
    function.__module__ = "__main__"
    return function


def test_constants_are_carried() -> None:
    step: Any = t.map_batches(as_script(looked_up), returns={"value": "float64"})
    code = step["python"]["code"]
    assert "TABLE = {'a': [1, 2.5], 'b': (None, 'x')}\n" in code
    assert code.index("TABLE = ") < code.index("def looked_up")


def test_modules_of_packages_are_imported() -> None:
    step: Any = t.map_batches(as_script(parsed), returns={"document": "string"})
    imports, _ = step["python"]["code"].split("def parsed")
    # The package alone would not have the module.
    expected = ["import xml as xml", "import xml.dom as _module", "import xml.dom.minidom as _module"]
    assert [line for line in imports.splitlines()[1:] if line] == expected


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda batch: batch, "a plain `def`"),
        (as_script(with_default), "without default values"),
        (as_script(with_state), "`function` is 'STATE'"),
        (inner(), "it uses `factor`"),
        (len, "not a function"),
    ],
)
def test_functions_that_no_source_holds_are_refused(function: Any, words: str) -> None:
    with pytest.raises(forebay.SpecFault) as fault:
        t.map_batches(function, returns={"y": "float64"})
    assert words in str(fault.value)
