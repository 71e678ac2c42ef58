"""Command lines and sentences: pure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from forebay_airflow import events
from forebay_airflow.command import civil, command_line, instant, pairs


def test_all_options() -> None:
    words = command_line(
        "forebay",
        "run",
        "demand.yaml",
        {
            "param": pairs({"as_of": "2016-05-22", "strict": True, "days": 3}),
            "interval": (
                instant(datetime(2016, 5, 21, 2, tzinfo=timezone(timedelta(hours=2)))),
                "2016-05-22T00:00:00Z",
            ),
            "run_id": "r1",
            "state": "st",
            "memory": "4GiB",
            "threads": 2,
            "deadline": instant(datetime(2016, 5, 22, 6, 30, tzinfo=timezone.utc)),
            "signal_nothing_new": True,
            "signal_ladder": True,
        },
    )
    assert (
        words
        == (
            "forebay run demand.yaml --json --param as_of=2016-05-22 --param strict=true --param days=3 "
            "--interval 2016-05-21T00:00:00Z 2016-05-22T00:00:00Z --run-id r1 --state st --memory 4GiB --threads 2 "
            "--deadline 2016-05-22T06:30:00Z --signal-nothing-new --signal-ladder"
        ).split()
    )


def test_nothing_asked_nothing_said() -> None:
    nothing = {"param": [], "state": None, "signal_ladder": False}
    assert command_line("forebay", "fit", "a b.yaml", nothing) == ["forebay", "fit", "a b.yaml", "--json"]


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        instant(datetime(2016, 5, 21))


@pytest.mark.parametrize(
    ("given", "expect"),
    [
        (datetime(2016, 5, 21, 2, tzinfo=timezone(timedelta(hours=2))), "2016-05-21T00:00:00"),
        ("2016-05-21T02:00:00+02:00", "2016-05-21T00:00:00"),
        ("2016-05-21", "2016-05-21T00:00:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_the_bounds_of_a_backfill_are_civil_times_of_utc(given: datetime | str, expect: str) -> None:
    assert civil(given) == expect


@pytest.mark.parametrize(
    ("line", "expect"),
    [
        ('{"event":"beside","intervals":31,"beside":4}', "31 intervals, 4 at a time"),
        ('{"event":"interval_done","done":1,"intervals":31}', "1 of 31 intervals published"),
        (
            '{"event":"summary","status":"done","nothing_new":false,"intervals":[{"from":"a","to":"b","skipped":true,'
            '"rows":0},{"from":"b","to":"c","skipped":false,"rows":1200}]}',
            "2 intervals: 1 were there already, 1,200 rows written",
        ),
        (
            '{"event":"discovered","source":"demand","spans":1,"rows":20000,"bytes":79290,"version":1}',
            "demand: 20,000 rows, 79.3 kB in 1 span",
        ),
        (
            '{"event":"discovered","source":"logs","spans":2,"rows":null,"bytes":999,"version":1}',
            "logs: 999 B in 2 spans",
        ),
        (
            '{"event":"pass_started","number":1,"total":3,"label":"learn 9 statistics","id":"1","bytes":2000000}',
            "pass 1 of 3: learn 9 statistics, 2.0 MB to read",
        ),
        ('{"event":"progress","rows":60000,"bytes":4000000000000}', "60,000 more rows, 4.0 TB read"),
        ('{"event":"worked","done":60000,"planned":0}', "60,000 more steps of work, 0 more to do"),
        ('{"event":"spilled","bytes":1000}', "1.0 kB spilled to disk"),
        ('{"event":"worker_joined","worker":"n1:7400","slots":4}', "the worker n1:7400 joined"),
        (
            '{"event":"worker_lost","worker":"n1:7400","why":"the connection broke"}',
            "warning: the worker n1:7400 is lost: the connection broke",
        ),
        (
            '{"event":"pass_done","number":1,"reused":false,"rows":20000,"filtered":11}',
            "pass 1 done: 20,000 rows in, 11 filtered",
        ),
        ('{"event":"pass_done","number":2,"reused":true,"rows":0,"filtered":0}', "pass 2 was done before: reused"),
        ('{"event":"warning","message":"late"}', "warning: late"),
        ('{"event":"eta","seconds":12,"version":2}', "eta: seconds 12"),
        ('{"event":"eta","end":"2016-05-22T06:12:00Z","seconds_left":60}', "the run ends at 2016-05-22T06:12:00Z"),
        ('{"event":"pass_reads","bytes":1000,"of":2000}', "1.0 kB of 2.0 kB have to be read"),
        (
            '{"event":"waiting","source":"demand","wanted":"2 files","found":"1"}',
            "waiting for demand: 2 files wanted, 1 found",
        ),
        (
            '{"event":"at_risk","deadline":"2016-05-22T06:00:00Z","end":null,"action":"last_model"}',
            "warning: the deadline 2016-05-22T06:00:00Z is at risk: the run goes on with last_model",
        ),
        ('{"event":"progress","rows":"many"}', "progress: rows many"),
        (
            '{"event":"summary","status":"done","pipeline":"demand","artifact":"a1",'
            '"outputs":[{"sink":"table","path":"out","rows":7}]}',
            "demand: artifact a1; 7 rows to out",
        ),
        (
            '{"event":"summary","status":"done","pipeline":"demand","artifact":"a1","outputs":[],'
            '"ladder":{"rungs":["skip_optional"],"skipped":["extra"]}}',
            "demand: artifact a1; to be on time: skip_optional",
        ),
        (
            '{"event":"summary","status":"failed","fault":{"code":"FB0201","message":"no file","hint":"look",'
            '"file":"x","column":"y"}}',
            "failed: FB0201: no file (x, column y)\nhint: look",
        ),
    ],
)
def test_sentences(line: str, expect: str) -> None:
    event = events.parse(line)
    assert event is not None
    assert events.sentence(event) == expect


@pytest.mark.parametrize("line", ["", "no JSON", "3", '{"a": 1}', '["event"]'])
def test_other_lines_are_no_events(line: str) -> None:
    assert events.parse(line) is None
