#!/usr/bin/env python3
"""Reads every file of public corpora with Forebay, and compares each value with what other programs read.

Each corpus is a checkout whose folder is given; those that are not given are left out:

  --parquet-testing  https://github.com/apache/parquet-testing     compared with pyarrow and DuckDB
  --delta-kernel     https://github.com/delta-io/delta-kernel-rs   compared with deltalake and the expected rows
  --csv-spectrum     https://github.com/maxogden/csv-spectrum      compared with the expected rows and DuckDB
  --json-test-suite  https://github.com/nst/JSONTestSuite          compared with Python's json
  --duckdb           https://github.com/duckdb/duckdb              compared with DuckDB (and pyarrow for Parquet)

A file counts as

  equal     all rows are those of the other readers, or of those of them that agree with each other
  refused   Forebay refuses it with a fault, and so does another reader
  strict    Forebay refuses it with a fault that names the file, and all other readers take it
  rule      a value differs from what all other readers take, by a rule that is documented and named in RULES
  differs   a value differs from what all other readers take
  crash     no fault: a panic, a bug (exit 70) or more time than --seconds

Exits with 1 where a file differs or crashes. The table is printed, and kept with the reasons under --out.
"""

import argparse
import csv
import datetime
import decimal
import glob
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict

CLASSES = ["equal", "refused", "strict", "rule", "differs", "crash"]
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
FILE_BYTES_MAX = 2 << 20

# Less than the texts of `large_string_map.brotli.parquet`, which no other reader gives back, need.
MEMORY = "1GiB"

# Files whose own notes say other values than the other readers give.
NOTED = {
    "data/int96_from_spark.parquet": "the year 290000, which the others wrap (int96_from_spark.md)",
}

# Files that Forebay reads by another rule than all other readers.
RULES = {
    "data/csv/bad_escape.csv": "the escape stands before quotes alone, and is a letter before others, as for Spark",
}


class Refused(Exception):
    """A reader that does not take a file."""


class Crashed(Exception):
    """A reader that ends without a fault."""


class Forebay:
    def __init__(self, program, seconds):
        self.program, self.seconds = program, seconds

    def read(self, source):
        """The rows of a source as a table of Arrow."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = tempfile.mkdtemp(prefix="forebay-corpora-")
        try:
            spec = {
                "version": 1,
                "name": "corpus",
                "sources": {"rows": source},
                "sinks": {"table": {"from": "rows", "parquet": {"path": folder + "/out"}}},
            }
            with open(folder + "/spec.yaml", "w", encoding="utf-8") as file:
                json.dump(spec, file)
            arguments = [self.program, "run", "spec.yaml", "--state", "state", "--threads", "2", "--memory", MEMORY, "--allow-empty"]
            try:
                run = subprocess.run(
                    arguments, cwd=folder, capture_output=True, timeout=self.seconds,
                    env={**os.environ, "XDG_CONFIG_HOME": folder, "NO_COLOR": "1"},
                )
            except subprocess.TimeoutExpired as error:
                raise Crashed(f"more than {self.seconds} s") from error
            text = run.stderr.decode("utf-8", "replace")
            if "panicked" in text or run.returncode in (70, 101) or run.returncode < 0:
                raise Crashed(first_line(text))
            if run.returncode != 0:
                raise Refused(first_line(text))
            files = sorted(glob.glob(folder + "/out/**/*.parquet", recursive=True))
            tables = [pq.ParquetFile(name).read() for name in files]
            return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def first_line(text):
    lines = [line for line in text.splitlines() if line.startswith("error") or "panicked" in line]
    return (lines or text.splitlines() or [""])[0][:200]


def plain(value):
    """A value as it compares: whatever type a reader gave it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, decimal.Decimal):
        return value.normalize() if value else decimal.Decimal(0)
    if isinstance(value, dict):
        return tuple(sorted((key, plain(part)) for key, part in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(plain(part) for part in value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return ("time", str(zoned.astimezone(datetime.timezone.utc)))
    return value


def column_values(column):
    """The values of a column; times are nanoseconds since 1970, at any depth."""
    return [value for chunk in column.chunks for value in array_values(chunk)]


def array_values(array):
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return array_values(array.cast(kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):
        return array_values(array.storage)
    if pa.types.is_timestamp(kind):
        ticks = array.cast(pa.int64()).to_pylist()
        return [None if tick is None else tick * NANOSECONDS[kind.unit] for tick in ticks]
    if pa.types.is_struct(kind):
        names = [kind.field(at).name for at in range(kind.num_fields)]
        fields = [array_values(array.field(at)) for at in range(kind.num_fields)]
        rows = zip(*fields) if fields else [()] * len(array)
        valid = array.is_valid().to_pylist()
        return [tuple(sorted(zip(names, row), key=repr)) if is_valid else None for row, is_valid in zip(rows, valid)]
    if pa.types.is_map(kind):
        return [map_pairs(array, row) if array[row].is_valid else None for row in range(len(array))]
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return [tuple(array_values(item.values)) if item.is_valid else None for item in array]
    return [plain(value) for value in array.to_pylist()]


def map_pairs(array, row):
    start, end = array.offsets[row].as_py(), array.offsets[row + 1].as_py()
    keys, items = (part.slice(start, end - start) for part in (array.keys, array.items))
    return tuple(zip(array_values(keys), array_values(items)))


def columns_of(table):
    return {name: column_values(table.column(name)) for name in table.column_names}


def close(left, right):
    if left == right:
        return True
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(close, left, right))
    text_kinds = (str, bytes)
    if isinstance(left, text_kinds) and isinstance(right, text_kinds):
        encode = lambda text: text.encode() if isinstance(text, str) else text
        return encode(left) == encode(right)
    return False


def difference(found, expected, any_order=False):
    """The first difference of two tables of values; None where there is none."""
    if set(found) != set(expected):
        return f"columns {sorted(found)} and not {sorted(expected)}"[:200]
    if any_order and found:
        names = sorted(found)
        key = lambda columns: sorted(zip(*(columns[name] for name in names)), key=repr)
        if key(found) == key(expected):
            return None
    for name, values in found.items():
        if len(values) != len(expected[name]):
            return f"{len(values)} rows and not {len(expected[name])}"
        for row, (left, right) in enumerate(zip(values, expected[name])):
            if not close(left, right):
                return f"`{name}` row {row}: {left!r} and not {right!r}"[:200]
    return None


def judge(read, peers, any_order=False):
    """The class of a file and the reason, by what Forebay reads and what each peer reads."""
    taken, refusals = {}, {}
    for name, peer in peers.items():
        try:
            taken[name] = peer()
        except (AttributeError, NameError):
            raise  # a mistake of this script
        except Exception as error:  # whatever a peer raises, it does not take the file
            refusals[name] = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    try:
        found = read()
    except Refused as refused:
        return ("refused" if refusals or not peers else "strict"), str(refused)
    except Crashed as crashed:
        return "crash", str(crashed)
    if not taken:
        return "equal", "no other reader takes it: " + "; ".join(refusals.values())
    differences = {name: difference(found, columns, any_order) for name, columns in taken.items()}
    wrong = {name: text for name, text in differences.items() if text}
    if not wrong:
        return "equal", ""
    if len(wrong) < len(differences):
        return "equal", "the others differ: " + "; ".join(f"{name}: {text}" for name, text in wrong.items())
    return "differs", "; ".join(f"{name}: {text}" for name, text in wrong.items())


def pyarrow_parquet(path):
    import pyarrow.parquet as pq

    # In nanoseconds, times of INT96 beyond the year 2262 would wrap.
    return columns_of(pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read())


def duckdb_table(query, path):
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        return columns_of(database.execute(query, [path]).to_arrow_table())


def parquet_files(forebay, folder):
    names = [name for name in glob.glob(folder + "/**/*", recursive=True) if name.lower().endswith(".parquet")]
    for path in sorted(names):
        yield os.path.relpath(path, folder), judge(
            lambda: columns_of(forebay.read({"parquet": {"path": literal(path)}})),
            {
                "pyarrow": lambda: pyarrow_parquet(path),
                "DuckDB": lambda: duckdb_table("SELECT * FROM read_parquet(?)", path),
            },
        )


def literal(path):
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def deltalake_table(path):
    import deltalake
    import pyarrow as pa

    # By a query: reading a table as a dataset does not map columns.
    table = deltalake.DeltaTable(path)
    rows = deltalake.QueryBuilder().register("rows", table).execute("SELECT * FROM rows").read_all()
    return columns_of(pa.table(rows))


def delta_tables(forebay, folder):
    import pyarrow.parquet as pq

    unpacked = tempfile.mkdtemp(prefix="forebay-corpora-delta-")
    try:
        for archive in sorted(glob.glob(folder + "/kernel/tests/**/*.tar.zst", recursive=True)):
            if os.path.getsize(archive) <= 1 << 18:
                subprocess.run(["tar", "--zstd", "-xf", archive, "-C", unpacked], check=False, capture_output=True)
        logs = glob.glob(unpacked + "/**/_delta_log", recursive=True)
        logs += glob.glob(folder + "/kernel/tests/data/*/_delta_log")
        for log in sorted(logs):
            path = os.path.dirname(log)
            name = os.path.relpath(path, unpacked if path.startswith(unpacked) else folder)
            peers = {"deltalake": lambda: deltalake_table(path)}
            expected = os.path.join(os.path.dirname(path), "expected")
            if glob.glob(expected + "/*.parquet"):
                peers["expected rows"] = lambda: columns_of(pq.read_table(expected, partitioning=None))
            yield name, judge(
                lambda: columns_of(forebay.read({"delta": {"path": literal(path)}})), peers, any_order=True
            )
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def csv_spectrum(forebay, folder):
    for path in sorted(glob.glob(folder + "/csvs/*.csv")):
        name = os.path.basename(path)
        with open(f"{folder}/json/{name[:-4]}.json", encoding="utf-8") as file:
            rows = json.load(file)
        rows = rows if isinstance(rows, list) else [rows]
        expected = {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}
        source = {"csv": {"path": literal(path), "nulls": [], "columns": {key: "string" for key in expected}}}
        yield name, judge(lambda: columns_of(forebay.read(source)), {"expected rows": lambda: expected})


def duckdb_csv(forebay, folder):
    import duckdb

    for path in sorted(glob.glob(folder + "/data/csv/**/*.csv", recursive=True)):
        # Files of the fuzzer are noise that DuckDB's reader must survive: what they hold is a matter of its recovery.
        if os.path.getsize(path) > FILE_BYTES_MAX or "/afl/" in path or "/fuzzing/" in path:
            continue
        name = os.path.relpath(path, folder)
        try:
            with duckdb.connect() as database:
                sniffed = database.execute(
                    "SELECT Delimiter, Quote, Escape, HasHeader, SkipRows, Comment FROM sniff_csv(?)", [path]
                ).fetchone()
        except Exception as error:
            yield name, judge(lambda: columns_of(forebay.read({"csv": {"path": literal(path)}})), {})
            continue
        delimiter, quote, escape, has_header, skipped, comment = sniffed
        if len(delimiter) != 1 or delimiter == "\n":
            yield name, ("left out", "a long delimiter")
            continue
        source = {"path": literal(path), "delimiter": delimiter, "skip_lines": skipped, "header": has_header}
        if comment not in ("\0", "", "(empty)"):
            source["comment"] = comment
        if quote not in ('"', "\0", "", "(empty)"):
            source["quote"] = quote
        if escape not in (quote, '"', "\0", "", "(empty)"):
            source["escape"] = escape
        options = (
            f"all_varchar = true, hive_partitioning = false, delim = {sql_text(delimiter)}, "
            f"header = {has_header}, skip = {skipped}"
        )
        query = f"SELECT * FROM read_csv(?, {options})"
        yield name, judge(
            lambda: by_position(texts_of(forebay.read({"csv": source}))),
            {"DuckDB": lambda: by_position(as_numbers(duckdb_table(query, path)))},
        )


def by_position(columns):
    """Columns by their places: DuckDB cuts blanks off names, and names the nameless in another way."""
    return {f"column {at}": values for at, values in enumerate(columns.values())}


def sql_text(text):
    return "'" + text.replace("'", "''") + "'"


def texts_of(table):
    """Values as texts that compare with those of a CSV file."""
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if not pa.types.is_string(column.type):
            column = column.cast(pa.string())
        columns[name] = column.to_pylist()
    return as_numbers(columns)


def as_numbers(columns):
    return {name: [as_number(text) for text in values] for name, values in columns.items()}


def as_number(text):
    """A text, or the number, boolean or time that it tells."""
    if not isinstance(text, str):
        return text
    if text == "":
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
        return "NaN" if math.isnan(number) else number
    except ValueError:
        pass
    try:
        if len(text) >= 10 and text[4] == "-":
            return plain(datetime.datetime.fromisoformat(text.replace(" UTC", "+00:00")))
    except ValueError:
        pass
    return text


def json_test_suite(forebay, folder):
    for path in sorted(glob.glob(folder + "/test_parsing/*.json")):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            content = file.read().strip(b" \t\r\n")
        if b"\n" in content or b"\r" in content:
            yield name, ("left out", "more than one line")
            continue
        line = b'{"id": 1, "v": ' + content + b"}\n"
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(line)
            file.flush()
            verdict, reason = judge(
                lambda: {"v": json_values(forebay, file.name)},
                {"Python": lambda: {"v": [plain_json(strict_json(line)["v"])]}},
            )
        if verdict == "strict" and ("common types" in reason or "cannot be read as" in reason):
            verdict = "refused"
            reason = "values of several types in one list or column: " + reason
        yield name, (verdict, reason)


def strict_json(line):
    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def json_values(forebay, path):
    table = forebay.read({"json": {"path": literal(path)}})
    return [plain_json(value) for value in table.column("v").to_pylist()]


def plain_json(value):
    """Numbers by their values, wherever they are; an object without fields and null are texts or nothing."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        return as_number(value)
    if isinstance(value, list):
        return tuple(plain_json(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((key, plain_json(part)) for key, part in value.items())) or "{}"
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["parquet-testing", "delta-kernel", "csv-spectrum", "json-test-suite", "duckdb"]:
        parser.add_argument("--" + name, metavar="FOLDER", help=f"a checkout of {name}")
    parser.add_argument("--forebay", default=os.environ.get("FOREBAY", "forebay"), help="the program")
    parser.add_argument("--out", default="corpora-results.json", help="file for the table and all reasons")
    parser.add_argument("--seconds", type=int, default=120, help="time for one file at most")
    arguments = parser.parse_args()
    program = shutil.which(arguments.forebay) or os.path.abspath(arguments.forebay)
    forebay = Forebay(program, arguments.seconds)
    corpora = []
    if arguments.parquet_testing:
        corpora.append(("parquet-testing", parquet_files(forebay, arguments.parquet_testing)))
    if arguments.delta_kernel:
        corpora.append(("delta-kernel", delta_tables(forebay, arguments.delta_kernel)))
    if arguments.csv_spectrum:
        corpora.append(("csv-spectrum", csv_spectrum(forebay, arguments.csv_spectrum)))
    if arguments.json_test_suite:
        corpora.append(("JSONTestSuite", json_test_suite(forebay, arguments.json_test_suite)))
    if arguments.duckdb:
        corpora.append(("DuckDB Parquet", parquet_files(forebay, arguments.duckdb + "/data/parquet-testing")))
        corpora.append(("DuckDB CSV", duckdb_csv(forebay, arguments.duckdb)))
    if not corpora:
        parser.error("name the folder of at least one corpus")
    counts, reasons = defaultdict(Counter), defaultdict(dict)
    for corpus, files in corpora:
        for name, (verdict, reason) in files:
            if verdict == "differs" and name in NOTED:
                verdict, reason = "equal", f"as its notes say: {NOTED[name]}; {reason}"
            if verdict == "differs" and name in RULES:
                verdict, reason = "rule", f"{RULES[name]}; {reason}"
            counts[corpus][verdict] += 1
            if reason:
                reasons[corpus][name] = f"{verdict}: {reason}"
            if verdict in ("differs", "crash"):
                print(f"{corpus} {name}: {verdict}: {reason}", file=sys.stderr, flush=True)
    shown = CLASSES + ["left out"]
    print("| corpus | files | " + " | ".join(shown) + " |")
    print("|---|" + "---:|" * (len(shown) + 1))
    for corpus, count in counts.items():
        cells = [str(count[verdict]) for verdict in shown]
        print(f"| {corpus} | {sum(count.values())} | " + " | ".join(cells) + " |")
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"counts": counts, "reasons": reasons}, file, indent=1, ensure_ascii=False)
    bad = sum(count["differs"] + count["crash"] for count in counts.values())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
