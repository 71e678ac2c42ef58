//! Everything that goes wrong: one fault that says what, where and what to do, the right exit
//! code, and nothing half-written. And what must not go wrong: data that is empty, null or not finite.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder,
};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::{ProgramOutput, TestDirectory};

fn column(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

/// Writes a Parquet file with several row groups; all columns can hold nulls.
fn parquet<const N: usize>(shop: &TestDirectory, name: &str, columns: [(&str, ArrayRef); N]) {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let path = shop.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10.max(batch.num_rows() / 4)))
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Twenty rows of good data.
fn good(shop: &TestDirectory) {
    good_file(shop, "data/a.parquet", 20);
}

fn good_file(shop: &TestDirectory, name: &str, rows: i64) {
    let columns = [
        ("id", column((0..rows).collect::<Int64Array>())),
        (
            "price",
            column(
                (0..rows)
                    .map(|row| row as f64 / 4.0)
                    .collect::<Float64Array>(),
            ),
        ),
        (
            "city",
            column(
                (0..rows)
                    .map(|row| Some(["oslo", "rome", "lima"][row as usize % 3]))
                    .collect::<StringArray>(),
            ),
        ),
    ];
    parquet(shop, name, columns);
}

/// A spec with these items in the list of steps.
fn spec(steps: &str) -> String {
    let steps: String = steps
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    format!(
        "version: 1\nname: test\nsources:\n  data:\n    parquet: {{ path: data }}\nsteps:\n  features:\n    \
         from: data\n    do:\n{steps}sinks:\n  table: {{ from: features, parquet: {{ path: out }} }}\n"
    )
}

/// Paths of attempts and temporary files below the workshop: a failure must leave none.
fn leftovers(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if [".attempt-", "tmp-", ".tmp"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name.ends_with(".new")
        {
            found.push(entry.path());
        } else if entry.file_type().unwrap().is_dir() {
            leftovers(&entry.path(), found);
        }
    }
}

#[track_caller]
fn expect_clean(shop: &TestDirectory) {
    let mut found = Vec::new();
    leftovers(&shop.path(""), &mut found);
    assert!(found.is_empty(), "left behind: {found:?}");
}

/// Asserts the exit code, the fault's code, words of the text, and its style.
#[track_caller]
fn expect_fault(call: ProgramOutput, exit: i32, code: &str, says: &[&str]) -> ProgramOutput {
    let call = call.expect(exit);
    // For reading them all: cargo test faults -- --nocapture
    println!("{}", call.stderr);
    assert!(
        call.stderr.contains(&format!("error[{code}]")),
        "not {code}:\n{}",
        call.stderr
    );
    for words in says {
        assert!(
            call.stderr.contains(words),
            "`{words}` is missing in\n{}",
            call.stderr
        );
    }
    for line in call
        .stderr
        .lines()
        .filter(|line| line.starts_with("error[") || line.starts_with("hint:"))
    {
        assert!(!line.ends_with('.'), "a full stop in\n{}", call.stderr);
        let text = line.split_once(": ").map_or("", |(_, text)| text);
        assert!(text.len() > 10, "too short:\n{}", call.stderr);
    }
    assert!(!call.stderr.contains("panicked"), "{}", call.stderr);
    call
}

/// Makes data, runs a spec over it, and expects one fault and nothing half-written.
#[track_caller]
fn fails(make: impl Fn(&TestDirectory), spec: &str, exit: i32, code: &str, says: &[&str]) {
    let shop = TestDirectory::new();
    make(&shop);
    shop.write("spec.yaml", spec);
    let call = shop.forebay(&["run", "spec.yaml", "--state=state", "--threads=2"]);
    expect_fault(call, exit, code, says);
    assert!(
        !shop.path(".out.forebay/_manifest.json").exists(),
        "a manifest shows"
    );
    assert!(!shop.path("out").exists(), "data show");
    expect_clean(&shop);
    // The last line for programs says the same.
    let json = shop
        .forebay(&["run", "spec.yaml", "--state=state", "--threads=2", "--json"])
        .expect(exit)
        .summary();
    assert_eq!(json["fault"]["code"], code);
    assert_eq!(json["fault"]["exit_code"], exit);
}

/// Makes data, runs a spec over it, and gives the rows.
#[track_caller]
fn works(make: impl Fn(&TestDirectory), spec: &str) -> RecordBatch {
    works_with(make, spec, &[])
}

fn works_with(make: impl Fn(&TestDirectory), spec: &str, args: &[&str]) -> RecordBatch {
    let shop = TestDirectory::new();
    make(&shop);
    shop.write("spec.yaml", spec);
    shop.forebay(
        &[
            &["run", "spec.yaml", "--state=state", "--threads=2", "--json"],
            args,
        ]
        .concat(),
    )
    .expect(0);
    expect_clean(&shop);
    shop.rows("out")
}

#[test]
fn sources_that_are_not_there() {
    let standardize = spec("- standardize: { columns: [price] }");
    fails(
        |_| {},
        &standardize,
        65,
        "FB0201",
        &["no file matches `data`", "spec.yaml:5:"],
    );
    fails(
        |shop| drop(fs::create_dir(shop.path("data"))),
        &standardize,
        65,
        "FB0201",
        &["nothing in it fits"],
    );
    fails(
        |shop| good_file(shop, "date/a.parquet", 1),
        &standardize,
        65,
        "FB0201",
        &["did you mean", "date"],
    );
    let several = standardize.replace("path: data }", "paths: [data, nowhere/*.parquet] }");
    fails(good, &several, 65, "FB0201", &["nowhere/*.parquet"]);
}

#[test]
fn unknown_names() {
    let standardize = spec("- standardize: { columns: [prise] }");
    let says = [
        "there is no column `prise`",
        "did you mean `price`?",
        "spec.yaml:10:",
        "features.standardize",
    ];
    fails(good, &standardize, 78, "FB0107", &says[..3]);
    let two = spec("- standardize: { columns: [prise, citi] }");
    fails(
        good,
        &two,
        78,
        "FB0107",
        &[
            "`prise`",
            "`citi`",
            "did you mean `city`?",
            "2 problems were found",
        ],
    );
    let says = ["`prise`", "did you mean `price`?", "spec.yaml:10:"];
    fails(
        good,
        &spec("- derive: { x: \"prise * 2\" }"),
        78,
        "FB0107",
        &says,
    );
    fails(good, &spec("- filter: \"prise > 2\""), 78, "FB0107", &says);
    let says = ["column", "spec.yaml:10:", "did you mean `columns`?"];
    fails(
        good,
        &spec("- standardize: { column: [price] }"),
        78,
        "FB0102",
        &says,
    );
    let says = [
        "there is no transform `standardise`",
        "did you mean `standardize`?",
        "spec.yaml:10:",
    ];
    fails(
        good,
        &spec("- standardise: { columns: [price] }"),
        78,
        "FB0105",
        &says,
    );
    let from = spec("- log1p: { columns: [price] }").replace("from: data", "from: dada");
    fails(
        good,
        &from,
        78,
        "FB0105",
        &[
            "there is no step or source `dada`",
            "did you mean `data`?",
            "spec.yaml:8:",
        ],
    );
    let part = spec("- log1p: { columns: [price] }")
        .replace("from: data\n", "from: data\n    fit_on: train\n");
    fails(good, &part, 78, "FB0105", &["train", "spec.yaml:9:"]);
    let time = spec("- log1p: { columns: [price] }")
        .replace("{ path: data }", "{ path: data }\n    time: day");
    fails(good, &time, 78, "FB0107", &["`day`", "spec.yaml:"]);
    let sort =
        spec("- log1p: { columns: [price] }").replace("path: out", "path: out, sort_by: [cty]");
    fails(
        good,
        &sort,
        78,
        "FB0107",
        &["`cty`", "did you mean `city`?"],
    );
    let partition = spec("- log1p: { columns: [price] }")
        .replace("path: out", "path: out, partition_by: [cty]");
    fails(
        good,
        &partition,
        78,
        "FB0107",
        &["`cty`", "did you mean `city`?"],
    );
}

#[test]
fn outputs_in_paths_of_a_shell() {
    let steps = "- log1p: { columns: [price] }";
    for (path, says) in [
        ("~/out", "write `/"),
        ("$HOME/out", "--param home=\"$HOME\""),
    ] {
        let spec = spec(steps).replace("path: out", &format!("path: \"{path}\""));
        let says = ["would write to a folder called", says];
        fails(good, &spec, 78, "FB0104", &says);
    }
}

#[test]
fn types_that_do_not_fit() {
    let says = ["`city` is a string, not a number", "spec.yaml:10:"];
    fails(
        good,
        &spec("- standardize: { columns: [city] }"),
        78,
        "FB0108",
        &says,
    );
    fails(
        good,
        &spec("- standardize: { columns: [\"*\"] }"),
        78,
        "FB0108",
        &says[..1],
    );
    fails(
        good,
        &spec("- filter: \"price\""),
        78,
        "FB0110",
        &["not a condition", "spec.yaml:10:"],
    );
    fails(
        good,
        &spec("- derive: { x: \"price +\" }"),
        78,
        "FB0110",
        &["`price +`", "spec.yaml:10:"],
    );
    fails(
        good,
        &spec("- derive: { x: \"lgo(price)\" }"),
        78,
        "FB0110",
        &["there is no function `lgo`"],
    );
    fails(
        good,
        &spec("- derive: { x: \"price + random()\" }"),
        78,
        "FB0110",
        &["`random`", "from run to run"],
    );
    let union = "version: 1\nname: test\nsources:\n  a:\n    parquet: { path: data }\n  b:\n    parquet: { path: more }\n\
                 steps:\n  both:\n    union: [a, b]\nsinks:\n  table: { from: both, parquet: { path: out } }\n";
    let make = |shop: &TestDirectory| {
        good(shop);
        parquet(
            shop,
            "more/a.parquet",
            [("id", column(Int32Array::from(vec![1])))],
        );
    };
    fails(
        make,
        union,
        78,
        "FB0108",
        &["`a` and `b` have different columns", "spec.yaml:"],
    );
}

#[test]
fn steps_in_a_cycle() {
    let cycle = "version: 1\nname: test\nsources:\n  data:\n    parquet: { path: data }\nsteps:\n  a:\n    from: b\n  b:\n    \
                 from: c\n  c:\n    union: [data, a]\nsinks:\n  table: { from: a, parquet: { path: out } }\n";
    fails(
        good,
        cycle,
        78,
        "FB0106",
        &[
            "steps depend on each other",
            "a -> b -> c -> a",
            "spec.yaml:",
        ],
    );
    let own = spec("- log1p: { columns: [price] }").replace("from: data", "from: features");
    fails(good, &own, 78, "FB0106", &["`features` reads itself"]);
    let join = "- join: { with: other, on: [id] }";
    let through_join = spec(join).replace("sinks:", "  other:\n    from: features\nsinks:");
    fails(
        good,
        &through_join,
        78,
        "FB0106",
        &["features -> other -> features", "read a source"],
    );
    let once = TestDirectory::new();
    good(&once);
    once.write("spec.yaml", &through_join);
    let call = once.forebay(&["run", "spec.yaml"]).expect(78);
    assert_eq!(
        call.stderr.matches("error[").count(),
        1,
        "one circle, told twice:\n{}",
        call.stderr
    );
    let itself = spec("- join: { with: features, on: [id] }");
    fails(good, &itself, 78, "FB0106", &["`features` reads itself"]);
    let unknown = spec("- join: { with: date, on: [id] }");
    fails(
        good,
        &unknown,
        78,
        "FB0105",
        &[
            "there is no step or source `date`",
            "did you mean `data`?",
            "spec.yaml:10:",
        ],
    );
    // A word of a configuration that is also a step's name is no use of that step.
    let named = spec("- impute: { columns: [price], with: median }").replace("features", "median");
    assert_eq!(works(good, &named).num_rows(), 20);
}

#[test]
fn steps_that_write_the_same_column() {
    let says = [
        "`price`",
        "exists already",
        "give the new column another name",
        "spec.yaml:10:",
    ];
    fails(
        good,
        &spec("- derive: { price: \"id * 2\" }"),
        78,
        "FB0109",
        &says,
    );
    let twice = "- standardize: { columns: [price], suffix: _z }\n- min_max: { columns: [price], suffix: _z }";
    fails(
        good,
        &spec(twice),
        78,
        "FB0109",
        &["`price_z`", "spec.yaml:11:"],
    );
    fails(
        good,
        &spec("- rename: { price: id }"),
        78,
        "FB0109",
        &["`id`"],
    );
    fails(
        good,
        &spec("- derive: { x: \"id\", x: \"price\" }"),
        78,
        "FB0112",
        &["`x`"],
    );
    // A column may be derived from itself.
    let own = works(good, &spec("- derive: { price: \"price * 2\" }"));
    assert_eq!(own["price"].as_primitive::<Float64Type>().value(19), 9.5);
}

#[test]
fn data_without_rows() {
    let make = |shop: &TestDirectory| good_file(shop, "data/a.parquet", 0);
    let steps = "- impute: { columns: [price], with: median }\n- standardize: { columns: [price] }\n\
                 - min_max: { columns: [price], suffix: _m }\n- robust_scale: { columns: [price], suffix: _r }\n\
                 - bucketize: { columns: [price], q: 4, suffix: _b }\n- k_bins: { columns: [price], bins: 3, suffix: _k }\n\
                 - quantiles: { columns: [price], q: 4, suffix: _q }\n- one_hot: { columns: [city], suffix: _hot }\n\
                 - vocabulary: { columns: [city], oov_buckets: 1 }\n- log1p: { columns: [price], suffix: _log }";
    // Statistics of no rows are refused, unless their step allows them.
    let allowing =
        |steps: &str| spec(steps).replace("from: data\n", "from: data\n    allow_empty: true\n");
    let rows = works(make, &allowing(steps));
    assert_eq!(rows.num_rows(), 0);
    let names: Vec<_> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert!(
        ["id", "price", "city", "price_m", "price_b"]
            .iter()
            .all(|name| names.contains(&(*name).to_owned()))
    );
    // The same where a filter removes them all, and for gathers and joins.
    let none = allowing(&format!("- filter: \"id < 0\"\n{steps}"));
    let filtered = works_with(good, &none, &["--allow-empty"]);
    assert_eq!(
        (filtered.num_rows(), filtered.schema().fields()),
        (0, rows.schema().fields())
    );
    let gathered =
        "- dedupe: { keys: [id] }\n- join: { with: data, on: [id, city], suffix: _other }";
    assert_eq!(works(make, &spec(gathered)).num_rows(), 0);
    let per_key =
        "- standardize: { columns: [price], by: [city] }\n- min_max: { columns: [id], by: [city] }";
    assert_eq!(works(make, &allowing(per_key)).num_rows(), 0);
    // Rows to transform, but none to learn from.
    let part = allowing("- standardize: { columns: [price] }\n- vocabulary: { columns: [city] }")
        .replace("from: data\n", "from: data\n    fit_on: train\n")
        .replace(
            "sinks:",
            "split:\n  train: \"id < 0\"\n  rest: \"id >= 0\"\nsinks:",
        );
    let rows = works(good, &part);
    assert_eq!(rows["price"].as_primitive::<Float64Type>().value(4), 1.0); // Nothing seen: x itself.
    assert!(
        rows["city"]
            .as_primitive::<Int64Type>()
            .iter()
            .all(|id| id == Some(-1))
    );
}

#[test]
fn columns_without_values() {
    let make = |shop: &TestDirectory| {
        let columns = [
            ("x", column(Float64Array::from(vec![None; 12]))),
            ("n", column(Int64Array::from(vec![None; 12]))),
            ("s", column(StringArray::from(vec![None::<&str>; 12]))),
        ];
        parquet(shop, "data/a.parquet", columns);
    };
    let steps = "- standardize: { columns: [x], suffix: _z }\n- min_max: { columns: [x, n], suffix: _m }\n\
                 - robust_scale: { columns: [x], suffix: _r }\n- bucketize: { columns: [x, n], q: 4, suffix: _b }\n\
                 - k_bins: { columns: [x], bins: 3, suffix: _k }\n- quantiles: { columns: [x], q: 4, suffix: _q }\n\
                 - standardize: { columns: [x], by: [s], suffix: _y }\n\
                 - vocabulary: { columns: [s, n], oov_buckets: 2, suffix: _id }";
    let rows = works(make, &spec(steps));
    assert_eq!(rows.num_rows(), 12);
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        assert_eq!(
            column.null_count(),
            12,
            "`{}` has values: {column:?}",
            field.name()
        );
    }
    let imputed = works(
        make,
        &spec("- impute: { columns: [x], with: mean, indicator: true }"),
    );
    assert_eq!(imputed["x"].null_count(), 12);
    assert_eq!(imputed["x_missing"].as_boolean().true_count(), 12);
}

#[test]
fn numbers_that_are_not_finite() {
    let make = |shop: &TestDirectory| {
        let values = vec![1.0, f64::NAN, 3.0, f64::INFINITY, f64::NEG_INFINITY];
        let finite = vec![1.0, f64::NAN, 3.0, 2.0, 2.0];
        parquet(
            shop,
            "data/a.parquet",
            [
                ("x", column(Float64Array::from(values))),
                ("y", column(Float64Array::from(finite))),
            ],
        );
    };
    // NaN is ignored by statistics and stays; infinities count where values are ranked.
    let steps = "- standardize: { columns: [y], suffix: _z }\n- bucketize: { columns: [x], q: 4, suffix: _b }\n\
                 - apply_buckets: { columns: [x], boundaries: [0, 2], suffix: _a }\n\
                 - quantiles: { columns: [x], q: 2, suffix: _q }\n- impute: { columns: [y], with: mean }";
    let rows = works(make, &spec(steps));
    let doubles = |name: &str| rows[name].as_primitive::<Float64Type>().values().to_vec();
    let z = doubles("y_z");
    assert!(z[1].is_nan());
    assert_eq!(
        [z[0], z[2], z[3], z[4]],
        [-1.0 / 0.5f64.sqrt(), 1.0 / 0.5f64.sqrt(), 0.0, 0.0]
    );
    assert_eq!(doubles("y"), [1.0, 2.0, 3.0, 2.0, 2.0]);
    let ints = |name: &str| rows[name].as_primitive::<Int32Type>().values().to_vec();
    // Sorted without NaN: -inf, 1, 3, inf; boundaries 1, 3, inf.
    assert_eq!(ints("x_b"), [1, 3, 2, 3, 0]);
    assert_eq!(ints("x_a"), [1, 2, 2, 2, 0]);
    assert_eq!(doubles("x_q")[1], 0.5);
    fails(
        make,
        &spec("- k_bins: { columns: [x], bins: 3 }"),
        65,
        "FB0205",
        &["`x`", "clip", "spec.yaml:10:"],
    );
}

/// Changes the bytes of `data/b.parquet`, one of two files.
fn damaged(change: impl Fn(&mut Vec<u8>)) -> impl Fn(&TestDirectory) {
    move |shop| {
        good(shop);
        good_file(shop, "data/b.parquet", 20);
        let path = shop.path("data/b.parquet");
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn parquet_that_is_broken() {
    let all = spec("- standardize: { columns: [price] }\n- vocabulary: { columns: [city] }");
    let says = ["data/b.parquet"];
    let cut = damaged(|bytes| bytes.truncate(bytes.len() / 2));
    fails(
        cut,
        &all,
        65,
        "FB0203",
        &[
            "does not end like Parquet",
            "cut off",
            "data/b.parquet",
            "spec.yaml:4:",
        ],
    );
    fails(
        damaged(|bytes| bytes.truncate(5)),
        &all,
        65,
        "FB0203",
        &["not Parquet", "5 bytes", "data/b.parquet"],
    );
    fails(damaged(|bytes| bytes.clear()), &all, 65, "FB0203", &says);
    fails(
        damaged(|bytes| *bytes = b"id,price\n1,2\n3,4\n5,6\n".to_vec()),
        &all,
        65,
        "FB0203",
        &says,
    );
    let magic = damaged(|bytes| {
        let last = bytes.len() - 1;
        bytes[last] = b'X';
    });
    fails(magic, &all, 65, "FB0203", &says);
    let length = damaged(|bytes| {
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    fails(
        length,
        &all,
        65,
        "FB0203",
        &["data/b.parquet", "the footer should have 4294967295 bytes"],
    );
    let footer = damaged(|bytes| {
        let at = bytes.len() - 8;
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[at - length..at - length / 2].fill(0xff);
    });
    fails(footer, &all, 65, "FB0203", &["data/b.parquet", "footer"]);
    // The first bytes are the page header of the first column.
    fails(
        damaged(|bytes| bytes[4..24].fill(0xff)),
        &all.replace("price", "id"),
        65,
        "FB0203",
        &["data/b.parquet", "row group 0", "column `id`"],
    );
}

#[test]
fn any_bit_of_parquet_may_flip() {
    // Without checksums a flipped bit may give other values; it must never give a panic or a bug.
    let shop = TestDirectory::new();
    good(&shop);
    let whole = fs::read(shop.path("data/a.parquet")).unwrap();
    shop.write(
        "spec.yaml",
        &spec("- standardize: { columns: [price, id] }\n- vocabulary: { columns: [city] }"),
    );
    let mut refused = 0;
    let mut read = 0;
    for step in 0..24 {
        let mut bytes = whole.clone();
        let at = 4 + (bytes.len() - 12) * step / 24;
        bytes[at] ^= 1 << (step % 8);
        fs::write(shop.path("data/a.parquet"), bytes).unwrap();
        let call = shop.forebay(&["run", "spec.yaml", "--state=state", "--threads=2"]);
        match call.code {
            0 => read += 1,
            65 => {
                refused += 1;
                assert!(
                    call.stderr.contains("data/a.parquet"),
                    "byte {at}:\n{}",
                    call.stderr
                );
            }
            // A column's name or type may change as well.
            78 => assert!(
                call.stderr.contains("error[FB010"),
                "byte {at}:\n{}",
                call.stderr
            ),
            code => panic!("byte {at}: exit code {code}\n{}", call.stderr),
        }
        expect_clean(&shop);
    }
    assert!(refused > 0 && read > 0, "{refused} refused, {read} read");
}

#[test]
fn schemas_that_drift() {
    let make = |shop: &TestDirectory| {
        good(shop);
        parquet(
            shop,
            "data/b.parquet",
            [
                ("id", column(Int64Array::from(vec![1]))),
                ("city", column(StringArray::from(vec!["a"]))),
            ],
        );
        parquet(
            shop,
            "data/c.parquet",
            [
                ("id", column(StringArray::from(vec!["x"]))),
                ("price", column(Float64Array::from(vec![1.0]))),
                ("city", column(StringArray::from(vec!["a"]))),
            ],
        );
        parquet(
            shop,
            "data/d.parquet",
            [
                ("id", column(Int64Array::from(vec![1]))),
                ("price", column(Float64Array::from(vec![1.0]))),
                ("city", column(StringArray::from(vec!["a"]))),
                ("extra", column(StringArray::from(vec!["a"]))),
            ],
        );
    };
    let says = [
        "data/b.parquet",
        "price",
        "data/c.parquet",
        "id",
        "data/d.parquet",
        "extra",
        "schema",
        "spec.yaml:4:",
    ];
    fails(
        make,
        &spec("- standardize: { columns: [price] }"),
        65,
        "FB0202",
        &says,
    );
}

#[test]
fn files_that_vanish_or_change() {
    let shop = TestDirectory::new();
    good(&shop);
    good_file(&shop, "data/b.parquet", 30);
    shop.write("spec.yaml", &spec("- standardize: { columns: [price] }"));
    let run = ["run", "spec.yaml", "--state=state", "--threads=2"];
    shop.forebay(&["explain", "spec.yaml", "--state=state"])
        .expect(0);
    // Plans are made anew: what vanished in between is simply not there.
    fs::remove_file(shop.path("data/b.parquet")).unwrap();
    shop.forebay(&run).expect(0);
    assert_eq!(shop.rows("out").num_rows(), 20);
    // Other bytes under the same name are other data, also with the size and time of the old ones.
    let time = fs::metadata(shop.path("data/a.parquet"))
        .unwrap()
        .modified()
        .unwrap();
    let values = (0..20)
        .map(|row| f64::from(row) / 8.0)
        .collect::<Float64Array>();
    let id = shop.rows("out")["id"].clone();
    let city = shop.rows("out")["city"].clone();
    parquet(
        &shop,
        "data/a.parquet",
        [("id", id), ("price", column(values)), ("city", city)],
    );
    fs::File::open(shop.path("data/a.parquet"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    let summary = shop
        .forebay(&[&run[..], &["--json"]].concat())
        .expect(0)
        .summary();
    assert_eq!(summary["nothing_new"], false);
}

#[test]
fn files_that_change_while_they_are_read() {
    use forebay::prelude::*;
    // The moment after discovery, one file is replaced, then one is removed.
    struct DiscoveryHook(Box<dyn Fn() + Send + Sync>);
    impl forebay::EventListener for DiscoveryHook {
        fn on_event(&self, event: forebay::Event) {
            if let forebay::Event::Discovered { .. } = event {
                (self.0)();
            }
        }
    }
    let shop = TestDirectory::new();
    let pipeline = PipelineBuilder::new("test");
    let data = pipeline.source("data", ParquetSource::at(shop.at("data")));
    let features = pipeline
        .step("features", &data)
        .apply(standardize(["price"]));
    pipeline.sink("table", &features, ParquetSink::at(shop.at("out")));
    let pipeline = pipeline.build().unwrap();
    let run = |meddle: Box<dyn Fn() + Send + Sync>| {
        good(&shop);
        let state = shop.at("state");
        let options = SessionOptions {
            threads: 2,
            memory_bytes: 1 << 30,
            batch_rows: 1000,
            state,
            run_id: None,
        };
        let session = Forebay::new()
            .with_options(options)
            .with_listener(Arc::new(DiscoveryHook(meddle)))
            .session()
            .unwrap();
        let fault = session.run(&pipeline).unwrap_err();
        println!("{}", forebay::present::fault::plain(&fault, None));
        expect_clean(&shop);
        assert!(!shop.path(".out.forebay/_manifest.json").exists());
        assert!(fault.to_string().contains("data/a.parquet"), "{fault}");
        fault.code().name
    };
    let path = shop.path("data/a.parquet");
    good_file(&shop, "other/a.parquet", 7);
    let from = shop.path("other/a.parquet");
    let to = path.clone();
    assert_eq!(
        run(Box::new(move || assert!(fs::copy(&from, &to).is_ok()))),
        "FB0208"
    );
    assert_eq!(
        run(Box::new(move || fs::remove_file(&path).unwrap())),
        "FB0208"
    );
}

/// A small disk of its own, where this process may mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let options = format!("size={size}");
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&path);
        mount
            .output()
            .is_ok_and(|output| output.status.success())
            .then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .output();
    }
}

/// Runs a small job to its end, then a larger one on what is left of the disk: the second must
/// fail, and the first one's output must stay as it is.
fn full_disk(
    shop: &TestDirectory,
    out: &str,
    state: &str,
    says: &str,
    call: impl Fn(&[&str]) -> ProgramOutput,
) {
    let text = spec("- derive: { a: \"sin(price)\", b: \"cos(price)\" }");
    shop.write(
        "spec.yaml",
        &text.replace("path: out", &format!("path: {out}")),
    );
    let state = format!("--state={state}");
    let run = ["run", "spec.yaml", &state, "--threads=2"];
    good(shop);
    shop.forebay(&run).expect(0);
    let before = (
        fs::read(shop.root(out).join("_manifest.json")).unwrap(),
        shop.rows(out),
    );
    good_file(shop, "data/b.parquet", 100_000);
    expect_fault(
        call(&run),
        75,
        "FB0302",
        &[says, out.rsplit('/').next().unwrap(), "hint"],
    );
    let after = (
        fs::read(shop.root(out).join("_manifest.json")).unwrap(),
        shop.rows(out),
    );
    assert!(before == after, "the previous output has changed");
    expect_clean(shop);
    // Where there is room again, the same command goes on.
    fs::remove_file(shop.path("data/b.parquet")).unwrap();
    good_file(shop, "data/b.parquet", 30);
    shop.forebay(&run).expect(0);
    assert_eq!(shop.rows(out).num_rows(), 50);
}

#[test]
fn a_full_disk_for_output() {
    let shop = TestDirectory::new();
    let Some(_disk) = SmallDisk::at(shop.path("small"), "1m") else {
        eprintln!("skipped: this process may not mount a small disk");
        return;
    };
    full_disk(&shop, "small/out", "state", "the disk is full", |args| {
        shop.forebay(args)
    });
}

#[test]
fn a_full_disk_for_states() {
    let shop = TestDirectory::new();
    let Some(_disk) = SmallDisk::at(shop.path("small"), "256k") else {
        eprintln!("skipped: this process may not mount a small disk");
        return;
    };
    shop.write(
        "spec.yaml",
        &spec("- derive: { name: \"cast(id as varchar)\" }\n- vocabulary: { columns: [name] }"),
    );
    good_file(&shop, "data/a.parquet", 100_000);
    let run = ["run", "spec.yaml", "--state=small/state", "--threads=2"];
    expect_fault(shop.forebay(&run), 75, "FB0302", &["disk is full", "hint"]);
    assert!(!shop.path(".out.forebay/_manifest.json").exists());
    expect_clean(&shop);
    shop.forebay(&["run", "spec.yaml", "--state=state", "--threads=2"])
        .expect(0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_size_of_files() {
    let shop = TestDirectory::new();
    full_disk(&shop, "out", "state", "ulimit -f", |args| {
        // In blocks of 1024 bytes. The signal of the system comes before the error of the write.
        let mut limited = std::process::Command::new("bash");
        limited.args([
            "-c",
            "ulimit -f 200; exec \"$0\" \"$@\"",
            crate::support::FOREBAY,
        ]);
        limited
            .args(args)
            .current_dir(shop.path(""))
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
            .into()
    });
}

#[test]
fn directories_that_cannot_be_written() {
    let simple = spec("- standardize: { columns: [price] }");
    // Also root cannot make a directory below a file.
    let shop = TestDirectory::new();
    good(&shop);
    shop.write("spec.yaml", &simple);
    shop.write("file", "");
    let call = shop.forebay(&["run", "spec.yaml", "--state=file/state"]);
    expect_fault(call, 78, "FB0403", &["file/state"]);
    assert!(!shop.path("out").exists());
    let call = shop.forebay(&["run", "spec.yaml", "--state=file"]);
    expect_fault(call, 78, "FB0403", &["file"]);
    let below = simple.replace("path: out", "path: file/out");
    fails(
        |shop| drop((good(shop), shop.write("file", ""))),
        &below,
        78,
        "FB0403",
        &["file/out"],
    );
}

/// Files of text in a packing that is not read.
#[test]
fn packings_that_are_not_read_are_named() {
    let packed: [(&[u8], &str); 4] = [
        (b"BZh91AY&SY\x12\x34\x56\x78", "bzip2"),
        (b"\xfd7zXZ\0\0\x04\xe6\xd6", "xz"),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "ZIP"),
        (b"\x04\x22\x4d\x18\x64\x40\xa7", "LZ4"),
    ];
    for (bytes, name) in packed {
        for kind in ["csv", "json"] {
            let shop = TestDirectory::new();
            fs::write(shop.path(&format!("a.{kind}")), bytes).unwrap();
            let text = format!(
                "version: 1\nname: packed\nsources: {{ a: {{ {kind}: {{ path: a.{kind} }} }} }}\n\
                 sinks: {{ t: {{ from: a, parquet: {{ path: out }} }} }}\n"
            );
            shop.write("spec.yaml", &text);
            let call = shop.forebay(&["check", "spec.yaml"]);
            let says = format!("the file is packed with {name}");
            assert!(
                call.code != 0 && call.stderr.contains(&says),
                "{}",
                call.stderr
            );
        }
    }
}

/// A sink whose directory cannot be written is refused before the first pass, whichever it is.
#[test]
fn directories_are_tried_before_anything_is_computed() {
    let shop = TestDirectory::new();
    good(&shop);
    shop.write("file", "");
    let sinks = [
        "u: { from: features, csv: { path: file/u } }",
        "u: { from: features, delta: { path: file/u } }",
        "u: { from: features, train: { model: linear, label: price, dense: [id], path: file/u } }",
    ];
    let simple = spec("- standardize: { columns: [price] }");
    for (number, sink) in sinks.iter().enumerate() {
        shop.write("spec.yaml", &format!("{simple}  {sink}\n"));
        let state = format!("--state=state{number}");
        let call = shop
            .forebay(&["run", "spec.yaml", "--json", &state])
            .expect(78);
        assert_eq!(
            call.summary()["fault"]["code"],
            "FB0403",
            "{sink}: {}",
            call.stdout
        );
        assert!(
            !call.stdout.contains("pass_started"),
            "{sink}: {}",
            call.stdout
        );
        assert!(!shop.path("out").exists() && !shop.path(".out.forebay").exists());
        // A check warns: the run may be meant for another machine.
        let checked = shop.forebay(&["check", "spec.yaml", "--json"]).expect(0);
        let summary = checked.summary();
        let mut warnings = summary["diagnostics"].as_array().unwrap().iter();
        let is_told = warnings.any(|warning| warning["code"] == "FB0403");
        assert!(
            is_told && checked.stderr.contains("file/u"),
            "{sink}: {summary}"
        );
    }
}

#[test]
fn artifacts_that_are_broken() {
    let shop = TestDirectory::new();
    good_file(&shop, "data/a.parquet", 1000);
    let steps = "- derive: { name: \"cast(id as varchar)\" }\n- standardize: { columns: [price] }\n- vocabulary: { columns: [name] }";
    shop.write("spec.yaml", &spec(steps));
    let summary = shop
        .forebay(&["fit", "spec.yaml", "--state=state", "--json"])
        .expect(0)
        .summary();
    let original = shop.path(summary["artifact_path"].as_str().unwrap());
    // A copy that is not called by its id: there, what is wrong inside is what shows.
    let copy = shop.path("copy");
    fs::create_dir_all(copy.join("findings")).unwrap();
    for name in ["artifact.json", "findings/1.parquet"] {
        fs::copy(original.join(name), copy.join(name)).unwrap();
    }
    let whole = fs::read_to_string(copy.join("artifact.json")).unwrap();
    let apply = |dir: &Path| {
        let dir = dir.display().to_string();
        shop.forebay(&[
            "apply",
            &dir,
            "--source",
            "data=data",
            "--output",
            "out",
            "--state=other",
        ])
    };
    let with = |dir: &Path, text: &str, exit: i32, code: &str, says: &[&str]| {
        fs::write(dir.join("artifact.json"), text).unwrap();
        expect_fault(apply(dir), exit, code, says);
        assert!(!shop.path("out").exists());
    };
    with(&copy, "{", 65, "FB0203", &["artifact.json", "fit again"]);
    with(
        &copy,
        &whole[..whole.len() / 2],
        65,
        "FB0203",
        &["artifact.json", "fit again"],
    );
    let newer = whole.replace("\"format\": 1", "\"format\": 4");
    with(
        &copy,
        &newer,
        65,
        "FB0209",
        &["format 4", "reads 1 to 3", "artifact.json"],
    );
    with(
        &copy,
        &whole.replace("\"steps\"", "\"stepps\""),
        65,
        "FB0203",
        &["artifact.json", "steps"],
    );
    let unknown = whole.replace("\"standardize\",", "\"standardise\",");
    with(
        &copy,
        &unknown,
        78,
        "FB0105",
        &["standardise", "did you mean"],
    );
    // What was learned has been edited: the directory is called by an id that no longer fits.
    let edited = whole.replacen("124.875", "125.0", 1);
    assert_ne!(edited, whole);
    with(
        &original,
        &edited,
        65,
        "FB0203",
        &["artifact.json", "changed since it was written", "fit again"],
    );
    fs::write(original.join("artifact.json"), &whole).unwrap();
    fs::write(copy.join("artifact.json"), &whole).unwrap();
    let finding = copy.join("findings/1.parquet");
    let bytes = fs::read(&finding).unwrap();
    fs::write(&finding, &bytes[..bytes.len() / 2]).unwrap();
    expect_fault(
        apply(&copy),
        65,
        "FB0203",
        &["findings/1.parquet", "fit again"],
    );
    fs::remove_file(&finding).unwrap();
    expect_fault(
        apply(&copy),
        65,
        "FB0402",
        &["findings/1.parquet", "fit again"],
    );
    fs::write(&finding, &bytes).unwrap();
    apply(&copy).expect(0);
    shop.forebay(&["show", "copy"]).expect(0);
    let dir = original.display().to_string();
    let call = shop.forebay(&[
        "apply",
        "nowhere",
        "--source=data",
        "--output=out",
        "--state=other",
    ]);
    expect_fault(call, 65, "FB0402", &["nowhere", "artifact.json"]);
    // Other columns than it was fitted on.
    parquet(
        &shop,
        "few/a.parquet",
        [("id", column(Int64Array::from(vec![1])))],
    );
    let call = shop.forebay(&[
        "apply",
        &dir,
        "--source=data=few",
        "--output=out2",
        "--state=other",
    ]);
    expect_fault(call, 78, "FB0107", &["`price`"]);
    assert!(!shop.path("out2").exists());
}

#[test]
fn values_out_of_range() {
    let make = |shop: &TestDirectory| {
        let columns = [
            ("n", column(Int64Array::from(vec![1, 0, i64::MAX]))),
            ("s", column(StringArray::from(vec!["1", "2", "x7"]))),
        ];
        parquet(shop, "data/a.parquet", columns);
    };
    let says = ["data/a.parquet", "spec.yaml:10:"];
    let of = |words: &[&'static str]| [words, &says].concat();
    fails(
        make,
        &spec("- derive: { x: \"n + 1\" }"),
        65,
        "FB0210",
        &of(&["`n + 1`", "verflow"]),
    );
    fails(
        make,
        &spec("- derive: { x: \"n * n\" }"),
        65,
        "FB0210",
        &of(&["`n * n`", "verflow"]),
    );
    fails(
        make,
        &spec("- derive: { x: \"10 / n\" }"),
        65,
        "FB0210",
        &of(&["`10 / n`", "ivide by zero"]),
    );
    fails(
        make,
        &spec("- filter: \"10 / n > 1\""),
        65,
        "FB0210",
        &of(&["ivide by zero"]),
    );
    fails(
        make,
        &spec("- derive: { x: \"cast(s as int)\" }"),
        65,
        "FB0206",
        &of(&["x7"]),
    );
    fails(
        make,
        &spec("- derive: { x: \"cast(n as int)\" }"),
        65,
        "FB0206",
        &of(&["9223372036854775807"]),
    );
    fails(
        make,
        &spec("- cast: { columns: { s: int64 } }"),
        65,
        "FB0206",
        &of(&["`s` holds `x7`", "on_error"]),
    );
    fails(
        make,
        &spec("- cast: { columns: { n: int8 } }"),
        65,
        "FB0206",
        &of(&["`n` holds `9223372036854775807`"]),
    );
    let lenient = works(
        make,
        &spec("- cast: { columns: { s: int64 }, on_error: missing }"),
    );
    assert_eq!(
        lenient["s"]
            .as_primitive::<Int64Type>()
            .iter()
            .collect::<Vec<_>>(),
        [Some(1), Some(2), None]
    );
    let filtered = works(
        make,
        &spec("- filter: \"n > 0\"\n- derive: { x: \"10 / n\" }"),
    );
    assert_eq!(filtered.num_rows(), 2);
    let refused = "- ordinal: { columns: [s], categories: [\"1\"], unknown: error }";
    fails(make, &spec(refused), 65, "FB0211", &of(&["`s` holds `2`"]));
    let many = "- join: { with: right, on: [n], cardinality: one_to_one }";
    let twice = |shop: &TestDirectory| {
        make(shop);
        parquet(
            shop,
            "more/a.parquet",
            [
                ("n", column(Int64Array::from(vec![1, 1]))),
                ("y", column(Int64Array::from(vec![1, 2]))),
            ],
        );
    };
    let text = spec(many).replace("steps:", "  right:\n    parquet: { path: more }\nsteps:");
    fails(twice, &text, 65, "FB0207", &["spec.yaml:12:"]);
}

#[test]
fn outputs_over_inputs_and_outputs() {
    let simple = spec("- standardize: { columns: [price] }");
    let says = ["spec.yaml:", "hint"];
    for path in ["data", "./data", "data/../data", "data/features"] {
        fails(
            good,
            &simple.replace("path: out", &format!("path: {path}")),
            78,
            "FB0114",
            &says,
        );
    }
    // Not even by another name.
    let linked = |shop: &TestDirectory| {
        good(shop);
        std::os::unix::fs::symlink("data", shop.path("link")).unwrap();
    };
    fails(
        linked,
        &simple.replace("path: out", "path: link"),
        78,
        "FB0114",
        &says,
    );
    // A source that reads a sink's output, and a sink around a source.
    let within = |shop: &TestDirectory| good_file(shop, "out/a.parquet", 3);
    let shop = TestDirectory::new();
    within(&shop);
    shop.write(
        "spec.yaml",
        &simple.replace("path: data", "path: out/*.parquet"),
    );
    expect_fault(
        shop.forebay(&["run", "spec.yaml"]),
        78,
        "FB0114",
        &["`table`", "`data`"],
    );
    expect_fault(
        shop.forebay(&["explain", "spec.yaml"]),
        78,
        "FB0114",
        &["`table`", "`data`"],
    );
    // Learning alone writes nothing there.
    shop.forebay(&["fit", "spec.yaml"]).expect(0);
    let two = simple.replace(
        "sinks:",
        "sinks:\n  other: { from: features, parquet: { path: \"./out/\" } }",
    );
    fails(
        good,
        &two,
        78,
        "FB0114",
        &["`table` and `other`", "the same directory", "spec.yaml:"],
    );
    // Neighbours whose names begin alike are fine.
    assert_eq!(
        works(
            good,
            &simple
                .replace("path: out ", "path: data_out ")
                .replace("path: data_out", "path: out")
        )
        .num_rows(),
        20
    );
    let shop = TestDirectory::new();
    good(&shop);
    shop.write("spec.yaml", &simple.replace("path: out", "path: data_out"));
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let call = shop.forebay(&[
        "apply",
        &newest(&shop),
        "--source=data",
        "--output=data/out",
    ]);
    expect_fault(call, 78, "FB0114", &["`table`", "`data`"]);
}

/// The newest artifact in the default state directory.
fn newest(shop: &TestDirectory) -> String {
    let text = fs::read_to_string(shop.path(".forebay/artifacts/test.json")).unwrap();
    let pointer: serde_json::Value = serde_json::from_str(&text).unwrap();
    shop.at(&format!(
        ".forebay/artifacts/{}",
        pointer["artifact"].as_str().unwrap()
    ))
}

#[test]
fn limits_say_which() {
    let long = "x".repeat((1 << 20) + 1);
    let make = |shop: &TestDirectory| {
        let mut tags = ListBuilder::new(StringBuilder::new());
        tags.append_value([Some(long.as_str())]);
        parquet(
            shop,
            "data/a.parquet",
            [
                ("s", column(StringArray::from(vec![long.as_str()]))),
                ("tags", column(tags.finish())),
            ],
        );
    };
    let says = ["1048577", "hash"];
    fails(
        make,
        &spec("- vocabulary: { columns: [s] }"),
        78,
        "FB0303",
        &says,
    );
    fails(
        make,
        &spec("- vocabulary: { columns: [tags] }"),
        78,
        "FB0303",
        &says,
    );
    let shop = TestDirectory::new();
    shop.write("spec.yaml", &format!("# {}\n", "x".repeat(5 << 20)));
    expect_fault(
        shop.forebay(&["check", "spec.yaml"]),
        78,
        "FB0303",
        &["spec.yaml", "4194304"],
    );
    shop.write(
        "spec.yaml",
        &format!(
            "version: 1\nname: {}x{}\n",
            "[".repeat(100),
            "]".repeat(100)
        ),
    );
    shop.forebay(&["check", "spec.yaml"]).expect(78);
    let call = shop.forebay(&["check", "nowhere.yaml"]);
    expect_fault(call, 65, "FB0402", &["nowhere.yaml"]);
}
