"""Each night: features of one more day of demand, then whatever follows, once there is something new.

Variables of the environment name the places, so that the same file runs in a test and in production:
DEMAND_SPEC, DEMAND_HISTORY, DEMAND_OUT, DEMAND_STATE, and FOREBAY_BIN if forebay is not on PATH.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task

from forebay_airflow.operators import ForebayRunOperator
from forebay_airflow.sensor import ForebayArtifactSensor

STATE = os.environ.get("DEMAND_STATE", "/var/lib/forebay/demand")
OUT = os.environ.get("DEMAND_OUT", "/srv/features/demand")
FOREBAY = os.environ.get("FOREBAY_BIN", "forebay")
#: Options that the installed forebay is too old for.
WITHOUT = os.environ.get("DEMAND_WITHOUT", "").split()
FEATURES = Asset(f"file://{os.path.abspath(OUT)}")

with DAG(
    "demand_nightly",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2016, 5, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    features = ForebayRunOperator(
        task_id="features",
        spec=os.environ.get("DEMAND_SPEC", "/etc/forebay/demand.yaml"),
        parameters={
            "history": os.environ.get("DEMAND_HISTORY", "/srv/demand"),
            "out": OUT,
            "as_of": "{{ data_interval_start | ds }}",
        },
        interval=None if "--interval" in WITHOUT else "auto",
        signal_nothing_new="--signal-nothing-new" not in WITHOUT,
        state=STATE,
        memory="1GiB",
        forebay=FOREBAY,
        openlineage=os.environ.get("DEMAND_LINEAGE"),
        deferrable=os.environ.get("DEMAND_DEFERRABLE") == "yes",
        outlets=[FEATURES],
    )
    published = ForebayArtifactSensor(
        task_id="published", pipeline="demand", state=STATE, newer_than="interval", timeout=3600, mode="reschedule"
    )

    @task
    def report(summary: dict[str, Any]) -> int:
        """Uses the summary; a task would train here."""
        rows = sum(output["rows"] for output in summary["outputs"])
        print(f"{rows} rows of features, artifact {summary['artifact']}")
        return rows

    features >> published >> report(features.output)
