"""Single operations over demand: Forebay beside DuckDB, each in a process of its own, results compared.

Both read the same Parquet files and write Parquet. A ratio is of medians over the rounds."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import build, generate, measured, size, table, tail, warm

HERE = Path(__file__).resolve().parent
SERIES = "store_id, item_id"

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
    "sql_groups": (
        "SELECT store_id, department, sum(qty) AS total, avg(price) AS average FROM rows GROUP BY store_id, department",
        "SELECT store_id, department, sum(qty)::BIGINT AS total, avg(price) AS average FROM rows GROUP BY ALL",
    ),
    "sql_window": (
        "SELECT store_id, item_id, date, sum(qty) OVER (PARTITION BY store_id, item_id ORDER BY date) AS so_far FROM rows",
        f"SELECT {SERIES}, date, (sum(qty) OVER (PARTITION BY {SERIES} ORDER BY date))::BIGINT AS so_far FROM rows",
    ),
}

# By case of estimates: what they estimate, as floats. Each contender has a sketch of its own.
EXACT = {
    "approx_distinct": "SELECT store_id, count(DISTINCT item_id)::DOUBLE AS items, count(DISTINCT price)::DOUBLE AS prices "
    "FROM rows GROUP BY ALL",
}

# How far an estimate may be from what it estimates: four standard errors of 1.63 %.
NEAR_EXACT = 0.066


def spec(steps, other, data, out):
    made = f"sql: {json.dumps(steps)}" if steps.startswith("SELECT") else f"from: rows, do: [{steps}]"
    nodes = [f"made: {{ {made} }}"] + [f"other: {{ from: rows, do: [{one}] }}" for one in other]
    return (
        f"version: 1\nname: operation\nsources:\n  rows: {{ parquet: {{ path: {json.dumps(str(data))} }}, time: date, "
        f"keys: [store_id, item_id] }}\nsteps: {{ {', '.join(nodes)} }}\n"
        f"sinks: {{ table: {{ from: made, parquet: {{ path: {json.dumps(str(out))} }} }} }}\n"
    )


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/operations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"{', '.join(CASES)} [all]")
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate [20000000]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--rounds", type=int, default=3, help="both in turn, so many times; the table has medians [3]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for both [all]")
    parser.add_argument("--memory", default="4GiB", help="limit for both [4GiB]")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(unknown)}")
    return options


def compete(options, name, data, scratch):
    """The costs of both, and what is wrong with the results."""
    steps, query, *other = CASES[name]
    costs = {"forebay": [], "duckdb": []}
    for number in range(options.rounds):
        home = scratch / f"{name}-{number}"
        home.mkdir()
        (home / "spec.yaml").write_text(spec(steps, other, data, home / "forebay"))
        commands = {
            "forebay": [options.forebay, "run", home / "spec.yaml", "--state", home / "state", "--memory", options.memory]
            + ["--threads", options.threads, "--json"],
            "duckdb": [sys.executable, HERE / "operations_duckdb.py", "run", query, data, home / "duckdb.parquet"]
            + [options.threads, size(options.memory) >> 20],
        }
        for contender, command in commands.items():
            cost = measured(command, home / f"{contender}.log")
            if cost.code != 0:
                return costs, [f"{name}: {contender} ended with {cost.code}:\n{tail(home / f'{contender}.log')}"]
            costs[contender].append(cost)
        if number == 0 and (wrong := compared(options, name, data, home)):
            return costs, [f"{name}: {wrong}"]
        shutil.rmtree(home)
    return costs, []


def compared(options, name, data, home):
    """What is wrong with the rows of Forebay, if anything is."""
    script, expected, tolerance = HERE / "operations_duckdb.py", home / "duckdb.parquet", 1e-9
    steps = []
    if exact := EXACT.get(name):
        expected, tolerance = home / "exact.parquet", NEAR_EXACT
        steps.append([script, "run", exact, data, expected, options.threads, size(options.memory) >> 20])
    steps.append([script, "compare", home / "forebay", expected, tolerance])
    for step in steps:
        told = subprocess.run([sys.executable, *map(str, step)], capture_output=True, text=True)
        if told.returncode:
            return told.stdout + told.stderr[-2000:]
    return ""


def main():
    options = arguments()
    options.forebay = build(options.forebay)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-operations-", dir=options.work))
    try:
        data = generate(options.forebay, "demand", options.rows, (options.work or scratch) / f"demand-{options.rows}")
        warm(sorted(data.glob("*.parquet")))
        lines, problems = [], []
        head = ("", "CPU s", "DuckDB", "ratio", "wall s", "DuckDB", "peak MiB", "DuckDB")
        for name in options.cases or CASES:
            costs, wrong = compete(options, name, data, scratch)
            problems += wrong
            if all(costs.values()):
                middle = {(who, figure): statistics.median(getattr(cost, figure) for cost in own)
                          for who, own in costs.items() for figure in ("cpu", "wall", "peak")}
                cpu, wall, peak = (tuple(middle[who, figure] for who in costs) for figure in ("cpu", "wall", "peak"))
                lines.append((name, f"{cpu[0]:.2f}", f"{cpu[1]:.2f}", f"{cpu[0] / cpu[1]:.2f}", f"{wall[0]:.2f}",
                              f"{wall[1]:.2f}", f"{peak[0]:.0f}", f"{peak[1]:.0f}"))
                print(*lines[-1], flush=True)
        print(f"\n{options.rows:,} rows of demand, {options.threads} threads, {options.memory}")
        table([head, *lines])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for problem in problems:
        print(f"FAILED  {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
