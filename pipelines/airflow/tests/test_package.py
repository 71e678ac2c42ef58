"""What README and pyproject promise."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone

import pytest
from airflow.timetables.interval import CronDataIntervalTimetable
from conftest import PACKAGE, REPOSITORY

import forebay_airflow

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 reads no TOML")

README = (PACKAGE / "README.md").read_text()
PROJECT = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]


def test_versions_agree() -> None:
    """Of the package and the program, and of the Airflow that is promised, asked for and tested."""
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]
    assert PROJECT["version"] == forebay_airflow.__version__ == workspace["version"]
    assert set(re.findall(r"forebay:(\d[\w.]*)", README)) == {workspace["version"]}
    (airflow,) = [need for need in PROJECT["dependencies"] if need.startswith("apache-airflow>=")]
    least = airflow.removeprefix("apache-airflow>=")
    assert f"for Airflow {least} and later" in README
    tested = re.search(r"^airflow=(.+)$", (PACKAGE / "test").read_text(), re.MULTILINE)
    assert tested is not None and tested[1].startswith(f"{least}.")
    for locked in ("requirements-test.txt", "requirements-test.lock"):
        assert re.search(rf"^apache-airflow=={tested[1]}\b", (PACKAGE / locked).read_text(), re.MULTILINE)


def test_every_requirement_has_a_hash() -> None:
    """A release that came after these tests, or another file under a known version, is no part of them."""
    for suite in ("airflow", "python"):
        lock = (REPOSITORY / "pipelines" / suite / "requirements-test.lock").read_text()
        packages = re.findall(r"^\S+==\S+", lock, re.MULTILINE)
        hashes = re.findall(r"^    --hash=sha256:[0-9a-f]{64}$", lock, re.MULTILINE)
        assert 0 < len(packages) == len(hashes)


def test_what_an_index_shows() -> None:
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]
    assert PROJECT["license"] == workspace["license"]
    assert (PACKAGE / "LICENSE").read_text() == (REPOSITORY / "LICENSE").read_text()
    assert PROJECT["urls"]["Homepage"] == workspace["repository"]
    assert {"Framework :: Apache Airflow", "Framework :: Apache Airflow :: Provider"} <= set(PROJECT["classifiers"])
    links = get_paths(PROJECT["urls"])
    assert [path for path in links if not (REPOSITORY / path).exists()] == []


def get_paths(urls: dict[str, str]) -> list[str]:
    """The files of the repository that URLs name."""
    found = (re.search(r"/(?:blob|tree)/main/(.+)$", url) for url in urls.values())
    return [path[1] for path in found if path is not None]


def test_the_interval_of_a_manual_run() -> None:
    """README's table says what Airflow does."""
    timetable = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
    day = r"(\d{4}-\d\d-\d\d)"
    rows = re.findall(rf"^\| by hand, logical date {day} (\d\d:\d\d) \| {day} to {day}", README, re.MULTILINE)
    assert len(rows) == 2
    for date, time, start, end in rows:
        moment = datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=timezone.utc)
        found = timetable.infer_manual_data_interval(run_after=moment)  # type: ignore[arg-type]
        assert (str(found.start.date()), str(found.end.date())) == (start, end)
