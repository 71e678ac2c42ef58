"""Nights in a row of the ready-made forecast, by the real operator and the real program: each forecast is whole.

The long form is thirty nights, of which five are late on purpose, and five are killed and begun again:

    FOREBAY_NIGHTS=30 pipelines/airflow/test tests/test_nights.py

With a released program, which has no fail points and is not killed, on more data:

    FOREBAY_BIN=target/release/forebay FOREBAY_NIGHTS=30 FOREBAY_NIGHT_KILLS=0 FOREBAY_NIGHT_SERIES=3000 \\
        FOREBAY_NIGHT_DAYS=365 pipelines/airflow/test tests/test_nights.py
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import PACKAGE, REPOSITORY
from test_dags import states, xcom

NIGHTS = int(os.environ.get("FOREBAY_NIGHTS", "4"))
#: The generated history ends here.
LAST_DAY = date(2016, 5, 22)
#: Days of history before the first night: the longest window and the horizon fit.
DAYS_BEFORE = int(os.environ.get("FOREBAY_NIGHT_DAYS", "45"))
HORIZON = 7
SERIES = int(os.environ.get("FOREBAY_NIGHT_SERIES", "60"))
KILLS = os.environ.get("FOREBAY_NIGHT_KILLS", "1") == "1"

#: Rows of a forecast as text.
READ = """
version: 1
name: read
sources: {{ forecast: {{ parquet: {{ path: {path} }} }} }}
sinks: {{ rows: {{ from: forecast, csv: {{ path: {out} }} }} }}
"""


@pytest.fixture(scope="module")
def days(forebay: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Generated demand, a file for each day."""
    out = tmp_path_factory.mktemp("nights") / "days"
    count = DAYS_BEFORE + NIGHTS
    words = ["--days", str(count), "--series", str(SERIES), "--period", "day", "--last-day", str(LAST_DAY)]
    subprocess.run([forebay, "generate", "demand", *words, "--out", str(out)], check=True, capture_output=True)
    found = sorted(out.glob("*.parquet"))
    assert len(found) == count
    return found


def rows_of(forebay: str, forecast: Path, place: Path) -> list[dict[str, str]]:
    """The rows that readers of a forecast see."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    spec = place / "read.yaml"
    spec.write_text(READ.format(path=forecast, out=place / "rows"))
    words = [forebay, "run", str(spec), "--quiet", "--state", str(place / "state")]
    subprocess.run(words, check=True, capture_output=True)
    rows: list[dict[str, str]] = []
    for part in sorted((place / "rows").iterdir()):
        with part.open() as text:
            rows += csv.DictReader(text)
    return rows


def check_whole(rows: list[dict[str, str]], night: date, made: dict[str, Any]) -> None:
    """Every series has each day of the coming week once, with a prediction that can be used."""
    assert made["known_until"] == str(night), made
    assert len(rows) == made["rows"] == made["series"] * HORIZON
    series = {(row["store_id"], row["item_id"]) for row in rows}
    coming = [str(night + timedelta(days=step)) for step in range(1, HORIZON + 1)]
    expected = {(*one, day) for one in series for day in coming}
    assert {(row["store_id"], row["item_id"], row["date"]) for row in rows} == expected
    assert len(expected) == len(rows), "a series has a day twice"
    predictions = [float(row["prediction"]) for row in rows]
    assert all(math.isfinite(value) and value >= 0 for value in predictions)
    assert any(value > 0 for value in predictions)
    assert {row["known_until"] for row in rows} == {str(night)}
    assert {row["model"] for row in rows} == {made["model"]}


def late(number: int) -> bool:
    """Whether a night begins after its deadline: the last of the short form, and five of thirty."""
    return number % 6 == 5 or (NIGHTS < 6 and number == NIGHTS - 1)


def killed(number: int) -> bool:
    """Whether the program is killed in a night, at another step each time, before it is run again."""
    return KILLS and NIGHTS >= 6 and number % 6 == 3


def test_each_night_publishes_a_whole_forecast(
    airflow: Callable[..., Any], forebay: str, days: list[Path], tmp_path: Path
) -> None:
    """A day of demand comes each night; late nights publish a whole forecast, too, and say how it was made."""
    history, out = tmp_path / "history", tmp_path / "out"
    history.mkdir()
    for day in days[:DAYS_BEFORE]:
        shutil.copy(day, history)
    models, artifacts, last = set(), set(), []
    # The same DAG, but a killed attempt is the last one.
    impatient = tmp_path / "impatient"
    impatient.mkdir()
    dag = (PACKAGE / "examples" / "forecast_nightly.py").read_text()
    assert '"retries": 3' in dag
    (impatient / "forecast_nightly.py").write_text(dag.replace('"retries": 3', '"retries": 0'))
    for number, day in enumerate(days[DAYS_BEFORE:]):
        shutil.copy(day, history)
        night = LAST_DAY - timedelta(days=NIGHTS - 1 - number)
        places = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(PACKAGE / "examples"),
            "FORECAST_SPEC": str(REPOSITORY / "pipelines" / "specs" / "nightly_forecast.yaml"),
            "FORECAST_HISTORY": str(history),
            "FORECAST_OUT": str(out),
            "FORECAST_STATE": str(tmp_path / "state"),
            "FORECAST_PARAMETERS": json.dumps({"epochs": "1", "validation": f"{HORIZON}d"}),
            "FORECAST_DEADLINE": "2016-01-01T00:00:00Z" if late(number) else "",
            "FOREBAY_BIN": forebay,
        }
        if killed(number):
            steps = {**places, "AIRFLOW__CORE__DAGS_FOLDER": str(impatient), "FOREBAY_KILL_AT": str(10 + 4 * number)}
            airflow("dags", "test", "forecast_nightly", str(night + timedelta(days=1)), env=steps)
            assert states()["forecast"] == "failed", "the program was not killed"
            seen = rows_of(forebay, out / "forecast", tmp_path / "read")
            assert seen == last, "a killed night shows something else"
        done = airflow("dags", "test", "forecast_nightly", str(night + timedelta(days=1)), env=places)
        said = done.stdout[-8000:] + done.stderr[-4000:]
        assert states() == {"forecast": "success", "told": "success"}, said
        summary = xcom("forecast")
        (made,) = summary["forecasts"]
        rows = rows_of(forebay, out / "forecast", tmp_path / "read")
        check_whole(rows, night, made)
        assert rows != last, "the forecast of the night before is still there"
        last = rows
        if late(number):
            assert summary["ladder"]["rungs"][-1] in ("last_model", "naive"), summary["ladder"]
            assert "the run degraded to be on time" in done.stdout + done.stderr
            assert summary["ladder"]["rungs"][-1] in xcom("told")
        else:
            assert "ladder" not in summary
            models.add(made["model"])
            artifacts.add(summary["artifact"])
            # The model of a night between two trainings has the artifact of the night that trained it.
            assert made["artifact"] in artifacts
        # Of what was read before, only what the new day reaches is read again, unless statistics are a week old.
        writes = [one for one in summary["passes"] if one["work"] == "write" and one["rows_kept"] > 0]
        renewed = any(not one["held"] for one in summary.get("refits", []))
        assert number == 0 or late(number) or renewed or writes, summary["passes"]
    in_time = sum(not late(number) for number in range(NIGHTS))
    assert len(models) >= 1 and len(artifacts) >= 1 and in_time > 0
