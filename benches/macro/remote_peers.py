"""What peers learn of a log in an object store, or on a disk: `remote_peers.py polars|duckdb FILES OUT THREADS MEMORY`.

`remote_peers.py tokens FILE` prints the counts of a vocabulary, `remote_peers.py rows DIRECTORY` the number of rows in
the Parquet files of a directory and a digest of each column, whatever the files say beside them.

Leaves {"moments": {column: [count, mean, var]}, "tokens": {column: {token: count}}} in OUT. The store's address and
keys come from the variables that begin with AWS_."""

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

NUMBERS = [f"f{i}" for i in range(1, 14)]
TOKENS = ["c1", "c2", "c5", "c6", "c8", "c9", "c14", "c17", "c20", "c22", "c23"]


def polars(files, threads, memory):
    import polars as pl

    options = {"aws_allow_http": "true"} if files[0].startswith("s3://") else None
    log = pl.scan_parquet(files, storage_options=options)
    of = {"count": lambda x: x.count(), "mean": lambda x: x.mean(), "var": lambda x: x.var(ddof=0)}
    asked = [take(pl.col(f).cast(pl.Float64)).alias(f"{f} {name}") for f in NUMBERS for name, take in of.items()]
    moments = log.select(asked)
    tokens = [log.group_by(pl.col(c).alias("token")).agg(pl.len().alias("count")) for c in TOKENS]
    row, *counts = pl.collect_all([moments, *tokens], engine="streaming")
    row = row.row(0, named=True)
    found = {c: dict(zip(frame["token"], frame["count"])) for c, frame in zip(TOKENS, counts)}
    return {f: [row[f"{f} {name}"] for name in of] for f in NUMBERS}, found


def duckdb(files, threads, memory):
    import duckdb as db

    config = {"threads": threads, "memory_limit": f"{memory >> 20}MiB", "preserve_insertion_order": False}
    link = db.connect(config=config)
    if files[0].startswith("s3://"):
        import duckdb_extension_httpfs as httpfs

        (extension,) = Path(httpfs.__file__).parent.glob("extensions/*/httpfs.duckdb_extension")
        link.execute(f"LOAD '{extension}'")
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc
        secret = f"KEY_ID '{os.environ['AWS_ACCESS_KEY_ID']}', SECRET '{os.environ['AWS_SECRET_ACCESS_KEY']}'"
        link.execute(f"CREATE SECRET (TYPE s3, {secret}, ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)")
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    log = f"read_parquet([{listed}])"
    asked = [f"count({f}), avg({f}::DOUBLE), var_pop({f}::DOUBLE)" for f in NUMBERS]
    row = link.execute(f"SELECT {', '.join(asked)} FROM {log}").fetchone()
    found = {c: dict(link.execute(f"SELECT {c}, count(*) FROM {log} GROUP BY 1").fetchall()) for c in TOKENS}
    return {f: list(row[3 * i : 3 * i + 3]) for i, f in enumerate(NUMBERS)}, found


def rows(directory):
    import polars as pl

    table = pl.scan_parquet(f"{directory}/*.parquet")
    digests = table.select(pl.len().alias("rows"), pl.all().hash().bitwise_xor()).collect(engine="streaming")
    print(json.dumps(digests.row(0, named=True)))


def tokens(file):
    import polars as pl

    frame = pl.read_parquet(file)
    print(json.dumps(dict(zip(frame["token"], frame["count"]))))


def main():
    if sys.argv[1] in ("tokens", "rows"):
        return {"tokens": tokens, "rows": rows}[sys.argv[1]](sys.argv[2])
    peer, files, out, threads, memory = sys.argv[1:]
    moments, counts = {"polars": polars, "duckdb": duckdb}[peer](json.loads(files), int(threads), int(memory))
    kept = {c: {t: n for t, n in found.items() if t is not None and n >= 2} for c, found in counts.items()}
    Path(out).write_text(json.dumps({"moments": moments, "tokens": kept}))


if __name__ == "__main__":
    main()
