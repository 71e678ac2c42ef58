"""Single operations over demand: Forebay beside DuckDB, Polars and scikit-learn, each in a process of its own, results compared.

All read the same Parquet files and write Parquet, but for the cases of other formats. A ratio is of medians over the rounds.
A peer that lacks an operation has no figures."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import build, generate, kept, limits, measured, size, table, tail, warm

HERE = Path(__file__).resolve().parent
SERIES = "store_id, item_id"


def scaled(column):
    """A column in five scales, in SQL."""
    above = f"({column} - {column}_least) / ({column}_most - {column}_least)::DOUBLE"
    return (
        f"({column} - {column}_mean) / {column}_spread AS {column}_z, {above} AS {column}_unit, {above} * 2 - 1 AS {column}_both, "
        f"{column} / {column}_size::DOUBLE AS {column}_share, ln(1 + {column}) AS {column}_log"
    )


def learned(column):
    """What the scales of a column need, in SQL."""
    return (
        f"favg({column}) AS {column}_mean, stddev_pop({column}) AS {column}_spread, min({column}) AS {column}_least, "
        f"max({column}) AS {column}_most, max(abs({column})) AS {column}_size"
    )


# By case: the steps or the query of Forebay, the query that DuckDB runs over `rows`, and the steps of another table that is joined.
CASES = {
    "integers": (
        "{ date_parts: { columns: [date], parts: [day_of_week] } }, { aggregate: { by: [store_id, item_id, date_day_of_week], "
        "compute: { total: { sum: qty }, n: { count: qty } } } }",
        f"SELECT {SERIES}, isodow(date) - 1 AS date_day_of_week, sum(qty)::BIGINT AS total, count(qty) AS n FROM rows GROUP BY ALL",
    ),
    "floats": (
        "{ aggregate: { by: [store_id, item_id], compute: { average: { mean: price }, total: { sum: price } } } }",
        f"SELECT {SERIES}, avg(price) AS average, sum(price) AS total FROM rows GROUP BY ALL",
    ),
    "spread": (
        "{ aggregate: { by: [store_id, item_id], compute: { std_qty: { std: qty }, std_price: { std: price } } } }",
        f"SELECT {SERIES}, stddev_samp(qty) AS std_qty, stddev_samp(price) AS std_price FROM rows GROUP BY ALL",
    ),
    "texts": (
        "{ aggregate: { by: [store_id, department], compute: { least: { min: item_id }, greatest: { max: item_id }, "
        "from: { min: date }, dear: { max: price } } } }",
        "SELECT store_id, department, min(item_id) AS least, max(item_id) AS greatest, min(date) AS from, "
        "max(price) AS dear FROM rows GROUP BY ALL",
    ),
    "distinct": (
        "{ aggregate: { by: [store_id], compute: { items: { n_unique: item_id }, prices: { n_unique: price } } } }",
        "SELECT store_id, count(DISTINCT item_id) AS items, count(DISTINCT price) AS prices FROM rows GROUP BY ALL",
    ),
    "approx_distinct": (
        "{ aggregate: { by: [store_id], compute: { items: { approx_n_unique: item_id }, prices: { approx_n_unique: price } } } }",
        "SELECT store_id, approx_count_distinct(item_id) AS items, approx_count_distinct(price) AS prices FROM rows GROUP BY ALL",
    ),
    "quantiles": (
        "{ aggregate: { by: [store_id, item_id], compute: { middle: { median: price }, "
        "high: { quantile: { column: price, q: 0.9 } } } } }",
        f"SELECT {SERIES}, median(price) AS middle, quantile_cont(price, 0.9) AS high FROM rows GROUP BY ALL",
    ),
    "many_groups": (
        "{ aggregate: { by: [store_id, item_id, date], compute: { total: { sum: qty }, average: { mean: price } } } }",
        f"SELECT {SERIES}, date, sum(qty)::BIGINT AS total, avg(price) AS average FROM rows GROUP BY ALL",
    ),
    "dedupe": (
        "{ select: [store_id, item_id, price] }, { dedupe: { keys: [store_id, item_id, price] } }",
        f"SELECT DISTINCT {SERIES}, price FROM rows",
    ),
    "dedupe_all": (
        "{ dedupe: { keys: [store_id, item_id, date] } }",
        f"SELECT DISTINCT ON ({SERIES}, date) * FROM rows",
    ),
    "weighted": (
        "{ aggregate: { by: [store_id, item_id], compute: { paid: { weighted_mean: { column: price, weight: qty } } } } }",
        f"SELECT {SERIES}, sum(price * qty) / nullif(sum(qty) FILTER (price IS NOT NULL), 0) AS paid FROM rows GROUP BY ALL",
    ),
    "by_time": (
        "{ aggregate: { by: [store_id, item_id], compute: { before: { first_by: { column: price, time: date } }, "
        "now: { last_by: { column: price, time: date } } } } }",
        f"SELECT {SERIES}, arg_min(price, date) AS before, arg_max(price, date) AS now FROM rows GROUP BY ALL",
    ),
    "top": (
        "{ aggregate: { by: [store_id, item_id], compute: { often: { top_k: { column: qty, k: 3 } } } } }",
        f"SELECT {SERIES}, list(qty ORDER BY n DESC, qty)[:3] AS often FROM (SELECT {SERIES}, qty, count(*) AS n FROM rows "
        "WHERE qty IS NOT NULL GROUP BY ALL) GROUP BY ALL",
    ),
    "lists": (
        "{ aggregate: { by: [store_id, item_id], compute: { sold: { list: { column: qty, limit: 30, beyond: truncate } } } } }",
        f"SELECT {SERIES}, list(qty ORDER BY date) FILTER (qty IS NOT NULL)[:30] AS sold FROM rows GROUP BY ALL",
    ),
    "join_small": (
        "{ join: { with: other, on: [store_id, item_id] } }, { select: [store_id, item_id, date, usual] }",
        f"SELECT {SERIES}, date, usual FROM rows JOIN (SELECT {SERIES}, avg(price) AS usual FROM rows GROUP BY ALL) "
        f"USING ({SERIES})",
        "{ aggregate: { by: [store_id, item_id], compute: { usual: { mean: price } } } }",
    ),
    "join_large": (
        "{ join: { with: other, on: [store_id, item_id, date], strategy: shuffle } }, "
        "{ select: [store_id, item_id, date, qty, paid] }",
        f"SELECT {SERIES}, date, qty, paid FROM rows LEFT JOIN (SELECT {SERIES}, date, price AS paid FROM rows) "
        f"USING ({SERIES}, date)",
        "{ select: [store_id, item_id, date, price] }, { rename: { price: paid } }",
    ),
    "join_as_of": (
        "{ as_of_join: { with: other } }, { select: [store_id, item_id, date, promoted] }",
        f"SELECT {SERIES}, date, promoted FROM rows ASOF LEFT JOIN (SELECT {SERIES}, date, price AS promoted FROM rows "
        f"WHERE promotion) USING ({SERIES}, date)",
        '{ filter: "promotion" }, { select: [store_id, item_id, date, price] }, { rename: { price: promoted } }',
    ),
    "lag": (
        "{ lag: { columns: [qty], by: [7d] } }, { select: [store_id, item_id, date, qty_lag_7d] }",
        f"SELECT {SERIES}, date, first_value(qty) OVER (PARTITION BY {SERIES} ORDER BY date RANGE BETWEEN INTERVAL 7 DAYS "
        "PRECEDING AND INTERVAL 7 DAYS PRECEDING) AS qty_lag_7d FROM rows",
    ),
    "rolling": (
        "{ rolling: { columns: [price], compute: [mean], over: [28d] } }, "
        "{ select: [store_id, item_id, date, price_mean_28d] }",
        f"SELECT {SERIES}, date, avg(price) OVER (PARTITION BY {SERIES} ORDER BY date RANGE BETWEEN INTERVAL 27 DAYS "
        "PRECEDING AND CURRENT ROW) AS price_mean_28d FROM rows",
    ),
    "standardize": (
        "{ standardize: { columns: [price] } }, { select: [store_id, item_id, date, price] }",
        f"SELECT {SERIES}, date, (price - middle) / spread AS price FROM rows, "
        "(SELECT avg(price) AS middle, stddev_pop(price) AS spread FROM rows)",
    ),
    "robust_mad": (
        "{ robust_scale: { columns: [price], spread: mad, exact: true } }, { select: [store_id, item_id, date, price] }",
        f"SELECT {SERIES}, date, (price - middle) / (deviation / 0.6744897501960817) AS price FROM rows, "
        "(SELECT median(price) AS middle, mad(price) AS deviation FROM rows)",
    ),
    "mean_range": (
        "{ standardize: { columns: [price], spread: range } }, { select: [store_id, item_id, date, price] }",
        f"SELECT {SERIES}, date, (price - middle) / reach AS price FROM rows, "
        "(SELECT favg(price) AS middle, max(price) - min(price) AS reach FROM rows)",
    ),
    "winsorize_mean": (
        "{ winsorize: { columns: [price], around: mean, fold: 1 } }, { select: [store_id, item_id, date, price] }",
        f"SELECT {SERIES}, date, least(greatest(price, middle - spread), middle + spread) AS price FROM rows, "
        "(SELECT favg(price) AS middle, stddev_pop(price) AS spread FROM rows)",
    ),
    "keep_best": (
        "{ keep_best: { columns: [price, qty], count: 1 } }, { select: [store_id, item_id, date, price, qty] }",
        f"SELECT {SERIES}, date, CASE WHEN of_price > of_qty THEN price END AS price, CASE WHEN of_qty >= of_price THEN qty END AS qty "
        "FROM rows, (SELECT var_pop(price) AS of_price, var_pop(qty) AS of_qty FROM rows)",
    ),
    # Ten scaled columns of two: what they need is learned in one pass.
    "scalers": (
        "{ cast: { columns: { qty: float64 } } }, { standardize: { columns: [price, qty], suffix: _z } }, "
        "{ min_max: { columns: [price, qty], suffix: _unit } }, { min_max: { columns: [price, qty], lo: -1, suffix: _both } }, "
        "{ max_abs: { columns: [price, qty], suffix: _share } }, { log1p: { columns: [price, qty], suffix: _log } }, "
        '{ select: [store_id, item_id, date, "price_*", "qty_*"] }',
        f"SELECT {SERIES}, date, {scaled('price')}, {scaled('qty')} FROM rows, "
        f"(SELECT {learned('price')}, {learned('qty')} FROM rows)",
    ),
    "impute": (
        "{ impute: { columns: [qty], with: mean } }, { select: [store_id, item_id, date, qty] }",
        f"SELECT {SERIES}, date, coalesce(qty, middle) AS qty FROM rows, (SELECT avg(qty) AS middle FROM rows)",
    ),
    "bins": (
        "{ k_bins: { columns: [price], bins: 20 } }, { select: [store_id, item_id, date, price] }",
        f"SELECT {SERIES}, date, CASE WHEN price IS NOT NULL THEN least(floor((price - low) / ((high - low) / 20)), 19)::INTEGER END "
        "AS price FROM rows, "
        "(SELECT min(price) AS low, max(price) AS high FROM rows)",
    ),
    "ordinal": (
        "{ ordinal: { columns: [department, category], suffix: _id } }, { select: [store_id, item_id, date, department_id, category_id] }",
        f"SELECT {SERIES}, date, department_id, category_id FROM rows "
        "JOIN (SELECT department, row_number() OVER (ORDER BY department) - 1 AS department_id FROM "
        "(SELECT DISTINCT department FROM rows)) USING (department) "
        "JOIN (SELECT category, row_number() OVER (ORDER BY category) - 1 AS category_id FROM "
        "(SELECT DISTINCT category FROM rows)) USING (category)",
    ),
    "polynomial": (
        "{ cast: { columns: { qty: float64 } } }, { polynomial: { columns: [price, qty], degree: 2 } }, "
        "{ select: [store_id, item_id, date, price_2, price_x_qty, qty_2] }",
        f"SELECT {SERIES}, date, price * price AS price_2, price * qty AS price_x_qty, qty::DOUBLE * qty AS qty_2 FROM rows",
    ),
    "sql_groups": (
        "SELECT store_id, department, sum(qty) AS total, avg(price) AS average FROM rows GROUP BY store_id, department",
        "SELECT store_id, department, sum(qty)::BIGINT AS total, avg(price) AS average FROM rows GROUP BY ALL",
    ),
    "sql_window": (
        "SELECT store_id, item_id, date, sum(qty) OVER (PARTITION BY store_id, item_id ORDER BY date) AS so_far FROM rows",
        f"SELECT {SERIES}, date, (sum(qty) OVER (PARTITION BY {SERIES} ORDER BY date))::BIGINT AS so_far FROM rows",
    ),
}

# Why a case takes more than 1.5 times as long as DuckDB.
REASONS = {
    "approx_distinct": "Numbers up to 1,023 are exact, larger ones have an error of 1.63 %.",
    "many_groups": "Sums of floats are exact, and rows come out in the order of their keys.",
    "join_large": "Both sides are written to disk (`strategy: shuffle`) and rows keep their order; DuckDB holds a table in memory.",
    "sql_groups": "DataFusion runs the query and is started for it; sums of floats are exact.",
    "sql_window": "DataFusion runs the query: its window operator alone takes 57 % of the time. The rows are then sorted by all columns, "
    "so that each run gives the same files.",
}

# By case: a query for the right values, as floats, where those of DuckDB's usual functions are less exact.
EXACT = {
    "approx_distinct": "SELECT store_id, count(DISTINCT item_id)::DOUBLE AS items, count(DISTINCT price)::DOUBLE AS prices "
    "FROM rows GROUP BY ALL",
    # Sums with compensation, in two passes.
    "standardize": "WITH mean AS (SELECT favg(price) AS middle FROM rows), spread AS (SELECT middle, "
    "sqrt(favg((price - middle) * (price - middle))) AS spread FROM rows, mean GROUP BY middle) "
    f"SELECT {SERIES}, date, (price - middle) / spread AS price FROM rows, spread",
}

# How far an estimate may be from what it estimates: four standard errors of 1.63 %.
TOLERANCES = {"approx_distinct": 0.066}

# Sinks and sources: all rows are written in a format, or read from it for the greatest value of each column.
FORMATS = {
    "write_parquet": ("parquet", "parquet"),
    "write_csv": ("parquet", "csv"),
    "write_arrow": ("parquet", "arrow"),
    "read_parquet": ("parquet", "parquet"),
    "read_csv": ("csv", "parquet"),
    "read_json": ("json", "parquet"),
    "read_arrow": ("arrow", "parquet"),
}
COLUMNS = ("date", "store_id", "item_id", "category", "department", "qty", "price", "promotion", "event")

# What a peer cannot do. DuckDB reads and writes Arrow files by an extension alone, which is not part of it.
LACKING = {"duckdb": {"write_arrow", "read_arrow"}, "polars": set()}

# What scikit-learn has.
SCIKIT_LEARN = {"standardize", "scalers", "impute", "bins", "ordinal", "polynomial"}

# By contender: its name in the table.
PEERS = {"duckdb": "DuckDB", "polars": "Polars", "sklearn": "scikit-learn"}


def of_format(name):
    """The steps of Forebay and the query of DuckDB for a case of a format."""
    if name.startswith("write_"):
        return "", "FROM rows"
    named = ", ".join(f"{column}: {{ max: {column} }}" for column in COLUMNS)
    greatest = ", ".join(f"max({column}) AS {column}" for column in COLUMNS)
    return f"{{ aggregate: {{ compute: {{ {named} }} }} }}", f"SELECT {greatest} FROM rows"


def spec(steps, other, source, sink):
    """`source` and `sink` are formats with their paths."""
    made = f"sql: {json.dumps(steps)}" if steps.startswith("SELECT") else f"from: rows, do: [{steps}]"
    nodes = [f"made: {{ {made} }}"] + [f"other: {{ from: rows, do: [{one}] }}" for one in other]
    source, sink = (f"{form}: {{ path: {json.dumps(str(path))} }}" for form, path in (source, sink))
    return (
        f"version: 1\nname: operation\nsources:\n  rows: {{ {source}, time: date, keys: [store_id, item_id] }}\n"
        f"steps: {{ {', '.join(nodes)} }}\nsinks: {{ table: {{ from: made, {sink} }} }}\n"
    )


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/operations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"{', '.join([*CASES, *FORMATS])} [all]")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate [20000000]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--rounds", type=int, default=3, help="all in turn, so many times; the table has medians [3]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for each [all]")
    parser.add_argument("--memory", default="4GiB", help="limit for each [4GiB]")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES) - set(FORMATS):
        parser.error(f"there is no case {', '.join(unknown)}")
    return options


def rows_in(options, form, data, scratch):
    """The rows in a format."""
    if form == "parquet":
        return data
    out = (options.work or scratch) / f"{data.name}-{form}"
    script = HERE / ("operations_polars.py" if form == "arrow" else "operations_duckdb.py")
    return kept(out, f"{data.name} as {form}\n", [sys.executable, script, "prepare", form, data, out / f"rows.{form}"])


def commands(options, name, data, home):
    """The command of each contender, and the file that it writes."""
    steps, query, *other = CASES.get(name) or of_format(name)
    form, into = FORMATS.get(name, ("parquet", "parquet"))
    (home / "spec.yaml").write_text(spec(steps, other, (form, data), (into, home / "forebay")))
    budget = size(options.memory)
    run = [options.forebay, "run", home / "spec.yaml", "--state", home / "state", "--memory", options.memory]
    duckdb = [sys.executable, HERE / "operations_duckdb.py", "run", query, data, form, home / f"duckdb.{into}"]
    polars = [sys.executable, HERE / "operations_polars.py", "run", name, data, home / f"polars.{into}", form]
    every = {
        "forebay": [*run, "--threads", options.threads, "--json"],
        "duckdb": [*duckdb, options.threads, budget >> 20],
        "polars": polars,
    }
    if name in SCIKIT_LEARN:
        every["sklearn"] = [sys.executable, HERE / "operations_sklearn.py", name, data, home / "sklearn.parquet"]
    return {who: command for who, command in every.items() if name not in LACKING.get(who, ())}


def compete(options, name, data, scratch):
    """The costs of all, and what is wrong with the results."""
    costs, problems = {}, []
    form, _ = FORMATS.get(name, ("parquet", "parquet"))
    rows = rows_in(options, form, data, scratch)
    for number in range(options.rounds):
        home = scratch / f"{name}-{number}"
        home.mkdir()
        for contender, command in commands(options, name, rows, home).items():
            cost = measured(command, home / f"{contender}.log", limits(options.threads, size(options.memory)))
            if cost.code != 0:
                problem = f"{name}: {contender} ended with {cost.code}:\n{tail(home / f'{contender}.log')}"
                problems += [problem] if number == 0 else []
                continue
            costs.setdefault(contender, []).append(cost)
        if number == 0:
            problems += compared(options, name, data, home, costs)
        shutil.rmtree(home)
    return costs, problems


def compared(options, name, data, home, costs):
    """What is wrong with the rows of the contenders: those of DuckDB are right, or all rows where it has none."""
    script, tolerance = HERE / "operations_duckdb.py", 1e-9
    into = FORMATS.get(name, ("parquet", "parquet"))[1]
    expected = home / f"duckdb.{into}"
    problems = []

    def call(*words):
        told = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        return f"{told.stdout}{told.stderr[-2000:]}" if told.returncode else ""

    exact = EXACT.get(name) or (of_format(name)[1] if name in FORMATS else None)
    if exact:
        expected = home / "exact.parquet"
        tolerance = TOLERANCES.get(name, tolerance)
        problems.append(call(script, "run", exact, data, "parquet", expected, options.threads, size(options.memory) >> 20))
    for who in costs:
        if who == "duckdb" and not exact:
            continue
        found = home / "forebay" if who == "forebay" else home / f"{who}.{into}"
        if into == "arrow":
            converted = home / f"{who}-converted.parquet"
            problems.append(call(HERE / "operations_polars.py", "convert", found, converted))
            found = converted
        # Peers have errors of their own.
        if who == "forebay" or name not in EXACT:
            problem = call(script, "compare", found, into if into != "arrow" else "parquet", expected, tolerance)
            problems.append(f"{who}: {problem}" if problem else "")
    return [f"{name}: {problem}" for problem in problems if problem]


def main():
    options = arguments()
    options.forebay = build(options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-operations-", dir=options.work))
    peers = PEERS.values()
    try:
        data = generate(options.forebay, "demand", options.rows, (options.work or scratch) / f"demand-{options.rows}")
        warm(sorted(data.glob("*.parquet")))
        lines, problems = [], []
        head = ("", "CPU s", *peers, *(f"to {peer}" for peer in peers), "wall s", *peers, "peak MiB", *peers)
        for name in options.cases or [*CASES, *FORMATS]:
            costs, wrong = compete(options, name, data, scratch)
            problems += wrong
            if "forebay" in costs:
                lines.append((name, *figures(costs)))
                print(*lines[-1], flush=True)
        print(f"\n{options.rows:,} rows of demand, {options.threads} threads, {options.memory}")
        table([head, *lines])
        for name, reason in REASONS.items():
            if any(line[0] == name for line in lines):
                print(f"{name}: {reason}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for problem in problems:
        print(f"FAILED  {problem}")
    sys.exit(1 if problems else 0)


def figures(costs):
    """The medians of a case as cells."""

    def middle(who, figure):
        return statistics.median(getattr(cost, figure) for cost in costs[who]) if who in costs else None

    def cells(figure, digits):
        found = (middle(who, figure) for who in ("forebay", *PEERS))
        return ["-" if value is None else f"{value:.{digits}f}" for value in found]

    own = middle("forebay", "cpu")
    ratios = [f"{own / other:.2f}" if (other := middle(who, "cpu")) else "-" for who in PEERS]
    return [*cells("cpu", 2), *ratios, *cells("wall", 2), *cells("peak", 0)]


if __name__ == "__main__":
    main()
