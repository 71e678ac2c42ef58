//! Typical mistakes in specs and on the command line, and what the program answers: exit code, standard output and
//! standard error.
//!
//! Each file in `mistakes/` holds cases. A case changes lines of `mistakes/data/spec.yaml` (`- ` the lines as they
//! are, `+ ` those in their place), calls the program, and has its answer below. `FOREBAY_BLESS=1` rewrites the
//! answers.

use std::path::PathBuf;

use crate::support::{TestDirectory, repository};

/// One mistake.
struct MistakeCase {
    name: String,
    /// Lines of the spec, and what comes in their place.
    edits: Vec<(String, String)>,
    args: String,
    /// The case as it stands in its file, without the answer.
    text: String,
    answer: String,
}

fn folder() -> PathBuf {
    repository().join("tests/mistakes")
}

fn parse_cases(text: &str) -> Vec<MistakeCase> {
    let cases = text.split("=== ").skip(1).map(|block| {
        let (head, answer) = block
            .split_once("\nexit ")
            .unwrap_or((block.trim_end(), ""));
        let mut lines = head.lines();
        let name = lines.next().unwrap().to_owned();
        let mut edits: Vec<(String, String)> = Vec::new();
        let mut args = String::new();
        for line in lines {
            match line.split_at_checked(2) {
                Some(("- ", old)) => match edits.last_mut().filter(|(_, new)| new.is_empty()) {
                    Some((text, _)) => text.extend(["\n", old]),
                    None => edits.push((old.to_owned(), String::new())),
                },
                Some(("+ ", new)) => {
                    let (_, text) = edits.last_mut().unwrap();
                    text.extend([new, "\n"]);
                }
                Some(("$ ", call)) => args = call.to_owned(),
                _ => panic!("`{line}` in case `{name}`"),
            }
        }
        MistakeCase {
            name,
            edits,
            args,
            text: format!("=== {head}\n"),
            answer: format!("exit {answer}"),
        }
    });
    cases.collect()
}

fn answer(case: &MistakeCase) -> String {
    let shop = TestDirectory::new();
    for entry in std::fs::read_dir(folder().join("data")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(
            &path,
            shop.path(path.file_name().unwrap().to_str().unwrap()),
        )
        .unwrap();
    }
    shop.write("empty.yaml", "");
    shop.write("nothing.csv", "");
    let mut spec = format!(
        "\n{}",
        std::fs::read_to_string(shop.path("spec.yaml")).unwrap()
    );
    for (old, new) in &case.edits {
        let old = format!("\n{old}\n");
        assert_eq!(
            spec.matches(&old).count(),
            1,
            "case `{}` changes lines that are not there: {old}",
            case.name
        );
        spec = spec.replace(&old, &format!("\n{new}"));
    }
    shop.write("spec.yaml", &spec[1..]);
    let args: Vec<&str> = case.args.split_whitespace().collect();
    let call = shop.forebay(&args);
    let mut text = format!("exit {}\n", call.code);
    for (stream, said) in [("stdout", &call.stdout), ("stderr", &call.stderr)] {
        if !said.is_empty() {
            text += &format!("{stream}:\n{said}");
        }
    }
    let directory = shop.at("");
    let text = text
        .replace(&directory, "[DIR]/")
        .replace(directory.trim_end_matches('/'), "[DIR]");
    without_times(&text) + "\n"
}

/// Events without the time at which they came.
fn without_times(text: &str) -> String {
    let mut parts = text.split("\"time\":\"");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        text + "\"time\":\"..." + part.trim_start_matches(|letter| letter != '"')
    })
}

fn check_file(name: &str) {
    let path = folder().join(name).with_extension("txt");
    let cases = parse_cases(&std::fs::read_to_string(&path).unwrap());
    assert!(!cases.is_empty());
    let answers: Vec<String> = cases.iter().map(answer).collect();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        let texts = cases
            .iter()
            .zip(&answers)
            .map(|(case, answer)| format!("{}{answer}", case.text));
        std::fs::write(&path, texts.collect::<String>()).unwrap();
        return;
    }
    let wrong = cases
        .iter()
        .zip(&answers)
        .filter(|(case, answer)| case.answer.trim_end() != answer.trim_end());
    let wrong: Vec<String> = wrong
        .map(|(case, answer)| {
            format!(
                "=== {}\nexpected:\n{}\nfound:\n{answer}",
                case.name,
                case.answer.trim_end()
            )
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{}\nrun the tests with FOREBAY_BLESS=1 to accept this",
        wrong.join("\n")
    );
}

#[test]
fn mistakes_in_yaml() {
    check_file("yaml");
}

#[test]
fn mistakes_in_names() {
    check_file("names");
}

#[test]
fn mistakes_in_columns() {
    check_file("columns");
}

#[test]
fn several_mistakes_at_once() {
    check_file("several");
}

#[test]
fn more_mistakes() {
    check_file("more");
}

#[test]
fn mistakes_in_sql() {
    check_file("sql");
}

#[test]
fn mistakes_in_values() {
    check_file("values");
}

#[test]
fn mistakes_in_data() {
    check_file("data");
}

#[test]
fn leaks_of_labels() {
    check_file("leaks");
}

#[test]
fn mistakes_on_the_command_line() {
    check_file("command_line");
}
