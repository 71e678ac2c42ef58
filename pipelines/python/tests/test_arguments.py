"""Wrong arguments are faults of one family, which name the argument; `help()` names all of them."""

from __future__ import annotations

import importlib.metadata
import inspect
import pathlib
import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any, cast

import numpy
import pandas
import pytest
from conftest import Shop

import forebay
from forebay import sinks, sources, transforms

PACKAGE = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"threads": -1}, "`threads` is -1, not a whole number from 1 to 65536"),
        ({"threads": 0}, "`threads` is 0"),
        ({"threads": 1.5}, "`threads` is 1.5, not a whole number"),
        ({"threads": True}, "`threads` is True"),
        ({"memory": -1}, "`memory` is -1"),
        ({"memory": "lots"}, "`memory`: `lots` is not a size; write 512MiB or 4GiB"),
        ({"memory": 2**70}, f"`memory` is {2**70}"),
        ({"state": 3}, "`state` is 3, not a path"),
        ({"interval": "2016-05-22"}, "`interval` is '2016-05-22', not a pair of start and end"),
        ({"interval": (1, 2)}, "`interval` is 1, not a date"),
        ({"deadline": datetime(2016, 5, 22)}, "an instant: it has no time zone"),
        ({"deadline": "whenever"}, "whenever"),
        ({"deadline": 5}, "`deadline` is 5"),
        ({"workers": [], "local_workers": 1}, "`workers` and `local_workers` exclude each other"),
        ({"params": "as_of=1"}, "`params` is 'as_of=1', not a mapping"),
    ],
)
def test_of_a_run(shop: Shop, wrong: dict[str, Any], text: str) -> None:
    arguments = {"params": shop.params, "state": shop.state} | wrong
    with pytest.raises(forebay.SpecFault) as fault:
        forebay.run(shop.spec, **arguments)
    assert text in str(fault.value)
    # Those who know the package by Python's words alone catch it, too.
    assert isinstance(fault.value, ValueError)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"seed": -1}, "`seed` is -1"),
        ({"seed": 2**64}, "`seed` is 18446744073709551616"),
        ({"rank": -1, "world_size": 2}, "`rank` is -1"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 0, "world_size": 2**40}, "`world_size` is 1099511627776"),
        ({"epochs": 0}, "`epochs` is 0"),
        ({"batch_rows": 0}, "`batch_rows` is 0"),
        ({"batch_rows": "128"}, "`batch_rows` is '128', not a whole number"),
        ({"batch_rows": 10**30}, "`batch_rows` is 1"),
        ({"prefetch": -1}, "`prefetch` is -1"),
        ({"missing": float("nan")}, "`missing` is nan, not a finite number"),
        ({"order": "random"}, "random"),
        ({"cache": {"path": "x", "bytes_max": object()}}, "`cache.bytes_max` is <object"),
        ({"format": "jax"}, "`format` is 'jax'"),
        ({"series": 3}, "`series` is 3, not a mapping"),
    ],
)
def test_of_a_loader(shop: Shop, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(forebay.SpecFault) as fault:
        shop.loader(**wrong)
    assert text in str(fault.value)


def test_of_what_follows(shop: Shop) -> None:
    loader = shop.loader()
    for call in (
        lambda: loader.set_epoch(-1),
        lambda: loader.load_state_dict({"version": 2}),
        lambda: loader.load_state_dict({"version": 1, "cursor": None}),
        lambda: forebay.preview(shop.spec, params=shop.params, rows=0),
        lambda: forebay.predict("m", {}, "o", format="xml"),  # type: ignore[arg-type]
        lambda: forebay.predict("m", {}, "o", minimum=float("inf")),
        lambda: forebay.load(shop.artifact).apply_row({"price": float("nan")}),
        lambda: forebay.load(shop.artifact).apply_row([1]),  # type: ignore[arg-type]
        lambda: forebay.Pipeline("x", sources={"a": {"csv": {"path": object()}}}),  # type: ignore[typeddict-item]
        lambda: forebay.Pipeline("Not a name", sources={"a": sources.csv("x")}).check(),
    ):
        with pytest.raises(forebay.SpecFault):
            call()


def test_numbers_and_paths_of_other_libraries_are_taken(shop: Shop) -> None:
    rows = numpy.int64(64)
    batch = next(iter(shop.loader(batch_rows=rows, seed=numpy.uint8(3), format="numpy")))
    assert batch["dense"].shape == (64, 2)
    row = {"price": numpy.float32(1.5), "id": numpy.int32(7), "item": "item-1"}
    applied = forebay.load(pathlib.Path(shop.artifact)).apply_row(row)
    assert applied is not None and applied["id"] == 7


def public() -> list[tuple[str, Any]]:
    """All functions and classes, by their names."""
    found = []
    for module in (forebay, sinks, sources, transforms):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, Exception):
                continue
            if inspect.isfunction(thing) or inspect.isclass(thing):
                found.append((f"{module.__name__}.{name}", thing))
            if inspect.isclass(thing):
                methods = inspect.getmembers(thing, inspect.isroutine)
                found += [(f"{name}.{key}", method) for key, method in methods if inspect.isfunction(method)]
    return [(name, thing) for name, thing in found if "._" not in name and "__" not in name]


@pytest.mark.parametrize(("name", "thing"), public())
def test_help_names_each_argument(name: str, thing: Any) -> None:
    if thing in (forebay.Batch, forebay.Table, forebay.Explanation, forebay.Summary):
        assert thing.__doc__
        return
    text = inspect.getdoc(thing)
    assert text, name
    arguments = [argument for argument in inspect.signature(thing).parameters if argument != "self"]
    missing = [argument for argument in arguments if f"\n{argument}: " not in text]
    assert missing == []


def test_the_version() -> None:
    manifest = (PACKAGE.parents[1] / "Cargo.toml").read_text()
    assert f'\nversion = "{forebay.__version__}"\n' in manifest
    assert forebay.__version__ == importlib.metadata.version("forebay")


def test_generated_modules_are_up_to_date() -> None:
    words = [sys.executable, str(PACKAGE / "generate_types.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


GOOD = """
import forebay
from forebay import sinks, sources, spec, transforms as t

step: spec.Step = {"from": "demand", "do": [t.lag(["qty"], by=["7d"]), {"filter": "qty > 0"}]}
pipeline = forebay.Pipeline(
    "demand",
    sources={"demand": sources.parquet("data", time="date"), "other": {"csv": {"path": "x"}}},
    steps={"features": step},
    sinks={"table": sinks.parquet("out", from_="features")},
)
summary: forebay.Summary = pipeline.run(threads=2)
"""


@pytest.mark.parametrize(
    ("good", "bad", "text"),
    [
        ('by=["7d"]', 'bye=["7d"]', 'Unexpected keyword argument "bye"'),
        ('"from": "demand"', '"form": "demand"', 'Extra key "form"'),
        ('{"filter": "qty > 0"}', '{"filtre": "qty > 0"}', 'Extra key "filtre"'),
        ('from_="features"', "from_=3", "incompatible type"),
        ("threads=2", "thread=2", 'Unexpected keyword argument "thread"'),
    ],
)
def test_type_checkers_know_the_language(tmp_path: pathlib.Path, good: str, bad: str, text: str) -> None:
    """What editors complete, they also check."""
    for name, source, wanted in (("good", GOOD, ""), ("bad", GOOD.replace(good, bad), text)):
        # In a file of its own each: mypy takes one of the same size and time for the same.
        file = tmp_path / f"{name}.py"
        file.write_text(source)
        cache = str(tmp_path.parent / "mypy")
        words = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", cache, str(file)]
        said = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
        assert wanted in said and (wanted != "" or said == ""), said


def test_arrays_and_lengths_of_time_are_values_of_a_spec() -> None:
    steps: list[Any] = [
        {"apply_buckets": {"columns": ["x"], "boundaries": numpy.array([1.0, 2.5])}},
        {"rolling": {"columns": ["x"], "compute": ["mean"], "over": [timedelta(days=7), timedelta(hours=36)]}},
    ]
    text = forebay.Pipeline("p", sources={"a": sources.csv("a.csv")}, steps={"s": {"from": "a", "do": steps}}).to_yaml()
    assert "boundaries: [1.0, 2.5]" in text
    assert 'over: ["7d", "36h"]' in text
    for wrong in [timedelta(days=-1), timedelta(milliseconds=1)]:
        with pytest.raises(forebay.SpecFault, match="a length of whole seconds"):
            forebay.Pipeline("p", sources={"a": cast("Any", {"csv": {"path": wrong}})})


def test_a_table_in_place_of_a_value_is_not_printed() -> None:
    frame = pandas.DataFrame({"x": range(1000)})
    with pytest.raises(forebay.SpecFault) as fault:
        forebay.Pipeline("p", sources={"a": sources.csv("a.csv")}, steps={"s": {"from": cast("Any", frame), "do": []}})
    assert "`steps.s.from` is of type pandas" in str(fault.value)
    assert "\n" not in fault.value.message
