"""Each night: tomorrow's forecast of every series, published before a hard hour.

One more day of demand has arrived in the directory of the history. The run brings the features up to date and replaces
the forecast, or leaves the one before. Once a week it learns statistics and a model of all days but the newest ones.
Variables of the environment name the places:
FORECAST_SPEC, FORECAST_HISTORY, FORECAST_OUT, FORECAST_STATE, and FOREBAY_BIN if forebay is not on PATH.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, task

from forebay_airflow.operators import ForebayRunOperator

OUT = os.environ.get("FORECAST_OUT", "/srv/forecast")
FORECAST = Asset(f"file://{os.path.abspath(OUT)}/forecast")

with DAG(
    "forecast_nightly",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2016, 4, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    forecast = ForebayRunOperator(
        task_id="forecast",
        spec=os.environ.get("FORECAST_SPEC", "/etc/forebay/nightly_forecast.yaml"),
        parameters={
            "history": os.environ.get("FORECAST_HISTORY", "/srv/demand"),
            "out": OUT,
            **json.loads(os.environ.get("FORECAST_PARAMETERS", "{}")),
        },
        # The whole history counts: a model of one day's rows would know little.
        interval=None,
        state=os.environ.get("FORECAST_STATE", "/var/lib/forebay/forecast"),
        memory="1GiB",
        deadline=os.environ.get("FORECAST_DEADLINE") or None,
        forebay=os.environ.get("FOREBAY_BIN", "forebay"),
        outlets=[FORECAST],
    )

    @task
    def told(summary: dict[str, Any]) -> str:
        """Uses the summary: orders would be placed here."""
        made = summary["forecasts"][0]
        how = ", ".join(summary.get("ladder", {}).get("rungs", [])) or "in full"
        return f"{made['rows']} forecasts of {made['series']} series, data until {made['known_until']}, made {how}"

    told(forecast.output)
