"""DuckDB: SQL. Medians from a reservoir as large as Forebay's sample (0.6 of the CPU of exact ones,
0.3 of `approx_quantile`, on 2 M rows); ids by joins (casting to ENUM took over ten times as long)."""

import duckdb
from shared import MIN_COUNT, NUMBERS, SAMPLE_ROWS, TOKENS, Arguments

args = Arguments()
db = duckdb.connect(
    config={
        "threads": args.threads,
        "memory_limit": f"{args.memory >> 20}MiB",
        "temp_directory": str(args.out / "spilled"),
        "preserve_insertion_order": False,
    }
)
files = ", ".join("'" + file.replace("'", "''") + "'" for file in args.files)
db.execute(f"CREATE VIEW log AS SELECT * FROM read_parquet([{files}])")


def row(expressions):
    return db.execute(f"SELECT {', '.join(expressions)} FROM log").fetchone()


def median(f):
    return f"reservoir_quantile({f}, 0.5, {SAMPLE_ROWS})"


def vocabulary(c):
    db.execute(
        f"""CREATE TABLE v_{c} AS
            SELECT token, count, (row_number() OVER () - 1)::INTEGER AS id FROM (
                SELECT {c} AS token, count(*) AS count FROM log WHERE {c} IS NOT NULL
                GROUP BY 1 HAVING count(*) >= {MIN_COUNT} ORDER BY 2 DESC)"""
    )
    path = args.vocabulary(c).replace("'", "''")
    db.execute(f"COPY (SELECT token, count FROM v_{c} ORDER BY id) TO '{path}' (FORMAT parquet, COMPRESSION snappy)")


for c in TOKENS:
    vocabulary(c)

if args.job == "fit":
    names = ["count", "mean", "var", "min", "max", "median"]
    of = ["count({0})", "avg({0}::DOUBLE)", "var_pop({0}::DOUBLE)", "min({0})", "max({0})", median("{0}")]
    rows, *values = row(["count(*)", *(take.format(f) for f in NUMBERS for take in of)])
    learned = {}
    for i, f in enumerate(NUMBERS):
        learned[f] = dict(zip(names, values[i * len(of) :]))
        learned[f]["nulls"] = rows - learned[f]["count"]
    args.learned(learned)
else:
    middle = dict(zip(NUMBERS, row(map(median, NUMBERS))))
    filled = {f: f"ln(1 + coalesce(log.{f}, {middle[f]!r}::DOUBLE))::FLOAT" for f in NUMBERS}
    values = row(take.format(filled[f]) for f in NUMBERS for take in ("avg({}::DOUBLE)", "var_pop({}::DOUBLE)"))
    scaled = {f: {"mean": values[2 * i], "var": values[2 * i + 1]} for i, f in enumerate(NUMBERS)}
    args.learned({f: {"median": middle[f], "scaled": scaled[f]} for f in NUMBERS})
    columns = ["label"]
    for f in NUMBERS:
        deviation = scaled[f]["var"] ** 0.5 or 1.0
        columns.append(f"(({filled[f]} - {scaled[f]['mean']!r}::DOUBLE) / {deviation!r}::DOUBLE)::FLOAT AS {f}")
    for c in TOKENS:
        (tokens,) = db.execute(f"SELECT count(*) FROM v_{c}").fetchone()
        columns.append(f"CASE WHEN log.{c} IS NOT NULL THEN coalesce(v_{c}.id, {tokens}) END AS {c}")
    joins = " ".join(f"LEFT JOIN v_{c} ON log.{c} = v_{c}.token" for c in TOKENS)
    data = args.data.replace("'", "''")
    db.execute(f"COPY (SELECT {', '.join(columns)} FROM log {joins}) TO '{data}' (FORMAT parquet, COMPRESSION snappy)")
