"""The notebook of the examples, run as it is."""

from __future__ import annotations

import json
import os
import pathlib
import sysconfig
from typing import Any

import pytest

TOUR = pathlib.Path(__file__).parents[1] / "examples" / "tour.ipynb"


def shown(cells: list[Any], begin: str) -> str:
    """What the cell that begins so shows, as a page."""
    [cell] = [cell for cell in cells if cell["source"].startswith(begin)]
    return "".join(output["data"].get("text/html", "") for output in cell["outputs"] if "data" in output)


def test_the_tour(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    text = TOUR.read_text()
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"]), "outputs are not kept"
    # As in an activated environment: `!forebay` is the program of this package.
    monkeypatch.setenv("PATH", os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    notebook = nbformat.reads(text, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    cells = client.execute()["cells"]
    assert ">impute, log1p, standardize, vocabulary</td>" in shown(cells, "import forebay")
    assert shown(cells, "pipeline.preview").count("<tr>") == 1 + 5
    assert "<pre>clicks: " in shown(cells, "pipeline.explain")
    assert "<td>20,000</td>" in shown(cells, "summary = ")
    assert "vocabulary" in shown(cells, "artifact = ")


def test_progress_in_a_notebook(tmp_path: pathlib.Path) -> None:
    """One output, which is written again and is empty in the end."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = """
from forebay import _progress
hear, close = _progress.listener(None)
_progress.ProgressLine.every_s = 0.0
hear('{"event": "pass_started", "number": 1, "total": 2, "label": "learn <all>", "bytes": 10}')
hear('{"event": "warning", "message": "late"}')
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code), nbformat.v4.new_code_cell("close()")])
    done = nbclient.NotebookClient(notebook, timeout=60).execute()
    pages = [output["data"]["text/html"] for output in done["cells"][0]["outputs"]]
    assert pages == ["", "<code>warning: late</code>"]
