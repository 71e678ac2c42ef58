//! Conversations with the program: exit codes, standard output, standard error.

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use arrow::util::display::array_value_to_string;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, ready_made};

#[test]
fn usage_mistakes_exit_64() {
    let shop = TestDirectory::new();
    for args in [
        &["runn"][..],
        &["run"],
        &["run", "a.yaml", "--memory", "lots"],
        &["generate", "demand"],
    ] {
        let call = shop.forebay(args).expect(64);
        assert!(call.stdout.is_empty(), "{args:?} wrote to standard output");
        assert!(!call.stderr.is_empty());
    }
    let spec = ready_made("demand.yaml");
    for (options, reason) in [
        (&["--memory", "1MiB"][..], "at least"),
        (&["--threads", "0"], "between 1 and 1024"),
        (&["--threads", "100000"], "between 1 and 1024"),
        (&["--threads", "18446744073709551615"], "between 1 and 1024"),
        (&["--local-workers", "100000"], "more than 256"),
        (
            &["--local-workers", "18446744073709551615"],
            "more than 256",
        ),
        (
            &["--memory", "128MiB", "--local-workers", "2"],
            "each of 2 local workers and the coordinator gets 42 MiB",
        ),
    ] {
        let args = [&["run", spec.as_str()], options].concat();
        let call = shop.forebay(&args).expect(64);
        assert!(
            call.stderr.contains(reason),
            "{options:?} says\n{}",
            call.stderr
        );
    }
    shop.forebay(&["--help"]).expect(0);
    shop.forebay(&["--version"]).expect(0);
}

/// Expressions that a program wrote: long chains are computed by every kind of process, longer ones refused.
#[test]
fn long_expressions_run_or_are_refused() {
    let shop = TestDirectory::new();
    shop.demand("data", 5_000);
    let spec = |terms: usize| {
        let terms: Vec<String> = (0..terms).map(|term| format!("qty = {term}")).collect();
        shop.write(
            "long.yaml",
            &format!(
                "version: 1\nname: long\nsources: {{ a: {{ parquet: {{ path: data }} }} }}\nsteps: {{ f: {{ from: a, do: [ {{ filter: \"{}\" }} ] }} }}\nsinks: {{ t: {{ from: f, parquet: {{ path: out }} }} }}\n",
                terms.join(" OR ")
            ),
        )
    };
    spec(480);
    shop.forebay(&["check", "long.yaml"]).expect(0);
    shop.forebay(&["run", "long.yaml", "--state", "state"])
        .expect(0);
    let rows = shop.visible("out").num_rows();
    assert!(rows > 0);
    let workers = [
        "run",
        "long.yaml",
        "--state",
        "other",
        "--local-workers",
        "2",
    ];
    shop.forebay(&workers).expect(0);
    assert_eq!(shop.visible("out").num_rows(), rows);
    for terms in [900, 20_000] {
        spec(terms);
        let call = shop.forebay(&["check", "long.yaml"]).expect(78);
        assert!(call.stderr.contains("FB0110") && call.stderr.contains("IN (...)"));
    }
}

/// Passwords and signatures in URLs of the environment stay out of everything that is printed.
#[test]
fn secrets_of_urls_are_never_printed() {
    let shop = TestDirectory::new();
    shop.write(
        "s3.yaml",
        "version: 1\nname: s\nsources: { a: { parquet: { path: \"s3://bucket/data\" } } }\nsinks: { t: { from: a, parquet: { path: out } } }\n",
    );
    let calls: [&[&str]; 4] = [
        &["doctor"],
        &["check", "s3.yaml"],
        &["run", "s3.yaml", "--json"],
        &["profile", "s3://bucket/data"],
    ];
    for args in calls {
        // Port 9 of this machine refuses connections.
        let mut command = shop.command(args);
        command
            .env(
                "AWS_ENDPOINT_URL",
                "http://planted-user:planted-word@127.0.0.1:9/",
            )
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "planted-secret")
            .env(
                "MLFLOW_TRACKING_URI",
                "http://planted-user:planted-word@127.0.0.1:9/",
            )
            .env("FOREBAY_RETRY_SECONDS", "0")
            .env("RUST_LOG", "trace");
        let call: ProgramOutput = command.watched().into();
        for text in [&call.stdout, &call.stderr] {
            assert!(!text.contains("planted-"), "{args:?} printed\n{text}");
        }
    }
}

/// Names that become those of files and folders are refused before anything is read.
#[test]
fn names_that_no_file_can_have_are_refused() {
    let shop = TestDirectory::new();
    let long = "a".repeat(300);
    shop.write("rows.csv", &format!("x,s,{long}\n1,a,1\n2,b,2\n"));
    let spec = |pipeline: &str, step: &str, sink: &str, path: &str, by: &str| {
        format!(
            "version: 1\nname: {pipeline}\nsources: {{ a: {{ csv: {{ path: rows.csv }} }} }}\n\
             steps: {{ {step}: {{ from: a, do: [ standardize: {{ columns: [x] }} ] }} }}\n\
             sinks: {{ {sink}: {{ from: {step}, parquet: {{ path: \"{path}\", partition_by: [{by}] }} }} }}\n"
        )
    };
    let trained = format!(
        "version: 1\nname: p\nsources: {{ a: {{ csv: {{ path: rows.csv }} }} }}\n\
         sinks: {{ m: {{ from: a, train: {{ model: linear, label: x, path: {long} }} }} }}\n"
    );
    let specs = [
        spec(&long, "f", "t", "out", "s"),
        spec("p", &long, "t", "out", "s"),
        spec("p", "f", &long, "out", "s"),
        spec("p", "f", "t", &long, "s"),
        spec("p", "f", "t", &format!("{long}/out"), "s"),
        spec("p", "f", "t", "out", &long),
        trained,
    ];
    for text in specs {
        shop.write("long.yaml", &text);
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "long.yaml"]).expect(78);
            assert!(
                call.stderr.contains("FB0104"),
                "{command} {text}\n{}",
                call.stderr
            );
        }
        assert!(!shop.path("out").exists());
    }
    shop.write("short.yaml", &spec("p", "f", "t", &"b".repeat(240), "s"));
    shop.forebay(&["run", "short.yaml"]).expect(0);
}

/// A union that is doubled with every step is planned in bounded memory, or refused.
#[test]
fn unions_that_double_are_refused() {
    let shop = TestDirectory::new();
    shop.write("rows.csv", "x\n1\n");
    let mut text =
        "version: 1\nname: p\nsources: { a: { csv: { path: rows.csv } } }\nsteps:\n".to_owned();
    let mut last = "a".to_owned();
    for number in 0..24 {
        text += &format!("  s{number}: {{ union: [{last}, {last}] }}\n");
        last = format!("s{number}");
    }
    text += &format!("sinks: {{ t: {{ from: {last}, parquet: {{ path: out }} }} }}\n");
    shop.write("doubled.yaml", &text);
    for command in ["check", "run", "explain"] {
        // In KiB: without a bound it takes 2 GiB and more.
        let mut limited = std::process::Command::new("bash");
        limited
            .args([
                "-c",
                "ulimit -v 6000000; exec \"$0\" \"$@\"",
                crate::support::FOREBAY,
            ])
            .args([command, "doubled.yaml"])
            .current_dir(shop.path(""));
        let call = ProgramOutput::from(limited.watched());
        assert!(
            [0, 78].contains(&call.code),
            "{command}: {} {}",
            call.code,
            call.stderr
        );
    }
}

/// Memory that the system refuses is a fault with its code, and leaves no half output.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_the_system_refuses_is_a_fault() {
    let shop = TestDirectory::new();
    shop.clicks("clicks", 200_000);
    shop.write(
        "spec.yaml",
        "version: 1\nname: p\nsources: { a: { parquet: { path: clicks } } }\n\
         steps: { f: { from: a, do: [ { dedupe: { keys: [f1] } }, { standardize: { columns: [f1] } } ] } }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let mut refused = 0;
    // From what is too little to start to what is enough, beside the program's own code.
    let code_mib = std::fs::metadata(crate::support::FOREBAY).unwrap().len() >> 20;
    for mib in [0, 25, 50, 100, 150, 200, 400, 800, 1600].map(|more| code_mib + more) {
        let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib * 1024);
        let mut limited = std::process::Command::new("bash");
        limited
            .args(["-c", &script, crate::support::FOREBAY])
            .args(["run", "spec.yaml", "--memory=4GiB", "--threads=2"])
            .current_dir(shop.path(""));
        let call = ProgramOutput::from(limited.watched());
        if call.code == 78 {
            refused += 1;
            assert!(call.stderr.contains("FB0301"), "{mib} MiB: {}", call.stderr);
            assert!(!shop.path(".out.forebay/_manifest.json").exists());
        } else {
            // The dynamic linker ends a process that has no room for its own code.
            assert!(
                [0, 127].contains(&call.code),
                "{mib} MiB: {} {}",
                call.code,
                call.stderr
            );
        }
        if call.code == 0 {
            break;
        }
    }
    assert!(refused > 0);
}

#[test]
fn check_reports_every_problem_at_once() {
    let shop = TestDirectory::new();
    shop.write(
        "bad.yaml",
        "version: 1\nname: bad\nsources:\n  a:\n    parqet: { path: x }\nsteps:\n  b:\n    from: aa\n    do:\n      - standarize: { columns: [x] }\nsinks:\n  c: { from: b, parquet: { path: out, compresion: zstd } }\n",
    );
    let call = shop.forebay(&["check", "bad.yaml"]).expect(78);
    for word in [
        "parqet",
        "standarize",
        "compresion",
        "did you mean `standardize`?",
        "bad.yaml:10:",
    ] {
        assert!(
            call.stderr.contains(word),
            "`{word}` is missing in\n{}",
            call.stderr
        );
    }
}

#[test]
fn every_ready_made_spec_is_sound() {
    let shop = TestDirectory::new();
    for entry in std::fs::read_dir(crate::support::repository().join("pipelines/specs")).unwrap() {
        let path = entry.unwrap().path();
        shop.forebay(&["check", "--offline", &path.display().to_string()])
            .expect(0);
    }
}

#[test]
fn missing_data_says_where_and_leaves_nothing() {
    let shop = TestDirectory::new();
    let spec = ready_made("demand.yaml");
    let call = shop
        .forebay(&[
            "run",
            &spec,
            "--param=history=nowhere",
            "--param=out=out",
            "--json",
        ])
        .expect(65);
    assert!(call.stderr.contains("FB0201"), "{}", call.stderr);
    assert_eq!(call.summary()["fault"]["code"], "FB0201");
    assert!(!shop.path("out").exists());
}

/// Of two values for one name, one would be dropped without a word.
#[test]
fn a_name_is_given_one_value() {
    let shop = TestDirectory::new();
    shop.demand("demand", 1000);
    shop.demand("more", 1000);
    shop.write(
        "spec.yaml",
        "version: 1\nname: once\nparams: { least: { type: integer, default: 0 } }\n\
         sources: { demand: { parquet: { path: demand } } }\n\
         steps: { f: { from: demand, do: [ { filter: \"price > ${least}\" } ] } }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let twice = ["run", "spec.yaml", "--param=least=1", "--param=least=2"];
    let refused = shop.forebay(&twice).expect(64).stderr;
    assert!(
        refused.contains("`--param` names `least` twice: `1` and `2`"),
        "{refused}"
    );
    let same = [
        "run",
        "spec.yaml",
        "--json",
        "--param=least=1",
        "--param=least=1",
    ];
    let run = shop.forebay(&same).expect(0).summary();
    let artifact = run["artifact_path"].as_str().unwrap();
    let apply = |sources: &[&str]| {
        let words = ["apply", artifact, "--output", "applied"];
        shop.forebay(&[&words[..], sources].concat())
    };
    let refused = apply(&["--source", "demand=demand", "--source", "more"])
        .expect(64)
        .stderr;
    for words in [
        "`--source` names `demand` twice",
        "one folder, file or pattern",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    assert!(!shop.path("applied").exists());
    apply(&["--source", "demand"]).expect(0);
}

#[test]
fn features_become_columns_of_the_source_again() {
    let shop = TestDirectory::new();
    shop.write(
        "sales.csv",
        "item,price,qty,weight,size,age,grade\napple,1.0,3,-0.5,1.0,0.5,20\npear,3.0,,2.0,2.0,2.0,10\n\
         plum,1.0,8,0.0,4.0,3.0,10\napple,3.0,1,7.0,8.0,9.0,30\n",
    );
    shop.write(
        "spec.yaml",
        "version: 1\nname: shop\nsources: { sales: { csv: { path: sales.csv } } }\n\
         steps: { f: { from: sales, do: [ { vocabulary: { columns: [item] } }, { ordinal: { columns: [grade] } }, \
         { standardize: { columns: [price] } }, { rename: { qty: sold } }, { power: { columns: [weight] } }, \
         { g_and_h: { columns: [size] } }, { normal_quantiles: { columns: [age] } }, \
         { clip: { columns: [price], max: 5, suffix: _clipped } } ] } }\n\
         sinks: { t: { from: f, parquet: { path: out } } }\n",
    );
    let run = shop.forebay(&["run", "spec.yaml", "--json"]);
    let run = run.expect(0).summary();
    let artifact = run["artifact_path"].as_str().unwrap();
    let invert = |more: &[&str]| {
        let words = ["apply", artifact, "--inverse", "--output", "back"];
        shop.forebay(&[&words[..], more].concat())
    };
    let refused = invert(&["--source", "out"]).expect(78).stderr;
    assert!(
        refused.contains("`price_clipped` cannot be inverted"),
        "{refused}"
    );
    invert(&["--source", "out", "--whole-history"]).expect(64);
    invert(&["--source", "out", "--source", "out"]).expect(64);
    assert!(!shop.path("back").exists());
    invert(&[
        "--source",
        "out",
        "--columns",
        "item,price,sold,weight,size,age,grade",
    ])
    .expect(0);
    let rows = shop.rows("back");
    let columns = [
        ("item", ["apple", "pear", "plum", "apple"]),
        ("price", ["1.0", "3.0", "1.0", "3.0"]),
        ("qty", ["3", "", "8", "1"]),
        ("grade", ["20", "10", "10", "30"]),
    ];
    assert_eq!(rows.num_columns(), columns.len() + 3);
    for (name, values) in columns {
        let column = rows.column_by_name(name).unwrap();
        for (row, value) in values.into_iter().enumerate() {
            let text = array_value_to_string(column, row).unwrap();
            assert_eq!(text, value, "row {row} of {name}");
        }
    }
    let computed = [
        ("weight", [-0.5, 2.0, 0.0, 7.0]),
        ("size", [1.0, 2.0, 4.0, 8.0]),
        ("age", [0.5, 2.0, 3.0, 9.0]),
    ];
    for (name, values) in computed {
        let numbers = rows[name].as_primitive::<Float64Type>();
        for (number, expected) in numbers.values().iter().zip(values) {
            assert!((number - expected).abs() < 1e-9, "{name}: {numbers:?}");
        }
    }
}

#[test]
fn new_writes_a_spec_that_runs() {
    let shop = TestDirectory::new();
    shop.demand("demand", 1000);
    shop.forebay(&["new", "demand", "--out", "spec.yaml"])
        .expect(0);
    let summary = shop
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    assert!(summary["outputs"][0]["rows"].as_u64().unwrap() > 0);
    // It never overwrites a file: the user may have edited it.
    shop.forebay(&["new", "demand", "--out", "spec.yaml"])
        .expect(64);
}

#[test]
fn new_finds_time_keys_split_and_windows_of_the_label() {
    let shop = TestDirectory::new();
    shop.demand("demand", 1000);
    shop.forebay(&["new", "demand", "--out", "spec.yaml", "--label", "qty"])
        .expect(0);
    let text = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
    let expected = [
        "#   qty         int32      ",
        "    time: date\n    keys: [store_id, item_id]\n",
        "    fit_on: train\n",
        "      - lag: { columns: [qty], by: [1d, 7d] }\n",
        "      - rolling: { columns: [qty], compute: [mean], over: [7d, 28d], gap: 1d }\n",
        "      - standardize: { columns: [price] }\n",
        "split:\n  by_time: { column: date, parts: [train, validation], ends: [",
    ];
    for part in expected {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let checked = shop.forebay(&["check", "spec.yaml"]).expect(0);
    assert!(
        checked.stdout.ends_with("no problems\n") && checked.stderr.is_empty(),
        "{checked:?}"
    );
    let summary = shop
        .forebay(&["run", "spec.yaml", "--json"])
        .expect(0)
        .summary();
    assert!(summary["outputs"][0]["rows"].as_u64().unwrap() > 0);
    let unknown = shop
        .forebay(&["new", "demand", "--label", "qyt"])
        .expect(78);
    assert!(
        unknown.stderr.contains("did you mean `qty`?"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn explain_has_three_forms() {
    let shop = TestDirectory::new();
    let data = shop.demand("data", 1000);
    let spec = ready_made("demand.yaml");
    let param = format!("--param=history={data}");
    let text = shop.forebay(&["explain", &spec, &param]).expect(0).stdout;
    assert!(
        text.contains("pass 1") && text.contains("vocabulary"),
        "{text}"
    );
    let json = shop
        .forebay(&["explain", &spec, &param, "--format", "json"])
        .expect(0)
        .stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["passes"].as_array().unwrap().len() >= 3);
    let mermaid = shop
        .forebay(&["explain", &spec, &param, "--format", "mermaid"])
        .expect(0)
        .stdout;
    assert!(mermaid.starts_with("flowchart"), "{mermaid}");
}

/// The passes of a spec over demand with one step, as `explain` tells them.
fn explained_passes(shop: &TestDirectory, step: &str) -> Vec<serde_json::Value> {
    let spec = format!(
        "version: 1\nname: test\nsources:\n  demand: {{ parquet: {{ path: data }}, time: date, keys: [store_id, item_id] \
         }}\nsteps:\n  totals:\n{step}sinks:\n  table: {{ from: totals, parquet: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &spec);
    let told = shop
        .forebay(&["explain", "spec.yaml", "--format", "json"])
        .expect(0)
        .stdout;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["passes"].as_array().unwrap().clone()
}

#[test]
fn explain_names_the_columns_that_a_query_reads() {
    let shop = TestDirectory::new();
    shop.days("data");
    let query = "SELECT store_id, SUM(qty) AS qty FROM demand WHERE price > 1 GROUP BY store_id";
    let cases = [
        (
            format!("    sql: \"{query}\"\n"),
            &["store_id", "qty", "price"][..],
        ),
        (
            "    from: demand\n    do: [{ aggregate: { by: [store_id], compute: { n: { sum: qty } } } }]\n"
                .to_owned(),
            &["store_id", "qty"],
        ),
    ];
    for (step, columns) in cases {
        let passes = explained_passes(&shop, &step);
        assert_eq!(passes[0]["work"], "gather");
        assert_eq!(passes[0]["reads"][0]["columns"], serde_json::json!(columns));
    }
}

#[test]
fn explain_says_where_aggregates_run() {
    let shop = TestDirectory::new();
    shop.days("data");
    let aggregate = |compute: &str| {
        let step = format!(
            "    from: demand\n    do: [{{ aggregate: {{ by: [store_id], compute: {{ n: {{ {compute} }} }} }} }}]\n"
        );
        let passes = explained_passes(&shop, &step);
        passes[0]["runs_on"].as_str().unwrap().to_owned()
    };
    // Files that follow each other in time are learned span by span.
    assert_eq!(aggregate("sum: qty"), "workers");
    let deduped = "    from: demand\n    do: [{ dedupe: { keys: [store_id] } }]\n";
    let passes = explained_passes(&shop, deduped);
    assert_eq!(
        passes[0]["runs_on"],
        "the coordinator, since the rows are few"
    );
}

#[test]
fn schema_doctor_and_completions_answer() {
    let shop = TestDirectory::new();
    let help = shop.forebay(&["--help"]).expect(0).stdout;
    assert!(help.contains("\nLook at results:\n  ui "), "{help}");
    let page = shop.forebay(&["man"]).expect(0).stdout;
    assert!(page.starts_with(".TH FOREBAY 1"), "{page}");
    let schema = shop.forebay(&["schema"]).expect(0).stdout;
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert!(schema["$schema"].as_str().unwrap().contains("2020-12"));
    assert!(
        shop.forebay(&["doctor"])
            .expect(0)
            .stdout
            .contains("memory")
    );
    assert!(
        shop.forebay(&["completions", "bash"])
            .expect(0)
            .stdout
            .contains("forebay")
    );
}

/// The references in the repository are those of this program; `FOREBAY_BLESS=1` rewrites them.
#[test]
fn references_are_up_to_date() {
    let shop = TestDirectory::new();
    let made = [
        ("spec.schema.json", shop.forebay(&["schema"])),
        (
            "REFERENCE.md",
            shop.forebay(&["schema", "--format", "markdown"]),
        ),
    ];
    for (name, call) in made {
        let path = crate::support::repository().join("pipelines").join(name);
        let text = call.expect(0).stdout;
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{name} is out of date: run the tests with FOREBAY_BLESS=1"
        );
    }
}

/// Days that are written in another way than ISO 8601 are neither words nor numbers.
#[test]
fn proposals_leave_formatted_days_alone() {
    let shop = TestDirectory::new();
    let rows: String = (1..=28)
        .map(|day| format!("{day:02}.01.2024,202401{day:02},{day},w{}\n", day % 3))
        .collect();
    shop.write("a.csv", &format!("tag,nummer,x,word\n{rows}"));
    let proposal = shop.forebay(&["new", "a.csv"]).expect(0).stdout;
    let notes = proposal.matches("whose format `formats` can declare");
    assert_eq!(notes.count(), 2, "{proposal}");
    for step in [
        "standardize: { columns: [x] }",
        "one_hot: { columns: [word] }",
    ] {
        assert!(proposal.contains(step), "{proposal}");
    }
}

/// A word for null in a column of numbers, and days that are written in two ways, do not make
/// categories.
#[test]
fn proposals_say_what_keeps_columns_from_being_numbers_or_days() {
    let shop = TestDirectory::new();
    let mut rows = String::from("income;age;joined;word\n");
    for row in 0..400 {
        let income = if row % 50 == 3 {
            "n/a".to_owned()
        } else {
            format!("1.2{:02},5", row % 100)
        };
        // The beginning of the file has no such word.
        let age = if row == 390 {
            "secret".to_owned()
        } else {
            (20 + row % 60).to_string()
        };
        let day = row % 28 + 1;
        let joined = if row % 3 == 0 {
            format!("2024-01-{day:02}")
        } else {
            format!("{day:02}.01.2024")
        };
        rows += &format!("{income};{age};{joined};w{}\n", row % 3);
    }
    shop.write("a.csv", &rows);
    let proposal = shop
        .forebay(&["new", "a.csv", "--out", "a.yaml"])
        .expect(0)
        .stdout;
    assert!(proposal.contains("next: forebay run"), "{proposal}");
    let proposal = std::fs::read_to_string(shop.path("a.yaml")).unwrap();
    for words in [
        "In its files, `n/a` stands for null among numbers",
        "nulls: [\"\", \"n/a\"]",
        "numbers, but for `secret`, which `nulls` can declare",
        "coalesce(try_cast(joined AS DATE), to_date(joined, '%d.%m.%Y'))",
        "standardize: { columns: [income] }",
        "one_hot: { columns: [word] }",
    ] {
        assert!(proposal.contains(words), "{words}: {proposal}");
    }
    shop.forebay(&["run", "a.yaml"]).expect(0);
}
