"""Features of an artifact in a service of FastAPI, with as many worker processes as there are cores.

    pip install fastapi uvicorn
    ARTIFACT=.forebay/artifacts/788392f4bedb020e96646acd4a90cb54 uvicorn serve_fastapi:app --workers 4

The workers share the states of series: each maps the files of the directory STATES. `forebay serve` is a server with
more protocols, batches, versions and metrics; embed an artifact where the service does something else, too.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from fastapi import FastAPI, HTTPException

import forebay

# A directory that other users cannot make before: what lies in it answers.
STATES = os.environ.get("STATES") or pathlib.Path.home() / ".cache" / "forebay-states"

artifact = forebay.load(os.environ["ARTIFACT"], states=STATES)
app = FastAPI()


@app.post("/features")
def features(row: dict[str, Any]) -> dict[str, Any]:
    """Answers a row. FastAPI calls this in threads, and the call releases the GIL: they compute at the same time."""
    try:
        return artifact.apply_row(row)
    except forebay.Fault as fault:
        # Clients repeat requests that end with 5xx: a mistake of theirs is 400.
        raise HTTPException(400, str(fault)) from fault
