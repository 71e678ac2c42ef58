//! Functions in processes: programs, for which those of the system stand in, and modules of Python as `check` sees them.

use std::path::Path;

use crate::harness::*;
use arrow::array::*;
use forebay_model::{Fault, FaultCode, codes};
use serde_json::{Value, json};

fn rows() -> NamedColumns {
    let x = Float64Array::from(vec![Some(1.5), None, Some(3.0), None]);
    let s = StringArray::from(vec![Some("a"), None, Some("\u{e4}\n"), Some("")]);
    let b = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]);
    vec![
        col("x", x),
        col("n", Int64Array::from(vec![1, 2, 3, 4])),
        col("s", s),
        col("b", b),
    ]
}

/// A `command` step with some of its settings.
fn command(settings: Value) -> Value {
    let mut step = json!({"run": ["cat"], "columns": ["x"], "returns": {"x": "float64"}});
    for (name, value) in settings.as_object().unwrap() {
        step[name] = value.clone();
    }
    json!({ "command": step })
}

#[test]
fn a_program_returns_columns_in_any_batches() {
    for batch_rows in [1, 3, 1000] {
        let all = json!({
            "columns": ["x", "n", "s", "b"],
            "returns": {"x": "float64", "n": "int64", "s": "string", "b": "boolean"},
            "nullable": ["x", "s", "b"],
            "batch_rows": batch_rows,
        });
        check(command(all), rows(), rows());
    }
}

#[test]
fn whole_series_return_to_their_rows() {
    let mut table = rows();
    table.push(col("k", StringArray::from(vec!["b", "a", "b", "a"])));
    for by in [json!(["k"]), json!(["n"]), json!(["k", "n"])] {
        let all = json!({
            "columns": ["x", "s", "b"],
            "returns": {"x": "float64", "s": "string", "b": "boolean"},
            "nullable": ["x", "s", "b"],
            // A series is one batch.
            "batch_rows": 1,
            "by": by,
        });
        check(command(all), table.clone(), table.clone());
    }
}

#[test]
fn series_of_a_function_are_told_by_columns() {
    let cases = [
        (
            json!({"looks_ahead": "none"}),
            codes::BAD_VALUE,
            "whole series",
        ),
        (
            json!({"by": "series"}),
            codes::MISSING_FIELD,
            "tell series apart",
        ),
        (json!({"by": ["z"]}), codes::UNKNOWN_COLUMN, "`z`"),
        (json!({"by": ["x"]}), codes::COLUMN_CLASH, "returns `x`"),
    ];
    for (settings, code, words) in cases {
        let fault = check_fault(command(settings.clone()), rows(), code);
        assert!(fault.message().contains(words), "{settings}: {fault}");
    }
    let mut ids = Vec::new();
    for settings in [
        json!({}),
        json!({"by": ["n"]}),
        json!({"by": ["k"]}),
        json!({"by": ["n"], "looks_ahead": "none"}),
    ] {
        let mut table = rows();
        table.push(col("k", Int64Array::from(vec![1; 4])));
        let mut identities = operation_identities(command(settings), table);
        ids.push(identities.remove(0));
    }
    let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

/// What a step is refused for: its settings, the code, words of the message or the notes, the column and the rows.
type RefusedStep = (
    Value,
    FaultCode,
    &'static str,
    Option<&'static str>,
    &'static [u64],
);

#[test]
fn a_program_that_fails_is_a_fault() {
    let run = |words: &[&str]| json!({ "run": words });
    let cases: [RefusedStep; 17] = [
        (
            run(&["false"]),
            codes::FUNCTION,
            "the program `false` ended with exit status: 1 before",
            None,
            &[],
        ),
        (
            run(&["head", "-c", "30"]),
            codes::FUNCTION,
            "before it answered a batch",
            None,
            &[],
        ),
        (
            run(&["cat", "/nowhere/at/all"]),
            codes::FUNCTION,
            "No such file",
            None,
            &[],
        ),
        (
            run(&["echo", "hello"]),
            codes::FUNCTION,
            "begins with \"hell\"",
            None,
            &[],
        ),
        (
            json!({"run": ["sleep", "600"], "timeout_seconds": 1}),
            codes::FUNCTION,
            "has not answered a batch for 1 s",
            None,
            &[],
        ),
        (
            json!({}),
            codes::FUNCTION,
            "returned null as `x` in 2 of 4 rows",
            Some("x"),
            &[1, 3],
        ),
        (
            json!({}),
            codes::FUNCTION,
            "the rows are\nx: null\nx: null",
            Some("x"),
            &[1, 3],
        ),
        (
            json!({"nullable": ["x"], "returns": {"x": "float32"}}),
            codes::FUNCTION,
            "which is declared as float32",
            Some("x"),
            &[],
        ),
        (
            json!({"returns": {"y": "float64"}}),
            codes::FUNCTION,
            "a column `x` that `returns` does not declare",
            Some("x"),
            &[],
        ),
        (
            json!({"nullable": ["x"], "returns": {"x": "float64", "y": "float64"}}),
            codes::FUNCTION,
            "returned no column `y`",
            Some("y"),
            &[],
        ),
        (
            run(&[]),
            codes::BAD_VALUE,
            "`run` names no program",
            None,
            &[],
        ),
        (
            run(&["no-such-program"]),
            codes::UNKNOWN_NAME,
            "no program `no-such-program`",
            None,
            &[],
        ),
        (
            run(&["./no/such"]),
            codes::UNKNOWN_NAME,
            "no program `./no/such`",
            None,
            &[],
        ),
        (
            json!({"returns": {}}),
            codes::BAD_VALUE,
            "declares no column",
            None,
            &[],
        ),
        (
            json!({"nullable": ["z"]}),
            codes::UNKNOWN_NAME,
            "names `z`",
            None,
            &[],
        ),
        (
            json!({"batch_rows": 0}),
            codes::BAD_VALUE,
            "`batch_rows` is 0",
            None,
            &[],
        ),
        (
            json!({"timeout_seconds": 0}),
            codes::BAD_VALUE,
            "`timeout_seconds` is 0",
            None,
            &[],
        ),
    ];
    for (settings, code, words, column, rows_of_fault) in cases {
        let fault = check_fault(command(settings.clone()), rows(), code);
        let text = shown(&fault);
        assert!(text.contains(words), "{settings}: {text}");
        assert_eq!(fault.site().column.as_deref(), column, "{settings}");
        assert_eq!(fault.site().rows, rows_of_fault, "{settings}");
    }
}

fn shown(fault: &Fault) -> String {
    let mut text = fault.message().to_owned();
    for note in fault.notes() {
        text.push('\n');
        text.push_str(note);
    }
    text
}

#[test]
fn a_step_of_python_needs_its_module_and_function() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::write(
        path.join("cleaning.py"),
        "def revenue(batch):\n    return batch\n",
    )
    .unwrap();
    let cases = [
        ("cleaning", None, codes::BAD_VALUE, "names no module"),
        (
            "cleanin:revenue",
            None,
            codes::UNKNOWN_NAME,
            "there is no module `cleanin`",
        ),
        (
            "cleaning:revenu",
            None,
            codes::UNKNOWN_NAME,
            "has no function `revenu`",
        ),
        (
            "revenue",
            Some("def other(batch): pass"),
            codes::UNKNOWN_NAME,
            "`code` has no function",
        ),
        // The process is no Python: what can be seen before it starts is in order.
        (
            "cleaning:revenue",
            None,
            codes::FUNCTION,
            "the function `cleaning:revenue` ended",
        ),
        (
            "other",
            Some("def other(batch): pass"),
            codes::FUNCTION,
            "the function `other` ended",
        ),
    ];
    for (name, code, expected, words) in cases {
        let fault = check_fault(function(path, name, code), rows(), expected);
        assert!(fault.message().contains(words), "{name}: {fault}");
    }
    let fault = check_fault(
        function(path, "cleaning:revenu", None),
        rows(),
        codes::UNKNOWN_NAME,
    );
    assert!(fault.hint_text().unwrap().contains("revenue"), "{fault}");
}

/// A `python` step whose interpreter is none.
fn function(path: &Path, function: &str, code: Option<&str>) -> Value {
    json!({"python": {
        "function": function,
        "columns": ["x"],
        "returns": {"y": "float64"},
        "path": [path_text(path)],
        "interpreter": "cat",
        "code": code,
    }})
}

/// An `estimator` step whose interpreter is none, with some of its settings.
fn estimator(settings: Value) -> Value {
    let mut step = json!({
        "function": "Scale",
        "columns": ["x"],
        "returns": {"y": "float64"},
        "code": "class Scale: pass",
        "interpreter": "cat",
    });
    for (name, value) in settings.as_object().unwrap() {
        step[name] = value.clone();
    }
    json!({ "estimator": step })
}

#[test]
fn an_estimator_needs_a_function_and_columns_that_it_can_take() {
    let cases = [
        (
            json!({"interpreter": "no-such-program"}),
            codes::UNKNOWN_NAME,
            "no program `no-such-program`",
        ),
        (
            json!({"function": "Scaler"}),
            codes::UNKNOWN_NAME,
            "`code` has no function `Scaler`",
        ),
        (
            json!({"columns": ["s"]}),
            codes::COLUMN_TYPE,
            "not a number or boolean",
        ),
        (
            json!({"label": "x"}),
            codes::BAD_VALUE,
            "tells everything of itself",
        ),
        (json!({"label": "z"}), codes::UNKNOWN_COLUMN, "`z`"),
        (
            json!({"classes": [1, 2]}),
            codes::BAD_VALUE,
            "there is none",
        ),
        (
            json!({"method": "_private"}),
            codes::BAD_VALUE,
            "no public method",
        ),
        (json!({"fit_rows": 0}), codes::BAD_VALUE, "`fit_rows` is 0"),
        (
            json!({"batch_rows": 0}),
            codes::BAD_VALUE,
            "`batch_rows` is 0",
        ),
        (
            json!({"returns": {}}),
            codes::BAD_VALUE,
            "declares no column",
        ),
        // The process is no Python: what can be seen before it starts is in order.
        (
            json!({}),
            codes::FUNCTION,
            "the estimator `Scale` ended with exit status: 1 before it answered a batch",
        ),
        (
            json!({"columns": ["s", "b"], "frames": "arrow", "label": "n"}),
            codes::FUNCTION,
            "the estimator `Scale` ended",
        ),
    ];
    for (settings, code, words) in cases {
        let fault = check_fault(estimator(settings.clone()), rows(), code);
        assert!(fault.message().contains(words), "{settings}: {fault}");
    }
    let fault = check_fault(estimator(json!({})), rows(), codes::FUNCTION);
    let text = shown(&fault);
    assert!(text.contains("x: 1.5\nx: null\nx: 3.0"), "{text}");
    assert!(text.contains("it had learned from 0 rows before"), "{text}");
}

/// The id of the only operation of a step.
fn identity(step: Value) -> String {
    operation_identities(step, rows()).remove(0)
}

#[test]
fn the_id_follows_the_code() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    let script = directory.path().join("pass.sh");
    write("pass.sh", "exec cat\n");
    write(
        "cleaning.py",
        "import helper, json\nfrom nowhere import a\ndef f(batch): pass\n",
    );
    write("helper.py", "from package.part import b\n");
    std::fs::create_dir(directory.path().join("package")).unwrap();
    write("package/__init__.py", "");
    write("package/part.py", "b = 1\n");
    write("unrelated.py", "");
    let program = command(json!({ "run": ["sh", path_text(&script)] }));
    let python = function(directory.path(), "cleaning:f", None);
    let fitted = json!({ "estimator": python["python"] });
    let ids = || {
        let steps = [&program, &python, &fitted];
        steps.map(|step| identity(step.clone()))
    };
    let mut last = ids();
    assert_eq!(last, ids());
    // The file, and the steps whose ids change with it.
    let changes = [
        ("unrelated.py", [false, false, false]),
        ("pass.sh", [true, false, false]),
        ("cleaning.py", [false, true, true]),
        ("helper.py", [false, true, true]),
        ("package/__init__.py", [false, true, true]),
        ("package/part.py", [false, true, true]),
    ];
    for (file, changed) in changes {
        let text = std::fs::read_to_string(directory.path().join(file)).unwrap();
        write(file, &format!("{text}# changed\n"));
        let now = ids();
        let differs = [0, 1, 2].map(|step: usize| last[step] != now[step]);
        assert_eq!(differs, changed, "{file}");
        last = now;
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
