"""DuckDB's part of `operations`: runs a query, or compares two results."""

import sys

import duckdb


def quoted(path):
    return "'" + str(path).replace("'", "''") + "'"


def run(query, data, out, threads, memory):
    db = duckdb.connect(config={"threads": int(threads), "memory_limit": f"{memory}MiB", "preserve_insertion_order": False})
    db.execute(f"CREATE VIEW rows AS FROM read_parquet({quoted(data + '/*.parquet')})")
    db.execute(f"COPY ({query}) TO {quoted(out)} (FORMAT parquet, COMPRESSION snappy)")


def compare(forebay, peer, tolerance):
    """Pairs the rows of both: floats within a relative tolerance, all else exactly."""
    db = duckdb.connect()
    ours, theirs = (f"read_parquet({quoted(path)})" for path in (forebay + "/*.parquet", peer))
    types = {name: kind for name, kind, *_ in db.sql(f"DESCRIBE SELECT * FROM {theirs}").fetchall()}
    known = [row[0] for row in db.sql(f"DESCRIBE SELECT * FROM {ours}").fetchall()]
    if sorted(known) != sorted(types):
        sys.exit(f"columns {known} are not {list(types)}")
    same = [f'ours."{name}" IS NOT DISTINCT FROM theirs."{name}"' for name in types if types[name] not in ("DOUBLE", "FLOAT")]
    near = [
        f'coalesce(abs(ours."{name}" - theirs."{name}") <= {float(tolerance)} * abs(theirs."{name}"), ours."{name}" IS NULL AND theirs."{name}" IS NULL)'
        for name in types
        if types[name] in ("DOUBLE", "FLOAT")
    ]
    rows = [db.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in (ours, theirs)]
    pairs = db.sql(f"SELECT count(*) FROM {ours} ours JOIN {theirs} theirs ON {' AND '.join(same)} WHERE {' AND '.join(near or ['true'])}")
    paired = pairs.fetchall()[0][0]
    if rows != [paired, paired]:
        sys.exit(f"{rows[0]} rows and {rows[1]} of the peer, {paired} of them are the same")


if __name__ == "__main__":
    {"run": run, "compare": compare}[sys.argv[1]](*sys.argv[2:])
