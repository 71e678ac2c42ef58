"""Each night: the features of one more day.

The package forebay-airflow and the program forebay have to be on the workers. Replace `data` by the place of the
history, and `out` by that of the features.
"""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable

from forebay_airflow.operators import ForebayRunOperator

PROJECT = Path(__file__).resolve().parent.parent

with DAG(
    "NAME_nightly",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2016, 5, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    ForebayRunOperator(
        task_id="features",
        spec=str(PROJECT / "NAME.yaml"),
        parameters={
            "data": str(PROJECT / "data"),
            "out": str(PROJECT / "out/nightly"),
        },
        state=str(PROJECT / ".forebay"),
    )
