//! Functions of one's own in whole jobs: programs and functions of Python, their ids, their faults and their end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{TestDirectory, has_pyarrow};

/// Longest wait for what a test waits for.
const SECONDS_MAX: Duration = Duration::from_secs(60);

fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write("a.csv", "k,x,s\n1,1.5,a\n2,2.5,b\n3,3.5,c\n");
    shop
}

/// Writes a spec with this step.
fn spec(shop: &TestDirectory, step: &str) {
    let text = format!(
        "version: 1\nname: test\nsources:\n  a: {{ csv: {{ path: a.csv }} }}\nsteps:\n  f:\n    from: a\n    do:\n      \
         - {step}\nsinks:\n  t: {{ from: f, csv: {{ path: out }} }}\n"
    );
    shop.write("spec.yaml", &text);
}

/// The text of the only file of the output.
fn output(shop: &TestDirectory) -> String {
    let mut files = std::fs::read_dir(shop.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"));
    std::fs::read_to_string(files.next().unwrap()).unwrap()
}

#[test]
fn a_program_runs_again_when_its_file_changes() {
    let shop = shop();
    shop.write("pass.sh", "exec cat\n");
    spec(
        &shop,
        "command: { run: [sh, pass.sh], columns: [x], returns: { x: float64 } }",
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(output(&shop), "k,x,s\n1,1.5,a\n2,2.5,b\n3,3.5,c\n");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.write("pass.sh", "echo it is broken >&2\nexit 3\n");
    let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
    for words in [
        "FB0219",
        "the program `sh` ended with exit status: 3",
        "it is broken",
        "x: 1.5",
        "spec.yaml:9",
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
    // The output before is whole.
    assert_eq!(output(&shop), "k,x,s\n1,1.5,a\n2,2.5,b\n3,3.5,c\n");
}

#[test]
fn a_model_alone_is_exported_without_the_programs_of_its_steps() {
    let shop = shop();
    std::os::unix::fs::symlink("/bin/cat", shop.path("pass")).unwrap();
    shop.write(
        "spec.yaml",
        "version: 1\nname: test\nsources: { a: { csv: { path: a.csv } } }\n\
         steps:\n  f:\n    from: a\n    do: [{ command: { run: [./pass], columns: [x], returns: { x: float64 } } }]\n\
         sinks:\n  m: { from: f, train: { path: m, model: gbdt, label: k, dense: [x], rounds: 2, min_leaf_rows: 1 } }\n",
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    std::fs::remove_file(shop.path("pass")).unwrap();
    shop.forebay(&["export", "m", "alone.onnx", "--without-steps"])
        .expect(0);
    assert!(shop.path("alone.onnx").exists());
}

#[test]
fn a_null_is_found_in_its_file() {
    let shop = shop();
    shop.write("a.csv", "k,x,s\n1,1.5,a\n2,2.5,b\n3,,c\n");
    spec(
        &shop,
        "command: { run: [cat], columns: [x, s], returns: { x: float64, s: string } }",
    );
    let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
    for words in [
        "a.csv",
        "column `x`",
        "row 2",
        "x: null, s: c",
        "`nullable`",
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
}

#[test]
fn check_finds_what_is_missing() {
    let shop = shop();
    shop.write("cleaning.py", "def revenue(batch):\n    return batch\n");
    let returns = "columns: [x], returns: { y: float64 }";
    let cases = [
        (
            format!("command: {{ run: [nothing-here], {returns} }}"),
            "nothing-here",
        ),
        (
            format!("python: {{ function: 'cleanin:revenue', {returns} }}"),
            "no module `cleanin`",
        ),
        (
            format!("python: {{ function: 'cleaning:revenues', {returns} }}"),
            "`revenue`",
        ),
        (
            format!("python: {{ function: 'cleaning:revenue', interpreter: py9, {returns} }}"),
            "py9",
        ),
    ];
    for (step, words) in cases {
        spec(&shop, &step);
        let checked = shop.forebay(&["check", "spec.yaml"]).expect(78);
        assert!(
            checked.stderr.contains("FB0105"),
            "{step}: {}",
            checked.stderr
        );
        assert!(checked.stderr.contains(words), "{step}: {}", checked.stderr);
    }
}

/// True if a process with these words runs.
fn runs(words: &str) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    for process in processes.flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).replace('\0', " ").trim() == words {
            return true;
        }
    }
    false
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SECONDS_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(mut child: Child) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(begin.elapsed() < SECONDS_MAX, "the run does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_ends_a_run_whose_program_does_not_answer() {
    let shop = shop();
    // No other process sleeps for just so long.
    let seconds = format!("{}.5", 100_000 + std::process::id());
    let words = format!("sleep {seconds}");
    spec(
        &shop,
        &format!(
            "command: {{ run: [sleep, '{seconds}'], columns: [x], returns: {{ x: float64 }} }}"
        ),
    );
    let run = shop
        .command(&["run", "spec.yaml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the program does not start", || runs(&words));
    let sent = Command::new("kill")
        .args(["-TERM", &run.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(end(run), Some(75));
    wait_until("the program goes on", || !runs(&words));
}

#[test]
fn a_function_of_python_computes_columns() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    shop.write("rates.py", "RATE = 2\n");
    let module = "import pyarrow as pa\nimport rates\n\ndef doubled(batch):\n    print('a line of its own')\n    \
                  values = [value * rates.RATE for value in batch['x'].to_pylist()]\n    \
                  return {'y': pa.array(values), 'n': [1] * len(values)}\n";
    shop.write("cleaning.py", module);
    let step =
        "python: { function: 'cleaning:doubled', columns: [x], returns: { y: float32, n: int32 } }";
    spec(&shop, step);
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    let expected = "k,x,s,y,n\n1,1.5,a,3.0,1\n2,2.5,b,5.0,1\n3,3.5,c,7.0,1\n";
    assert_eq!(output(&shop), expected);
    let local = [
        "run",
        "spec.yaml",
        "--local-workers=2",
        "--memory=512MiB",
        "--state=other",
    ];
    shop.remove_output("out");
    shop.forebay(&local).expect(0);
    assert_eq!(output(&shop), expected);
    // A module that the module imports.
    shop.write("rates.py", "RATE = 4\n");
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    assert_eq!(output(&shop).lines().nth(1), Some("1,1.5,a,6.0,1"));
    assert!(!shop.path("__pycache__").exists());
}

#[test]
fn check_finds_functions_that_depend_on_batches() {
    let shop = shop();
    spec(
        &shop,
        "command: { run: [cat], columns: [x], returns: { x: float64 } }",
    );
    let checked = shop
        .forebay(&["check", "spec.yaml", "--functions"])
        .expect(0);
    let words = "f.command: 3 rows have the same values in batches of any size\n";
    assert_eq!(checked.stdout, words);
    if !has_pyarrow() {
        return;
    }
    let module = "import pyarrow.compute as pc\n\ndef centred(batch):\n    \
                  return pc.subtract(batch['x'], pc.mean(batch['x']))\n\n\
                  def doubled(batch):\n    return pc.multiply(batch['x'], 2.0)\n";
    shop.write("cleaning.py", module);
    let step = |function: &str| {
        format!(
            "python: {{ function: 'cleaning:{function}', columns: [x], returns: {{ y: float64 }} }}"
        )
    };
    spec(&shop, &step("doubled"));
    let checked = ["check", "spec.yaml", "--functions", "--json"];
    let summary = shop.forebay(&checked).expect(0).summary();
    assert_eq!(summary["functions"][0]["step"], "f.python");
    assert_eq!(summary["functions"][0]["rows"], 3);
    spec(&shop, &step("centred"));
    let refused = shop
        .forebay(&["check", "spec.yaml", "--functions"])
        .expect(65);
    for words in [
        "FB0219",
        "`f.python` is not row-wise: in batches of 1 row, `y` of row 0 is 0.0, else -1.0",
        "spec.yaml:9",
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
    // The first rows alone are computed.
    let few = ["check", "spec.yaml", "--functions", "--sample-rows=1"];
    shop.forebay(&few).expect(0);
    assert!(!shop.path("out").exists());
}

#[test]
fn results_that_are_no_columns_are_refused() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let module = "import pyarrow as pa\n\ndef letters(batch):\n    return 'a' * batch.num_rows\n\n\
                  def any_order(batch):\n    return {'y': set(batch['s'].to_pylist())}\n\n\
                  def fractions(batch):\n    return pa.array([0.5] * batch.num_rows)\n\n\
                  def twice(batch):\n    columns = [batch['s'], batch['s']]\n    \
                  return pa.Table.from_arrays(columns, names=['y', 'y'])\n";
    shop.write("cleaning.py", module);
    let cases = [
        ("letters", "its column `y` is a str, not an array"),
        ("any_order", "its column `y` is a set, not an array"),
        ("fractions", "its column `y` is float64, not string"),
        ("twice", "it returned `y` twice"),
    ];
    for (function, words) in cases {
        let step = format!(
            "python: {{ function: 'cleaning:{function}', columns: [s], returns: {{ y: string }} }}"
        );
        spec(&shop, &step);
        let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
    let previewed = shop.forebay(&["preview", "spec.yaml"]).expect(65);
    assert!(
        previewed.stderr.contains("(write rows)"),
        "{}",
        previewed.stderr
    );
}

#[test]
fn values_of_lists_that_a_type_does_not_hold_are_refused() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let module = "def fractions(batch):\n    return [1.5] * batch.num_rows\n\n\
                  def large(batch):\n    return [1e300] * batch.num_rows\n\n\
                  def flags(batch):\n    return [True] * batch.num_rows\n\n\
                  def days(batch):\n    return [19783] * batch.num_rows\n\n\
                  def whole(batch):\n    return (2.0 for _ in range(batch.num_rows))\n";
    shop.write("cleaning.py", module);
    let cases = [
        ("fractions", "int32", "its column `y` is not int32"),
        ("large", "float32", "its column `y` is not float32"),
        ("flags", "float64", "its column `y` is boolean, not float64"),
        ("days", "date", "its column `y` is int64, not date"),
    ];
    for (function, data_type, words) in cases {
        let step = format!(
            "python: {{ function: 'cleaning:{function}', columns: [s], returns: {{ y: {data_type} }} }}"
        );
        spec(&shop, &step);
        let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
    spec(
        &shop,
        "python: { function: 'cleaning:whole', columns: [s], returns: { y: int32 } }",
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
}

#[test]
fn an_exception_names_its_row() {
    if !has_pyarrow() {
        return;
    }
    let shop = shop();
    let module = "def checked(batch):\n    for value in batch['s'].to_pylist():\n        if value == 'c':\n            \
                  raise ValueError('no c, please')\n    return batch['x']\n";
    shop.write("cleaning.py", module);
    spec(
        &shop,
        "python: { function: 'cleaning:checked', columns: [x, s], returns: { y: float64 } }",
    );
    let refused = shop.forebay(&["run", "spec.yaml"]).expect(65);
    for words in [
        "the function `cleaning:checked` failed: ValueError: no c, please",
        "row 2",
        "x: 3.5, s: c",
        "cleaning.py\", line 4, in checked",
        "spec.yaml:9",
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
    }
}
