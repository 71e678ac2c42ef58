"""What a fit learned, applied from Python: the bits of the run."""

from __future__ import annotations

import pyarrow
import pyarrow.parquet
import pytest
from conftest import ROWS, Shop, table

import forebay


def test_tables_and_rows_get_what_the_run_wrote(shop: Shop) -> None:
    artifact = forebay.load(shop.artifact)
    assert set(artifact.inputs) == {"id", "day", "price", "item", "bought"}
    rows = table(ROWS)
    applied = pyarrow.table(artifact.apply(rows))
    written = pyarrow.parquet.read_table(shop.root / "out")
    assert applied.column_names == artifact.outputs
    for name in applied.column_names:
        assert applied[name].to_pylist() == written[name].to_pylist(), name
    one = artifact.apply_row(rows.slice(17, 1).to_pylist()[0])
    assert one is not None and one["price"] == pytest.approx(written["price"][17].as_py(), rel=1e-15)
    assert one["item"] == written["item"][17].as_py()
    batch = rows.to_batches()[0].slice(3, 5)
    assert pyarrow.table(artifact.apply(batch))["id"].to_pylist() == [3, 4, 5, 6, 7]


def test_what_cannot_be_applied_says_why(shop: Shop) -> None:
    artifact = forebay.load(shop.artifact)
    with pytest.raises(forebay.SpecFault, match="no column `bought`"):
        artifact.apply(table(10).drop(["bought"]))
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        artifact.apply([1, 2, 3])
    with pytest.raises(forebay.Fault, match="there is no artifact here"):
        forebay.load(shop.root)


def test_the_same_run_again_has_nothing_to_do(shop: Shop) -> None:
    again = forebay.run(shop.spec, shop.params, state=shop.state)
    assert again["nothing_new"] is True and again["artifact_path"] == shop.artifact
    assert forebay.fit(shop.spec, shop.params, state=shop.state)["artifact"] == again["artifact"]
    with pytest.raises(forebay.SpecFault) as fault:
        forebay.run(shop.spec, {"out": "x"}, state=shop.state)
    assert "data" in str(fault.value)
