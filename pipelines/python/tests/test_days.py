"""Lengths of days and months in zones whose clocks change, against pandas' arithmetic of offsets."""

from __future__ import annotations

from pathlib import Path

import pandas
import pyarrow
import pyarrow.parquet
import pytest

import forebay

# Their clocks change in March or April, by an hour, and on Lord Howe Island by half an hour.
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Auckland", "UTC"]

SPEC = """
version: 1
name: days
sources:
  rows: {{ parquet: {{ path: "{root}/rows.parquet" }}, time: t, keys: [k] }}
steps:
  made:
    from: rows
    do:
{steps}
sinks:
  table: {{ from: made, parquet: {{ path: "{root}/out" }}{sink} }}
"""


def series(start: str, periods: int, every: str, zone: str) -> pandas.Series:
    """Numbers 1, 2, ... at local times."""
    index = pandas.date_range(start, periods=periods, freq=every, tz=zone)
    return pandas.Series([float(number) for number in range(1, periods + 1)], index=index)


def daily(zone: str) -> pandas.Series:
    """Local midnights of a year and more: clocks change on the way."""
    return series("2023-02-20", 450, "D", zone)


def hourly(zone: str) -> pandas.Series:
    return series("2024-03-01", 24 * 50, "h", zone)


def run(
    root: Path, rows: pandas.Series, steps: list[str], sink: str = "", interval: tuple[str, str] | None = None
) -> pandas.DataFrame:
    """Runs steps over a series; the rows of the output in order of time."""
    times = pyarrow.array(rows.index.as_unit("us"), pyarrow.timestamp("us", str(rows.index.tz)))
    table = pyarrow.table({"t": times, "k": ["a"] * len(rows), "y": rows.to_numpy()})
    pyarrow.parquet.write_table(table, root / "rows.parquet")
    text = SPEC.format(root=root, steps="\n".join(f"      - {step}" for step in steps), sink=sink)
    (root / "spec.yaml").write_text(text)
    forebay.run(root / "spec.yaml", state=root / "state", interval=interval)
    files = sorted((root / "out").rglob("*.parquet"))
    made = pyarrow.concat_tables([pyarrow.parquet.read_table(file) for file in files]).to_pandas()
    made["t"] = made["t"].dt.tz_convert(rows.index.tz)
    return made.sort_values("t").set_index("t")


def before(time: pandas.Timestamp, offset: pandas.DateOffset | pandas.Timedelta) -> pandas.Timestamp | None:
    """A time earlier; None where the clocks skip it or show it twice, which pandas leaves open."""
    try:
        return time - offset
    except Exception:
        return None


def same(found: pandas.Series, expected: list[float | None]) -> None:
    """Compares values by place; where the expected one is -1 it is left open."""
    assert len(found) == len(expected)
    for time, value, wanted in zip(found.index, found, expected, strict=True):
        if wanted == -1:
            continue
        assert (pandas.isna(value) and wanted is None) or value == wanted, (time, value, wanted)


LENGTHS = {
    "1d": pandas.DateOffset(days=1),
    "7d": pandas.DateOffset(days=7),
    "2w": pandas.DateOffset(weeks=2),
    "24h": pandas.Timedelta(hours=24),
}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("rows", [daily, hourly])
def test_lags_are_those_of_offsets(tmp_path: Path, zone: str, rows: object) -> None:
    known = rows(zone)  # type: ignore[operator]
    by = ", ".join(LENGTHS)
    made = run(tmp_path, known, [f"lag: {{ columns: [y], by: [{by}] }}"])
    values = known.to_dict()
    for text, offset in LENGTHS.items():
        expected: list[float | None] = []
        for time in known.index:
            earlier = before(time, offset)
            expected.append(-1 if earlier is None else values.get(earlier))
        same(made[f"y_lag_{text}"], expected)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("rows", [daily, hourly])
def test_windows_are_those_of_offsets(tmp_path: Path, zone: str, rows: object) -> None:
    known = rows(zone)  # type: ignore[operator]
    over = ", ".join(LENGTHS)
    made = run(tmp_path, known, [f"rolling: {{ columns: [y], compute: [sum], over: [{over}] }}"])
    for text, offset in LENGTHS.items():
        expected: list[float | None] = []
        for place, time in enumerate(known.index):
            begin = before(time, offset)
            if begin is None:
                expected.append(-1)
                continue
            first = known.index.searchsorted(begin, side="right")
            expected.append(float(known.iloc[first : place + 1].sum()))
        same(made[f"y_sum_{text}"], expected)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("end", ["2024-03-09", "2024-03-30", "2024-04-06", "2024-09-28", "2024-10-26", "2024-11-02"])
def test_rows_of_the_future_are_those_of_offsets(tmp_path: Path, zone: str, end: str) -> None:
    known = series("2024-01-31", (pandas.Timestamp(end) - pandas.Timestamp("2024-01-31")).days + 1, "D", zone)
    last = known.index[-1]
    for horizon, every, offset, count in [
        ("14d", "1d", pandas.DateOffset(days=1), 14),
        ("4w", "1w", pandas.DateOffset(weeks=1), 4),
        ("48h", "24h", pandas.Timedelta(hours=24), 2),
    ]:
        root = tmp_path / horizon
        root.mkdir()
        made = run(root, known, [f"future_rows: {{ horizon: {horizon}, every: {every} }}"], ", split: future")
        expected = [last + number * offset for number in range(1, count + 1)]
        assert list(made.index) == expected, horizon


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("day", [1, 15, 30])
def test_months_of_the_future_are_those_of_offsets(tmp_path: Path, zone: str, day: int) -> None:
    first = pandas.Timestamp(2023, 8, day, tz=zone)
    # Months are counted from one row, and not each from the one before: those of the 30th come back from February.
    index = pandas.DatetimeIndex([first + number * pandas.DateOffset(months=1) for number in range(6)])
    known = pandas.Series([float(number) for number in range(6)], index=index)
    made = run(tmp_path, known, ["future_rows: { horizon: 6mo, every: 1mo }"], ", split: future")
    assert list(made.index) == [first + number * pandas.DateOffset(months=1) for number in range(6, 12)]
    root = tmp_path / "lag"
    root.mkdir()
    lagged = run(root, known, ["lag: { columns: [y], by: [1mo, 3mo] }"])
    same(lagged["y_lag_1mo"], [None, 0.0, 1.0, 2.0, 3.0, 4.0])
    same(lagged["y_lag_3mo"], [None, None, None, 0.0, 1.0, 2.0])


@pytest.mark.parametrize("zone", ZONES)
def test_buckets_are_local_days_weeks_and_months(tmp_path: Path, zone: str) -> None:
    known = hourly(zone)
    days = known.index.normalize()
    weeks = pandas.DatetimeIndex([day - pandas.DateOffset(days=day.weekday()) for day in days])
    months = pandas.DatetimeIndex([day.replace(day=1) for day in days])
    for every, starts in [("1d", days), ("1w", weeks), ("1mo", months)]:
        root = tmp_path / every
        root.mkdir()
        step = f"aggregate: {{ time: t, every: {every}, compute: {{ n: {{ count: '*' }}, y: {{ sum: y }} }} }}"
        made = run(root, known, [step])
        expected = known.groupby(starts).agg(["count", "sum"])
        assert list(made.index) == list(expected.index), every
        assert made["n"].to_list() == expected["count"].to_list(), every
        assert made["y"].to_list() == expected["sum"].to_list(), every


@pytest.mark.parametrize("zone", ZONES)
def test_intervals_are_local_days(tmp_path: Path, zone: str) -> None:
    known = hourly(zone)
    for begin, end in [("2024-03-09", "2024-03-11"), ("2024-03-30", "2024-04-01"), ("2024-04-06", "2024-04-08")]:
        root = tmp_path / begin
        root.mkdir()
        made = run(root, known, ['filter: "y > 0"'], interval=(begin, end))
        first = pandas.Timestamp(begin, tz=zone)
        expected = known[(known.index >= first) & (known.index < pandas.Timestamp(end, tz=zone))]
        assert made["y"].to_list() == expected.to_list(), begin
