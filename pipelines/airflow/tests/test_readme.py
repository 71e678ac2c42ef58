"""The Python of README: each block, as it is written, makes tasks of a DAG."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable
from conftest import PACKAGE

from forebay_airflow.operators import ForebayRunOperator
from forebay_airflow.sensor import ForebayArtifactSensor

BLOCKS = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)

#: What a file of DAGs imports and names before.
NAMES = {
    "DAG": DAG,
    "Asset": Asset,
    "CronDataIntervalTimetable": CronDataIntervalTimetable,
    "ForebayRunOperator": ForebayRunOperator,
    "ForebayArtifactSensor": ForebayArtifactSensor,
    "SPEC": "/etc/forebay/demand.yaml",
}


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 4


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_makes_tasks(block: str) -> None:
    with DAG("readme", schedule=None, start_date=datetime(2016, 5, 1, tzinfo=timezone.utc)):
        exec(compile(block, "README.md", "exec"), dict(NAMES))
