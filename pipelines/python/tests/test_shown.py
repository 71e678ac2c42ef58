"""What a notebook shows of the package: names, datasets, loaders, summaries."""

from __future__ import annotations

import importlib.util

import pytest
from conftest import ROWS, Shop

import forebay


def test_completion_shows_the_names_for_users() -> None:
    assert dir(forebay) == sorted(forebay.__all__)
    assert not {"Any", "Mapping", "annotations", "json", "os"} & set(dir(forebay))


def test_objects_say_what_they_are(shop: Shop) -> None:
    summary = forebay.run(shop.spec, shop.params, state=shop.state)
    assert f"{ROWS:,} rows" in repr(summary)
    assert "\n" not in repr(summary)
    rows = forebay.dataset(summary["outputs"][0]["path"])
    assert repr(rows).endswith(f" files, {len(rows.column_names)} columns>")
    assert "<table" in rows._repr_html_()
    loader = shop.loader(format="numpy")
    assert repr(loader).startswith("<forebay.Loader ")
    assert repr(loader).endswith("; rank 0 of 1>")
    page = loader._repr_html_()
    assert f"{len(loader):,} batches an epoch" in page
    assert ", ".join(loader.columns["dense"]) in page


def test_a_framework_that_is_not_installed_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(forebay.SpecFault) as fault:
        shop.loader()
    assert "PyTorch is not installed" in str(fault.value)
    assert 'format="numpy"' in str(fault.value)
