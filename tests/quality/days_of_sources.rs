//! Days of a source that have not come, have come twice, or have a column without values.

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use crate::support::{TestDirectory, read_files};

const SPEC: &str = r#"
version: 1
name: arrivals
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id], duplicates: allow, RULES }
steps:
  features: { from: demand, do: [ { standardize: { columns: [price] } } ] }
sinks:
  table: { from: features, parquet: { path: out } }
"#;

/// Forty days of files.
struct Arrivals {
    shop: TestDirectory,
    days: Vec<String>,
}

impl Arrivals {
    fn new(rules: &str) -> Arrivals {
        let shop = TestDirectory::new();
        let days = shop.days("history");
        let arrivals = Arrivals { shop, days };
        arrivals.declare(rules);
        arrivals
    }

    fn declare(&self, rules: &str) {
        self.shop.write("spec.yaml", &SPEC.replace("RULES", rules));
    }

    fn file(&self, day: usize) -> String {
        format!("history/{}", self.days[day])
    }

    fn date(&self, day: usize) -> String {
        let stem = self.days[day].split('.').next().unwrap();
        stem[stem.len() - 10..].to_owned()
    }

    fn lose(&self, day: usize) {
        std::fs::remove_file(self.shop.path(&self.file(day))).unwrap();
    }

    fn repeat(&self, day: usize) {
        let copy = self.shop.path("history/again.parquet");
        std::fs::copy(self.shop.path(&self.file(day)), copy).unwrap();
    }

    /// Takes the prices of a day away.
    fn empty(&self, day: usize) {
        let path = self.shop.path(&self.file(day));
        let rows = read_files(std::slice::from_ref(&path));
        let price = rows.schema().index_of("price").unwrap();
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        columns[price] = new_null_array(rows.column(price).data_type(), rows.num_rows());
        let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }

    fn days_of(&self, args: &[&str]) -> Value {
        let call = self
            .shop
            .forebay(&[&["run", "spec.yaml", "--json"], args].concat());
        call.expect(0).summary()["days"].take()
    }
}

#[test]
fn each_kind_of_day_is_told_without_a_rule() {
    let arrivals = Arrivals::new("");
    assert_eq!(arrivals.days_of(&[]), Value::Null);
    arrivals.lose(20);
    arrivals.repeat(30);
    arrivals.empty(39);
    let files = format!(
        "{}: `{}` and `again.parquet`",
        arrivals.date(30),
        arrivals.days[30]
    );
    let expected = json!([
        { "source": "demand", "kind": "late", "days": 1, "newest": [arrivals.date(20)] },
        { "source": "demand", "kind": "duplicate", "days": 1, "newest": [files] },
        { "source": "demand", "kind": "empty", "days": 1, "newest": [format!("{}: `price`", arrivals.date(39))] },
    ]);
    for args in [&[][..], &["--threads=1"], &["--local-workers=1"]] {
        let mut days = arrivals.days_of(args);
        // Files come in the order of their names.
        let newest = days[1]["newest"][0].as_str().unwrap().to_owned();
        assert!(
            newest.contains("again.parquet") && newest.contains(&arrivals.days[30]),
            "{newest}"
        );
        days[1]["newest"][0] = expected[1]["newest"][0].clone();
        assert_eq!(days, expected, "{args:?}");
    }
    let args = [
        "run",
        "spec.yaml",
        "--report=page.html",
        "--metrics-file=run.prom",
    ];
    let call = arrivals.shop.forebay(&args).expect(0);
    let page = std::fs::read_to_string(arrivals.shop.path("page.html")).unwrap();
    let metrics = std::fs::read_to_string(arrivals.shop.path("run.prom")).unwrap();
    for (day, kind) in [(20, "late"), (30, "duplicate"), (39, "empty")] {
        let date = arrivals.date(day);
        assert!(call.stdout.contains(&date), "{}", call.stdout);
        assert!(page.contains(&date), "{kind}");
        let metric = metrics.lines().find(|line| {
            line.starts_with("forebay_source_days") && line.contains(&format!("kind=\"{kind}\""))
        });
        assert!(metric.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    }
}

#[test]
fn a_run_of_an_interval_looks_at_its_own_days() {
    let arrivals = Arrivals::new("");
    arrivals.lose(36);
    let interval = |from: usize, to: usize| {
        let [from, to] = [arrivals.date(from), arrivals.date(to)];
        arrivals.days_of(&["--interval", &from, &to])
    };
    let newest = interval(35, 37)[0]["newest"].take();
    assert_eq!(newest, json!([arrivals.date(36)]));
    assert_eq!(interval(37, 38), Value::Null);
}

#[test]
fn each_kind_of_day_can_be_a_fault() {
    for (rule, day, text) in [
        ("late", 30, "1 day is late: it has no rows"),
        ("duplicate", 30, "1 day seems to have come twice"),
        ("empty", 30, "1 day is empty"),
    ] {
        let arrivals = Arrivals::new(&format!("days: {{ {rule}: error }}"));
        match rule {
            "late" => arrivals.lose(day),
            "duplicate" => arrivals.repeat(day),
            _ => arrivals.empty(day),
        }
        let call = arrivals.shop.forebay(&["run", "spec.yaml"]).expect(65);
        for part in ["FB0216", text, &arrivals.date(day), "at the source"] {
            assert!(call.stderr.contains(part), "no `{part}` in {}", call.stderr);
        }
        assert!(!arrivals.shop.path("out").exists());
        arrivals.declare(&format!("days: {{ {rule}: allow }}"));
        assert_eq!(arrivals.days_of(&[]), Value::Null, "{rule}");
    }
    // A day of more than four weeks ago has been judged before.
    let arrivals = Arrivals::new("days: { late: error }");
    arrivals.lose(8);
    assert_eq!(arrivals.days_of(&[])[0]["kind"], "late");
}

/// Texts record no times: they are read where a day that is late is a fault.
#[test]
fn late_days_of_texts_are_refused() {
    let shop = TestDirectory::new();
    let mut rows = "day,qty\n".to_owned();
    for day in (1..=28).filter(|day| *day != 24) {
        rows += &format!("2024-02-{day:02},1\n");
    }
    shop.write("sales.csv", &rows);
    let declare = |rule: &str| {
        let spec = "version: 1\nname: texts\nsources:\n  \
                    sales: { csv: { path: sales.csv }, time: day, days: { late: RULE } }\n\
                    sinks:\n  table: { from: sales, parquet: { path: out } }\n";
        shop.write("spec.yaml", &spec.replace("RULE", rule));
    };
    declare("error");
    let call = shop.forebay(&["run", "spec.yaml"]).expect(65);
    let words = "1 day is late: it has no rows (2024-02-24)";
    assert!(call.stderr.contains(words), "{}", call.stderr);
    declare("warn");
    let call = shop.forebay(&["run", "spec.yaml"]).expect(0);
    let said = format!("{}{}", call.stdout, call.stderr);
    assert!(said.contains("2024-02-24"), "{said}");
}

/// Rows of a source without a time have no days: a rule about them would never say anything.
#[test]
fn rules_of_days_need_a_time() {
    let shop = TestDirectory::new();
    shop.write("sales.csv", "day,qty\n2024-02-01,1\n");
    let spec = "version: 1\nname: texts\nsources:\n  \
                sales: { csv: { path: sales.csv }, days: { late: error } }\n\
                sinks:\n  table: { from: sales, parquet: { path: out } }\n";
    shop.write("spec.yaml", spec);
    let call = shop.forebay(&["check", "spec.yaml"]).expect(78);
    for words in ["FB0103", "`days` needs the `time` of the source"] {
        assert!(call.stderr.contains(words), "{}", call.stderr);
    }
}

/// Files of texts have no footers, by which these rules judge: the rules would never say anything.
#[test]
fn rules_that_texts_cannot_keep_are_refused() {
    let shop = TestDirectory::new();
    shop.write("sales.csv", "day,qty\n2024-02-01,1\n");
    let declare = |format: &str, rules: &str| {
        let spec = "version: 1\nname: texts\nsources:\n  \
                    sales: { FORMAT: { path: sales.FORMAT }, time: day, days: { RULES } }\n\
                    sinks:\n  table: { from: sales, parquet: { path: out } }\n";
        let spec = spec.replace("FORMAT", format);
        shop.write("spec.yaml", &spec.replace("RULES", rules));
    };
    for format in ["csv", "json", "arrow"] {
        declare(format, "duplicate: error, empty: warn");
        let call = shop.forebay(&["check", "spec.yaml"]).expect(78);
        for rule in ["duplicate", "empty"] {
            let words = format!(
                "`days.{rule}` is judged by the footers of Parquet files, and {format} files have \
                 none"
            );
            assert!(call.stderr.contains(&words), "{}", call.stderr);
        }
    }
    declare("delta", "duplicate: warn, empty: error");
    let call = shop.forebay(&["check", "spec.yaml"]).expect(78);
    for rule in ["duplicate", "empty"] {
        let words = format!(
            "`days.{rule}` is judged by the footers of Parquet files, which are not read for Delta \
             tables"
        );
        assert!(call.stderr.contains(&words), "{}", call.stderr);
    }
    declare("csv", "late: error, duplicate: allow");
    shop.forebay(&["check", "spec.yaml"]).expect(0);
}
