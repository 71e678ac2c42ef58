"""DuckDB's part of `operations`: runs a query, prepares rows in a format, or compares two results."""

import sys

import duckdb

READ = {
    "parquet": "read_parquet({})",
    "csv": "read_csv({})",
    # All rows tell the types: the first ones may be null.
    "json": "read_json({}, format = 'newline_delimited', sample_size = -1)",
}
WRITE = {"parquet": "FORMAT parquet, COMPRESSION snappy", "csv": "FORMAT csv, HEADER", "json": "FORMAT json"}


def quoted(path):
    return "'" + str(path).replace("'", "''") + "'"


def form_of(path):
    return path.rsplit(".", 1)[-1]


def run(query, data, form, out, threads, memory):
    db = duckdb.connect(config={"threads": int(threads), "memory_limit": f"{memory}MiB", "preserve_insertion_order": False})
    db.execute(f"CREATE VIEW rows AS FROM {READ[form].format(quoted(data + '/*.' + form))}")
    db.execute(f"COPY ({query}) TO {quoted(out)} ({WRITE[form_of(out)]})")


def prepare(form, data, out):
    duckdb.execute(f"COPY (FROM read_parquet({quoted(data + '/*.parquet')})) TO {quoted(out)} ({WRITE[form]})")


def compare(found, form, expected, tolerance):
    """Pairs the rows of both: floats within a relative tolerance, all else exactly. Differences below 1e-11 do not count:
    those of a value and its mean."""
    db = duckdb.connect()
    files = found if form_of(found) == form else f"{found}/*.{form}"
    ours, theirs = READ[form].format(quoted(files)), READ[form_of(expected)].format(quoted(expected))
    types = {name: kind for name, kind, *_ in db.sql(f"DESCRIBE SELECT * FROM {theirs}").fetchall()}
    known = [row[0] for row in db.sql(f"DESCRIBE SELECT * FROM {ours}").fetchall()]
    if sorted(known) != sorted(types):
        sys.exit(f"columns {known} are not {list(types)}")
    own = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in types.items())
    ours = f"(SELECT {own} FROM {ours})"
    same = [f'ours."{name}" IS NOT DISTINCT FROM theirs."{name}"' for name in types if types[name] not in ("DOUBLE", "FLOAT")]
    near = [
        f'coalesce(abs(ours."{name}" - theirs."{name}") <= {float(tolerance)} * abs(theirs."{name}") + 1e-11, '
        f'ours."{name}" IS NULL AND theirs."{name}" IS NULL)'
        for name in types
        if types[name] in ("DOUBLE", "FLOAT")
    ]
    rows = [db.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in (ours, theirs)]
    pairs = db.sql(f"SELECT count(*) FROM {ours} ours JOIN {theirs} theirs ON {' AND '.join(same)} WHERE {' AND '.join(near or ['true'])}")
    paired = pairs.fetchall()[0][0]
    if rows != [paired, paired]:
        sys.exit(f"{rows[0]} rows and {rows[1]} of the peer, {paired} of them are the same")


if __name__ == "__main__":
    {"run": run, "prepare": prepare, "compare": compare}[sys.argv[1]](*sys.argv[2:])
