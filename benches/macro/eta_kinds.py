"""Ten kinds of run, and how well each foretells its end; and nights whose deadline leaves them time to spare.

A kind runs anew several times, each time with nothing but what Forebay remembers of the costs of the runs before. A
forecast is wrong by the difference of the foretold time of the whole run and the real one, as a share of the real one.
From a third of the way on it must stay within 30 % in the second run and all later ones.

A night with a training and a forecast gets 1.3 times the time that it took without a deadline. None may do less than
its spec says."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import kept, table, tail

# The greatest error of a forecast, as a share of the run's time.
WRONG_MAX = 0.30

# The share of a run after which its forecasts count.
FROM = 1 / 3

# A run must last so many seconds for its forecasts to be judged: they come once a second.
SECONDS_LEAST = 3.0

# Of the time that a night takes, what its deadline leaves.
DEADLINE = 1.3

HEAD = "version: 1\nname: {name}\nparams: {{ history: {{ type: path }}, out: {{ type: path }} }}\n"

PARQUET = 'sources: {{ demand: {{ parquet: {{ path: "${{history}}" }}, time: date, keys: [store_id, item_id] }} }}\n'

STEPS = "steps:\n  f:\n    from: {source}\n    do:\n{steps}"

TABLE = 'sinks: {{ t: {{ from: f, parquet: {{ path: "${{out}}/t" }} }} }}\n'

KNOWN = '      - filter: "qty IS NOT NULL AND price IS NOT NULL"\n'

WINDOWS = "      - lag: {{ columns: [qty], by: [7d, 28d] }}\n      - rolling: {{ columns: [qty], compute: [mean, std], over: [7d, 28d], gap: 7d }}\n"

SCALES = "      - standardize: {{ columns: [price] }}\n      - quantiles: {{ columns: [qty], q: 20 }}\n"

FUTURE = "      - filter: \"qty IS NOT NULL\"\n      - future_rows: {{ horizon: 7d, every: 1d, carry: [price] }}\n      - lag: {{ columns: [qty], by: [7d, 14d] }}\n      - drop: [promotion, event]\n"

LABEL = "label: {{ column: qty, horizon: 7d, known: [price, category, department] }}\n"

TREES = (
    'sinks:\n  net: {{ from: f, train: {{ path: "${{out}}/net", model: gbdt, label: qty, '
    "dense: [price{features}], rounds: {rounds} }} }}\n"
)

NETWORK = (
    'sinks:\n  net: {{ from: f, train: {{ path: "${{out}}/net", model: mlp, label: qty, '
    "dense: [price], epochs: {rounds} }} }}\n"
)

FORECAST = '  p: {{ from: f, predict: {{ model: net, where: future, path: "${{out}}/forecast", season: 7d }} }}\n'

TEXT = 'sources: {{ demand: {{ {format}: {{ path: "${{history}}" }}, time: date, keys: [store_id, item_id] }} }}\n'

JOIN = (
    "steps:\n  totals: {{ sql: \"SELECT store_id, date, sum(qty) AS total FROM demand GROUP BY store_id, date\" }}\n"
    "  f:\n    from: demand\n    do:\n      - join: {{ with: totals, on: [store_id, date] }}\n"
)

SQL = (
    "steps: {{ f: {{ sql: \"SELECT *, row_number() OVER (PARTITION BY item_id ORDER BY qty DESC, date, store_id) AS place "
    'FROM demand" }} }}\n'
)

AGGREGATE = "      - aggregate: {{ by: [item_id, date], compute: {{ total: {{ sum: qty }}, price: {{ mean: price }} }} }}\n"


def kinds(rounds):
    """The specs of all kinds, by name."""
    features = ", qty_lag_7d, qty_lag_14d"
    return {
        "write": PARQUET + STEPS.format(source="demand", steps="      - derive: {{ d: qty * price }}\n") + TABLE,
        "learn": PARQUET + STEPS.format(source="demand", steps=SCALES) + TABLE,
        "windows": PARQUET + STEPS.format(source="demand", steps=WINDOWS + SCALES) + TABLE,
        "csv": TEXT.format(format="csv") + STEPS.format(source="demand", steps=SCALES) + TABLE,
        "aggregate": PARQUET + STEPS.format(source="demand", steps=AGGREGATE) + TABLE,
        "join": PARQUET + JOIN + TABLE,
        "sql": PARQUET + SQL + TABLE,
        "trees": PARQUET + STEPS.format(source="demand", steps=KNOWN) + TREES.format(features="", rounds=rounds),
        "network": PARQUET
        + STEPS.format(source="demand", steps=KNOWN)
        + NETWORK.format(rounds=max(1, rounds // 20)),
        "forecast": PARQUET
        + STEPS.format(source="demand", steps=FUTURE)
        + LABEL
        + TREES.format(features=features, rounds=rounds)
        + FORECAST,
    }


def as_csv(data, out):
    """The files of a folder as CSV."""
    import pyarrow.csv
    import pyarrow.parquet

    if not out.exists():
        out.mkdir(parents=True)
        for path in sorted(data.glob("*.parquet")):
            pyarrow.csv.write_csv(pyarrow.parquet.read_table(path), out / f"{path.stem}.csv")
    return out


class Runs:
    """Runs of one spec, each anew but for the costs that Forebay remembers."""

    def __init__(self, options, forebay, name, text, data, scratch):
        self.folder = scratch / name
        self.folder.mkdir(parents=True)
        self.name = name
        (self.folder / "spec.yaml").write_text(HEAD.format(name=name) + text.replace("{{", "{").replace("}}", "}"))
        self.words = [forebay, "run", self.folder / "spec.yaml", "--json", "--param", f"history={data}"]
        self.words += ["--param", f"out={self.folder / 'out'}", "--state", self.folder / "state"]
        self.words += ["--memory", options.memory, "--threads", options.threads]

    def run(self, *more):
        """The time that a run took, its forecasts (when, and of how much in all), and its summary."""
        old = [self.folder / "out", *(path for path in (self.folder / "state").glob("*") if path.name != "costs")]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        os.sync()  # What others wrote is not this one's to wait for.
        log = self.folder / "stderr"
        began = time.perf_counter()
        foretold, event = [], {}
        with log.open("w") as stderr:
            words = [str(word) for word in [*self.words, *more]]
            child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
            for line in child.stdout:
                event = json.loads(line)
                if event["event"] == "eta":
                    at = time.perf_counter() - began
                    foretold.append((at, at + event["seconds_left"]))
        if child.wait() != 0:
            sys.exit(f"`{self.name}` ended with {child.returncode}: {tail(log)}")
        return time.perf_counter() - began, foretold, event


def history(options, forebay, scratch):
    what = ["demand", "--days", options.kind_days, "--series", options.kind_series, "--period", "day", "--seed", "1"]
    data = (options.work or scratch) / f"demand-{options.kind_series}-{options.kind_days}"
    return kept(data, " ".join(map(str, what)) + "\n", [forebay, "generate", *what, "--out", data, "--replace"])


def measure_kinds(options, forebay):
    """What went wrong with forecasts of ten kinds of run."""
    scratch = Path(tempfile.mkdtemp(prefix="forebay-eta-", dir=options.work)).resolve()
    lines = [("kind", "run", "wall s", "off its runs %", "forecasts", "wrong at most %", "median %")]
    problems = []
    try:
        data = history(options, forebay, scratch)
        texts = as_csv(data, data.with_name(f"{data.name}-csv"))
        for name, text in kinds(options.rounds).items():
            runs = Runs(options, forebay, name, text, texts if name == "csv" else data, scratch)
            before = []
            for number in range(1, options.kind_runs + 1):
                took, foretold, _ = runs.run()
                # A run that takes longer than those before it cannot be foretold by them.
                off = 100 * (took / statistics.median(before) - 1) if before else 0.0
                before.append(took)
                wrong = [abs(whole - took) / took for at, whole in foretold if at >= FROM * took]
                worst, middle = max(wrong, default=0.0), statistics.median(wrong) if wrong else 0.0
                shares = (f"{100 * worst:.1f}", f"{100 * middle:.1f}") if wrong else ("-", "-")
                lines.append((name, str(number), f"{took:.2f}", f"{off:+.1f}", str(len(wrong)), *shares))
                if number > 1 and took >= SECONDS_LEAST and (not wrong or worst > WRONG_MAX):
                    problems.append(
                        f"{name}, run {number}: wrong by {100 * worst:.1f} %, {len(wrong)} forecasts; "
                        f"it took {off:+.1f} % of the time of the runs before it"
                    )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("forecasts from a third of the way on, beside the time that the run took")
    table(lines)
    return problems


def measure_nights(options, forebay):
    """The nights that did less than their spec says, although their deadline left them time to spare."""
    scratch = Path(tempfile.mkdtemp(prefix="forebay-eta-", dir=options.work)).resolve()
    ladder = "deadline: { ladder: [reuse_states, last_model, naive] }\n"
    problems, times = [], []
    try:
        data = history(options, forebay, scratch)
        runs = Runs(options, forebay, "night", kinds(options.rounds)["forecast"] + ladder, data, scratch)
        usual, _, _ = runs.run()
        for night in range(options.nights):
            took, _, summary = runs.run(f"--deadline={DEADLINE * usual:.1f}s")
            times.append(took)
            if summary.get("ladder"):
                problems.append(f"night {night}: {summary['ladder']['rungs']} after {took:.2f} of {DEADLINE * usual:.1f} s")
            # The next deadline is of the middle one of the nights so far.
            usual = statistics.median(times)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if times:
        print(f"{len(times)} nights of {min(times):.2f} to {max(times):.2f} s, {len(problems)} of them degraded")
    return problems
