#!/usr/bin/env python3
"""Makes the small files beside it: one for each class of files that other programs write, with the expected values.

usage: generate.py    (needs pyarrow, duckdb and polars)

`NAME.EXT` is a file, `expected.json` says what a source reads of each: the format, options of the source, and either
`columns` (values as JSON tells them exactly: floats that are no numbers as words, bytes as hexadecimal digits, decimals
as texts, days since 1970, times as nanoseconds since 1970 or midnight in texts) or `fault` (words of it).
"""

import datetime
import decimal
import gzip
import json
import math
import os
import shutil

import duckdb
import polars
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
D = decimal.Decimal
TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
CASES = {}


def expected_values(array):
    """The values of an array, as `expected.json` holds them."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return expected_values(array.cast(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [expected_values(array.field(at)) for at in range(kind.num_fields)]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        rows = zip(*fields) if fields else [()] * len(array)
        return [dict(zip(names, row)) if valid else None for row, valid in zip(rows, array.is_valid().to_pylist())]
    if pa.types.is_map(kind):
        rows = []
        for row in range(len(array)):
            if not array[row].is_valid:
                rows.append(None)
                continue
            start, end = array.offsets[row].as_py(), array.offsets[row + 1].as_py()
            keys = expected_values(array.keys.slice(start, end - start))
            rows.append([list(pair) for pair in zip(keys, expected_values(array.items.slice(start, end - start)))])
        return rows
    if pa.types.is_nested(kind):
        rows = []
        for item in array:
            rows.append(expected_values(item.values) if item.is_valid else None)
        return rows
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        ticks = array.cast(width).to_pylist()
        return [None if tick is None else str(tick * TICKS[kind.unit]) for tick in ticks]
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()
    return [plain(value) for value in array.to_pylist()]


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value


def add(name, format, content=None, columns=None, fault=None, options=None):
    """A file of these bytes, and what a source reads of it."""
    assert name not in CASES, name
    if content is not None:
        with open(os.path.join(HERE, name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    case = {"format": format}
    if options:
        case["options"] = options
    if fault is not None:
        case["fault"] = fault if isinstance(fault, list) else [fault]
    else:
        case["columns"] = {key: [plain(value) for value in values] for key, values in columns.items()}
    CASES[name] = case


def add_table(name, table, **options):
    """A file of Parquet that pyarrow writes."""
    pq.write_table(table, os.path.join(HERE, name), **options)
    add(name, "parquet", columns={key: expected_values(table.column(key)) for key in table.column_names})


def column_types():
    """A column of each type, with a null and the ends of its range."""
    types = {}
    for bits in (8, 16, 32, 64):
        signed, unsigned = getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")()
        types[f"int{bits}"] = pa.array([-(2 ** (bits - 1)), None, 0, 2 ** (bits - 1) - 1], signed)
        types[f"uint{bits}"] = pa.array([0, None, 1, 2**bits - 1], unsigned)
    types["float16"] = pa.array([0.5, None, -0.0, float("inf")], pa.float16())
    types["float32"] = pa.array([0.5, None, float("nan"), -1.5e38], pa.float32())
    types["float64"] = pa.array([0.1, None, float("-inf"), 1e308], pa.float64())
    types["boolean"] = pa.array([True, None, False, True])
    types["text"] = pa.array(["", None, "a\n\"b\",", "\u00fc\u2028\U0001f469"])
    types["large_text"] = pa.array(["x", None, "y"], pa.large_string())
    types["text_view"] = pa.array(["x", None, "a text that is longer than a view"], pa.string_view())
    types["bytes"] = pa.array([b"", None, b"\x00\xff"])
    types["large_bytes"] = pa.array([b"x", None], pa.large_binary())
    types["fixed_bytes"] = pa.array([b"abc", None, b"\x00\x01\x02"], pa.binary(3))
    types["date"] = pa.array([-719162, None, 0, 2932896], pa.date32())
    types["time_s"] = pa.array([0, None, 86399], pa.time32("s"))
    types["time_ms"] = pa.array([0, None, 86399999], pa.time32("ms"))
    types["time_us"] = pa.array([0, None, 86399999999], pa.time64("us"))
    types["time_ns"] = pa.array([0, None, 86399999999999], pa.time64("ns"))
    for unit, last in (("s", 253402300799), ("ms", 253402300799999), ("us", 253402300799999999), ("ns", 2**63 - 1)):
        for zone in (None, "UTC", "Europe/Berlin"):
            label = {None: "", "UTC": "_utc", "Europe/Berlin": "_berlin"}[zone]
            types[f"timestamp_{unit}{label}"] = pa.array([0, None, -1, last], pa.timestamp(unit, zone))
    types["decimal_small"] = pa.array([D("1.23"), None, D("-999.99")], pa.decimal128(5, 2))
    types["decimal_of_32_bits"] = pa.array([D("1.23"), None, D("-999.99")], pa.decimal32(5, 2))
    types["decimal_of_64_bits"] = pa.array([D("1.23"), None, D("-999.99")], pa.decimal64(15, 2))
    types["decimal_38"] = pa.array([D("9" * 38), None, D("-1")], pa.decimal128(38, 0))
    types["decimal_256"] = pa.array([D("9" * 70), None, D("-1")], pa.decimal256(76, 0))
    types["dictionary"] = pa.array(["a", None, "b", "a"]).dictionary_encode()
    types["nulls"] = pa.array([None, None], pa.null())
    return types


def nested_types():
    ints = pa.list_(pa.int64())
    return {
        "list": pa.array([[1, None], None, [], [2]], ints),
        "large_list": pa.array([["a"], None, []], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1.5, 2.5], None, [None, 0.0]], pa.list_(pa.float32(), 2)),
        "list_of_list": pa.array([[[1], None, []], None, []], pa.list_(ints)),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
        "struct_of_struct": pa.array([{"a": {"b": {"c": 1}}}, {"a": {"b": None}}, {"a": None}, None]),
        "list_of_struct": pa.array([[{"a": 1}, None], [], None, [{"a": None}]]),
        "struct_of_list": pa.array([{"a": [1, 2]}, {"a": None}, {"a": []}, None]),
        "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "map_of_list": pa.array([[("k", [1])], [("l", None)], None], pa.map_(pa.string(), ints)),
        "list_of_map": pa.array([[[("k", 1)], []], None], pa.list_(pa.map_(pa.string(), pa.int64()))),
        "list_of_decimal": pa.array([[D("1.50")], [None]], pa.list_(pa.decimal128(10, 2))),
        "list_of_time": pa.array([[0, -1], None], pa.list_(pa.timestamp("us", "UTC"))),
        "deep": pa.array([[[[[["x"]]]]], None], pa.list_(pa.list_(pa.list_(pa.list_(pa.list_(pa.string())))))),
    }


def parquet_files():
    for name, column in column_types().items():
        add_table(f"type_{name}.parquet", pa.table({"c": column}))
    for name, column in nested_types().items():
        add_table(f"nested_{name}.parquet", pa.table({"c": column}))
    rows = pa.table(
        {
            "id": pa.array(range(60), pa.int64()),
            "x": pa.array([None if row % 7 == 3 else row / 8 for row in range(60)]),
            "word": pa.array([None if row % 5 == 2 else f"word {row % 4}" for row in range(60)]),
            "flag": pa.array([row % 3 == 0 for row in range(60)]),
        }
    )
    for compression in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        add_table(f"compression_{compression}.parquet", rows, compression=compression)
    encodings = {
        "id": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
        "x": ["PLAIN", "BYTE_STREAM_SPLIT"],
        "word": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
        "flag": ["PLAIN", "RLE"],
    }
    for column, names in encodings.items():
        for encoding in names:
            add_table(
                f"encoding_{column}_{encoding.lower()}.parquet", rows.select([column]), use_dictionary=False,
                column_encoding={column: encoding},
            )
    for version in ("1.0", "2.0"):
        for dictionary in (True, False):
            label = f"pages_{version[0]}_{'keyed' if dictionary else 'plain'}"
            add_table(f"{label}.parquet", rows, data_page_version=version, use_dictionary=dictionary)
            add_table(
                f"{label}_small.parquet", rows, data_page_version=version, use_dictionary=dictionary, data_page_size=64,
                write_batch_size=8, row_group_size=17,
            )
    add_table("checksums.parquet", rows, write_page_checksum=True)
    add_table("page_index.parquet", rows, write_page_index=True, row_group_size=20)
    add_table("no_statistics.parquet", rows, write_statistics=False)
    add_table("no_schema_of_arrow.parquet", rows, store_schema=False)
    add_table("old_lists.parquet", pa.table({"c": nested_types()["list"]}), use_compliant_nested_type=False)
    add_table("no_rows.parquet", rows.slice(0, 0))
    add_table("one_row.parquet", rows.slice(0, 1))
    add_table("all_null.parquet", pa.table({"c": pa.array([None] * 5, pa.int64()), "d": pa.array([None] * 5, pa.string())}))
    add_table("wide.parquet", pa.table({f"c{at}": [at] for at in range(120)}))
    odd = {"a b": [1], "a.b": [2], "\u00e4": [3], "a,b": [4], "A": [5], "a": [6], "select": [7]}
    add_table("odd_names.parquet", pa.table(odd))
    add_table("required.parquet", pa.table([[1, 2]], pa.schema([pa.field("c", pa.int64(), nullable=False)])))
    add_table("repeated_values.parquet", pa.table({"c": [7] * 500, "d": ["same"] * 500}))
    times = pa.table({"c": pa.array([0, None, 1_500_000_000_000_001_000], pa.timestamp("ns"))})
    add_table("int96.parquet", times, use_deprecated_int96_timestamps=True)
    far = pa.table({"c": pa.array([253402214400000000, -62135596800000000], pa.timestamp("us"))})
    add_table("far_times.parquet", far, coerce_timestamps="us")
    path = lambda name: os.path.join(HERE, name)
    duckdb.execute(
        "COPY (SELECT range AS id, CASE WHEN range % 3 = 0 THEN NULL ELSE 'w' || range END AS word, "
        "range::DECIMAL(9, 2) AS money, [range, NULL] AS list, {'a': range} AS o FROM range(20)) TO '"
        + path("by_duckdb.parquet") + "' (FORMAT parquet)"
    )
    add(
        "by_duckdb.parquet", "parquet",
        columns={
            "id": list(range(20)),
            "word": [None if row % 3 == 0 else f"w{row}" for row in range(20)],
            "money": [D(row).quantize(D("0.01")) for row in range(20)],
            "list": [[row, None] for row in range(20)],
            "o": [{"a": row} for row in range(20)],
        },
    )
    frame = polars.DataFrame({"id": [1, 2, None], "word": ["x", None, "y"], "day": [datetime.date(2024, 2, 29)] * 3})
    frame.write_parquet(path("by_polars.parquet"))
    add("by_polars.parquet", "parquet", columns={"id": [1, 2, None], "word": ["x", None, "y"], "day": [datetime.date(2024, 2, 29)] * 3})
    with open(path("checksums.parquet"), "rb") as file:
        whole = file.read()
    add("cut_off.parquet", "parquet", whole[:-20], fault="does not end like Parquet")
    add("too_short.parquet", "parquet", b"PAR1PAR1", fault="not Parquet")
    add("empty_file.parquet", "parquet", b"", fault="not Parquet")
    add("long_footer.parquet", "parquet", whole[:-8] + b"\xff\xff\xff\x7fPAR1", fault="footer")
    damaged = bytearray(whole)
    damaged[60] ^= 0xFF
    add("damaged_page.parquet", "parquet", bytes(damaged), fault="damaged_page")
    add("encrypted.parquet", "parquet", whole[:-4] + b"PARE", fault="encrypted")


def arrow_files():
    table = pa.table({"id": [1, 2, None], "word": ["x", None, "y"]})
    columns = {"id": [1, 2, None], "word": ["x", None, "y"]}
    for label, options in {
        "plain": {}, "lz4": {"compression": "lz4"}, "zstd": {"compression": "zstd"},
    }.items():
        for kind, begin in (("file", ipc.new_file), ("stream", ipc.new_stream)):
            sink = pa.BufferOutputStream()
            with begin(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
                writer.write_table(table)
                writer.write_table(table.slice(0, 1))
            longer = {key: values + values[:1] for key, values in columns.items()}
            add(f"{kind}_{label}.arrow", "arrow", sink.getvalue().to_pybytes(), columns=longer)
    for name in ("decimal_of_32_bits", "decimal_256", "dictionary", "text_view", "time_ns", "float16", "nulls", "timestamp_s_berlin"):
        column = column_types()[name]
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, pa.schema([("c", column.type)])) as writer:
            writer.write_table(pa.table({"c": column}))
        add(f"type_{name}.arrow", "arrow", sink.getvalue().to_pybytes(), columns={"c": expected_values(column)})
    for name in ("list_of_struct", "map", "fixed_list"):
        column = nested_types()[name]
        sink = pa.BufferOutputStream()
        with ipc.new_file(sink, pa.schema([("c", column.type)])) as writer:
            writer.write_table(pa.table({"c": column}))
        add(f"nested_{name}.arrow", "arrow", sink.getvalue().to_pybytes(), columns={"c": expected_values(column)})
    with open(os.path.join(HERE, "file_plain.arrow"), "rb") as file:
        whole = file.read()
    add("cut_off.arrow", "arrow", whole[: len(whole) // 2], fault="cut_off")


def csv_files():
    def read(name, content, values, **options):
        add(name, "csv", content, columns=values, options=options)

    def refused(name, content, *words, **options):
        add(name, "csv", content, fault=list(words), options=options)

    two = {"a": [1, 2], "b": ["x", "y"]}
    read("plain.csv", "a,b\n1,x\n2,y\n", two)
    read("no_last_line_end.csv", "a,b\n1,x\n2,y", two)
    read("crlf.csv", "a,b\r\n1,x\r\n2,y\r\n", two)
    read("bom.csv", "\ufeffa,b\n1,x\n2,y\n", two)
    read("semicolons.csv", "a;b\n1;x\n2;y\n", two, delimiter=";")
    read("tabs.csv", "a\tb\n1\tx\n2\ty\n", two, delimiter="\t")
    read("pipes.csv", "a|b\n1|x\n2|y\n", two, delimiter="|")
    read("utf16_le.csv", b"\xff\xfe" + "a,b\n1,x\n2,y\n".encode("utf-16-le"), two, encoding="utf-16")
    read("utf16_be.csv", b"\xfe\xff" + "a,b\n1,x\n2,y\n".encode("utf-16-be"), two, encoding="utf-16")
    read("latin_1.csv", "a\nM\u00fcller\n".encode("latin-1"), {"a": ["M\u00fcller"]}, encoding="latin-1")
    read("windows_1252.csv", "a\n\u20ac5\n".encode("cp1252"), {"a": ["\u20ac5"]}, encoding="windows-1252")
    refused("not_utf8.csv", b"a\nM\xfcller\n", "UTF-8")
    read("packed.csv.gz", gzip.compress(b"a,b\n1,x\n2,y\n", mtime=0), two)
    read("packed_twice.csv.gz", gzip.compress(b"a,b\n1,x\n", mtime=0) + gzip.compress(b"2,y\n", mtime=0), two)
    zstd = pa.Codec("zstd")
    read("packed.csv.zst", zstd.compress(b"a,b\n1,x\n2,y\n", asbytes=True), two)
    refused("cut_off.csv.gz", gzip.compress(b"a,b\n1,x\n" * 50, mtime=0)[:-12], "broken")
    read("quotes.csv", 'a,b\n1,"x, y"\n2,"say ""hi"""\n', {"a": [1, 2], "b": ["x, y", 'say "hi"']})
    read("line_ends_in_quotes.csv", 'a,b\n1,"x\ny"\n2,"x\r\ny"\n', {"a": [1, 2], "b": ["x\ny", "x\r\ny"]})
    read("quoted_names.csv", '"a, b","c ""d"""\n1,2\n', {"a, b": [1], 'c "d"': [2]})
    read("all_quoted.csv", '"a","b"\n"1","x"\n"2","y"\n', two)
    read("single_quotes.csv", "a,b\n1,'x, y'\n", {"a": [1], "b": ["x, y"]}, quote="'")
    read("backslashes.csv", 'a,b\n1,"x\\"y"\n', {"a": [1], "b": ['x"y']}, escape="\\")
    read("comments.csv", "# made by hand\na,b\n1,x\n# more\n2,y\n", two, comment="#")
    refused("more_fields.csv", "a,b\n1,x\n2,y,z\n", "more_fields")
    refused("fewer_fields.csv", "a,b\n1,x\n2\n", "fewer_fields")
    refused("nothing.csv", "", "nothing.csv")
    refused("header_alone.csv", "a,b\n", "a header and no rows")
    read("no_header.csv", "1,x\n2,y\n", two, header=False, columns={"a": "int64", "b": "string"})
    read("nameless.csv", "id,,\n1,2,x\n", {"id": [1], "column_2": [2], "column_3": ["x"]})
    refused("same_names.csv", "a,a\n1,2\n", "`a`")
    read("same_names_numbered.csv", "a,a\n1,2\n", {"a": [1], "a_2": [2]}, same_names="number")
    read("nulls.csv", "a,b\n,x\n2,\n", {"a": [None, 2], "b": ["x", None]})
    read("null_words.csv", "a,b\nNA,x\n2,n/a\n", {"a": [None, 2], "b": ["x", None]}, nulls=["NA", "n/a", ""])
    read("blank_lines.csv", "a,b\n\n1,x\n\n2,y\n", two)
    alone = "a\n1\n\n\"\"\n2\n\n"
    read("one_column.csv", alone, {"a": [1, None, None, 2, None]})
    read("one_column_crlf.csv", alone.replace("\n", "\r\n"), {"a": [1, None, None, 2, None]})
    read("one_column_of_texts.csv", 'a\nx\n\n""\ny\n\n', {"a": ["x", None, "", "y", None]})
    read("one_column_of_pandas.csv", 'a\nx\n""\n\n', {"a": ["x", None]}, dialect="pandas")
    read("blanks.csv", "a,b\n1, x \n2,y\n", {"a": [1, 2], "b": [" x ", "y"]})
    read("codes.csv", "a\n007\n10\n", {"a": ["007", "10"]})
    read("large_integers.csv", "a,b,c\n9223372036854775807,18446744073709551615,99999999999999999999\n", {"a": [2**63 - 1], "b": [2**64 - 1], "c": ["9" * 20]})
    read("floats.csv", "a\n1.5\n-1e3\n.5\nNaN\n", {"a": [1.5, -1000.0, 0.5, float("nan")]})
    refused("beyond_floats.csv", "a\n1.5\n1e400\n", "1e400", infer_rows=1)
    read("hexadecimal.csv", "a\n0x10\n", {"a": ["0x10"]})
    read("decimal_comma.csv", "a;b\n1.234,5;x\n", {"a": [1234.5], "b": ["x"]}, delimiter=";", decimal=",", thousands=".")
    read("booleans.csv", "a,b\ntrue,yes\nFALSE,no\n", {"a": [True, False], "b": ["yes", "no"]})
    read("days.csv", "a\n1970-01-02\n0001-01-01\n9999-12-31\n", {"a": [1, -719162, 2932896]})
    read("no_days.csv", "a\n2023-02-29\n", {"a": ["2023-02-29"]})
    read("local_days.csv", "a\n31.12.1970\n", {"a": [364]}, formats={"a": "%d.%m.%Y"})
    read("times.csv", "a\n1970-01-01T00:00:01\n1970-01-01 00:00:00.5\n", {"a": ["1000000000", "500000000"]})
    read("nanoseconds.csv", "a\n1970-01-01T00:00:00.000000001\n", {"a": ["1"]})
    read("offsets.csv", "a\n1970-01-01T02:00:00+02:00\n1970-01-01T00:00:00Z\n", {"a": ["0", "0"]})
    read("mixed_offsets.csv", "a\n1970-01-01T00:00:00Z\n1970-01-01T00:00:00\n", {"a": ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00"]})
    refused("later_text.csv", "a\n1\nx\n", "`x`", infer_rows=1)
    read("formulas.csv", "a\n=1+1\n@x\n", {"a": ["=1+1", "@x"]})
    read("nul.csv", b"a,b\n1,x\x00y\n", {"a": [1], "b": ["x\x00y"]})
    read("unicode.csv", "\u00e4,b\n\U0001f469\u200d\U0001f467,\u2028\n", {"\u00e4": ["\U0001f469\u200d\U0001f467"], "b": ["\u2028"]})
    read("wide.csv", ",".join(f"c{at}" for at in range(90)) + "\n" + ",".join(map(str, range(90))) + "\n", {f"c{at}": [at] for at in range(90)})


def json_files():
    def read(name, content, values, **options):
        add(name, "json", content, columns=values, options=options)

    def refused(name, content, *words, **options):
        add(name, "json", content, fault=list(words), options=options)

    two = {"a": [1, 2], "b": ["x", "y"]}
    lines = '{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n'
    read("plain.jsonl", lines, two)
    read("no_last_line_end.jsonl", lines[:-1], two)
    read("crlf.jsonl", lines.replace("\n", "\r\n"), two)
    read("bom.jsonl", "\ufeff" + lines, two)
    read("blank_lines.jsonl", "\n" + lines.replace("\n", "\n\n"), two)
    read("spaced.jsonl", ' { "a" : 1 , "b" : "x" } \n{"b":"y","a":2}\n', two)
    read("packed.jsonl.gz", gzip.compress(lines.encode(), mtime=0), two)
    read("packed.jsonl.zst", pa.Codec("zstd").compress(lines.encode(), asbytes=True), two)
    read("numbers_and_texts.jsonl", '{"a":1}\n{"a":"1"}\n', {"a": ["1", "1"]})
    refused("later_quoted_number.jsonl", '{"a":1}\n{"a":"1"}\n', "is a string", infer_rows=1)
    refused("later_quoted_item.jsonl", '{"a":[1.5]}\n{"a":["1.5"]}\n', "is a string", infer_rows=1)
    refused("later_fraction.jsonl", '{"a":1}\n{"a":1.0}\n', "`1.0`", infer_rows=1)
    refused("later_object.jsonl", '{"a":1}\n{"a":{}}\n', "is an object", infer_rows=1)
    read("escapes.jsonl", '{"a":"\\u00e4\\n\\t\\"\\\\\\/\\b\\f\\r"}\n', {"a": ["\u00e4\n\t\"\\/\b\f\r"]})
    read("surrogates.jsonl", '{"a":"\\ud83d\\udc69"}\n', {"a": ["\U0001f469"]})
    refused("lone_surrogate.jsonl", '{"a":"\\ud83d"}\n', "lone_surrogate")
    read("nul.jsonl", '{"a":"x\\u0000y"}\n', {"a": ["x\x00y"]})
    read("separators.jsonl", '{"a":"\u2028\u2029"}\n', {"a": ["\u2028\u2029"]})
    refused("raw_control.jsonl", b'{"a":"x\x01"}\n', "raw_control")
    refused("not_utf8.jsonl", b'{"a":"\xff"}\n', "not_utf8")
    read("missing_fields.jsonl", '{"a":1}\n{"b":"x"}\n', {"a": [1, None], "b": [None, "x"]})
    read("nulls.jsonl", '{"a":null,"b":1}\n{"a":null,"b":null}\n', {"a": [None, None], "b": [1, None]})
    read("empty_objects.jsonl", '{"a":{},"b":1}\n{"a":null,"b":2}\n', {"a": ["{}", None], "b": [1, 2]})
    read("empty_lists.jsonl", '{"a":[],"b":1}\n', {"a": [[]], "b": [1]})
    read("lists.jsonl", '{"a":[1,null]}\n{"a":null}\n{"a":[]}\n', {"a": [[1, None], None, []]})
    read("null_first.jsonl", '{"a":[null,{"b":1}]}\n{"a":[null]}\n', {"a": [[None, {"b": 1}], [None]]})
    read("objects.jsonl", '{"a":{"b":{"c":1}}}\n{"a":{"b":null}}\n{"a":null}\n', {"a": [{"b": {"c": 1}}, {"b": None}, None]})
    read("lists_of_objects.jsonl", '{"a":[{"b":1},{"c":"x"}]}\n', {"a": [[{"b": 1, "c": None}, {"b": None, "c": "x"}]]})
    read("numbers.jsonl", '{"a":-0,"b":1.5,"c":1e3,"d":9223372036854775807,"e":18446744073709551615}\n', {"a": [-0.0], "b": [1.5], "c": [1000.0], "d": [2**63 - 1], "e": [2**64 - 1]})
    read("digits.jsonl", '{"a":99999999999999999999}\n', {"a": ["9" * 20]})
    refused("beyond_floats.jsonl", '{"a":1.5}\n{"a":1e400}\n', "1e400", infer_rows=1)
    read("booleans.jsonl", '{"a":true}\n{"a":false}\n', {"a": [True, False]})
    read("texts_of_numbers.jsonl", '{"a":"1"}\n{"a":"007"}\n', {"a": ["1", "007"]})
    read("texts_of_times.jsonl", '{"a":"1970-01-01"}\n', {"a": [0]}, columns={"a": "date"})
    read("unicode_names.jsonl", '{"\u00e4 b":1,"a.b":2}\n', {"\u00e4 b": [1], "a.b": [2]})
    refused("array.jsonl", '[{"a":1}]\n', "array")
    refused("several_lines.jsonl", '{\n"a":1\n}\n', "line")
    refused("last_comma.jsonl", '{"a":1,}\n', "JSON")
    refused("single_quotes.jsonl", "{'a':1}\n", "JSON")
    refused("bare_name.jsonl", "{a:1}\n", "JSON")
    refused("nan.jsonl", '{"a":NaN}\n', "JSON")
    refused("infinity.jsonl", '{"a":-Infinity}\n', "JSON")
    refused("padded_number.jsonl", '{"a":012}\n', "padded_number")
    refused("plus.jsonl", '{"a":+1}\n', "JSON")
    refused("comment.jsonl", '{"a":1} // x\n', "comment")
    refused("two_values.jsonl", '{"a":1} {"a":2}\n', "two_values")
    refused("cut_off.jsonl", '{"a":1}\n{"a":', "cut_off")
    refused("scalar.jsonl", "1\n", "scalar")
    refused("later_field.jsonl", '{"a":1}\n{"a":2,"b":3}\n', "`b`", infer_rows=1)
    refused("later_text.jsonl", '{"a":1}\n{"a":"x"}\n', "later_text", infer_rows=1)
    refused("nothing.jsonl", "", "nothing.jsonl")
    refused("field_twice.jsonl", '{"a":1,"b":2}\n{"a":1,"b":2,"a":3}\n', "`a` twice")
    refused("inner_field_twice.jsonl", '{"a":[{"x":1,"x":1}]}\n', "`a.x` twice")


def formatted_files():
    """Dates as texts and whole numbers, in each kind of file."""
    days = {"day": [19_753, None, 19_782], "n": [1, 2, 3]}
    formats = {"formats": {"day": "%Y%m%d"}}
    numbers = pa.table({"day": pa.array([20_240_131, None, 20_240_229], pa.int32()), "n": [1, 2, 3]})
    pq.write_table(numbers, os.path.join(HERE, "formatted_days.parquet"))
    add("formatted_days.parquet", "parquet", columns=days, options=formats)
    texts = pa.table({"day": ["31.1.2024", None, "29.02.2024"], "n": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, texts.schema) as writer:
        writer.write_table(texts)
    dotted = {"formats": {"day": "%d.%m.%Y"}}
    add("formatted_days.arrow", "arrow", sink.getvalue().to_pybytes(), columns=days, options=dotted)
    add("formatted_days.csv", "csv", "day,n\n20240131,1\n,2\n20240229,3\n", columns=days, options=formats)
    lines = '{"day":20240131,"n":1}\n{"day":null,"n":2}\n{"day":"20240229","n":3}\n'
    add("formatted_days.jsonl", "json", lines, columns=days, options=formats)
    short = pa.table({"day": pa.array([20_240_131, 2_024_229], pa.int64())})
    pq.write_table(short, os.path.join(HERE, "formatted_short.parquet"))
    add("formatted_short.parquet", "parquet", fault=["2024229", "%Y%m%d"], options=formats)


def main():
    for name in os.listdir(HERE):
        if name not in ("generate.py", "README.md"):
            os.remove(os.path.join(HERE, name))
    parquet_files()
    arrow_files()
    csv_files()
    json_files()
    formatted_files()
    lines = [f"{json.dumps(name)}: {json.dumps(CASES[name])}" for name in sorted(CASES)]
    with open(os.path.join(HERE, "expected.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
    total = sum(os.path.getsize(os.path.join(HERE, name)) for name in os.listdir(HERE))
    print(f"{len(CASES)} files, {total} bytes")


if __name__ == "__main__":
    main()
