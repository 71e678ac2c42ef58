//! Faults at the terminal: problem, place, reason, remedy. They can be understood without colour.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

use anstyle::{AnsiColor, Style};
use forebay_model::{
    Fault, FaultSite, SPEC_BYTES_MAX, SpecLocation, hide_secrets, without_debug_text,
};

use super::printable::{printable, printable_lines};
use super::units;
use crate::spec;

/// Faults that are shown in full; more are counted only.
const FAULTS_SHOWN_MAX: usize = 50;

/// Causes below one fault that are shown.
const CAUSES_SHOWN_MAX: usize = 8;

/// Characters of a cause that are shown: foreign errors can hold whole plans.
const CAUSE_CHARS_MAX: usize = 400;

/// Columns of a spec's line that are shown.
const LINE_CHARS_MAX: usize = 120;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const PLACE: Style = AnsiColor::Blue.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const STRONG: Style = Style::new().bold();

/// Severity of a fault, as its first word.
struct FaultHead {
    word: &'static str,
    style: Style,
}

const ERROR_HEAD: FaultHead = FaultHead {
    word: "error",
    style: ERROR,
};
const WARNING_HEAD: FaultHead = FaultHead {
    word: "warning",
    style: AnsiColor::Yellow.on_default().bold(),
};

/// The text of a spec, for showing the lines that faults point to.
#[derive(Debug, Clone, Copy)]
pub struct SpecText<'a> {
    /// Name of the spec in faults.
    pub file: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// Points a fault, and those reported with it, at the words of the spec that they are about, where the spec can be
/// read. Faults of one spec come in the order of its text.
pub(crate) fn located(fault: Fault) -> Fault {
    let Some((file, text)) = spec_of(&fault) else {
        return fault;
    };
    let mut faults = spec::locate(fault, &file, &text).into_each();
    if faults.iter().all(|fault| fault.site().spec.is_some()) {
        faults.sort_by_key(|fault| fault.site().spec.as_ref().map(|at| (at.line, at.column)));
    }
    Fault::combine(faults).unwrap_or_else(|| Fault::internal("a spec without faults was refused"))
}

/// Writes a fault, and those found together with it, to standard error, with the lines of the
/// spec that it points to where the spec can be read.
pub fn report(fault: &Fault) {
    let spec = spec_of(fault);
    let text = render(
        fault,
        spec.as_ref().map(|(file, text)| SpecText { file, text }),
    );
    // Nothing can be said about a terminal that cannot be written to.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Writes warnings to standard error.
pub(crate) fn report_warnings(warnings: &[Fault]) {
    let spec = warnings.iter().find_map(spec_of);
    let spec = spec.as_ref().map(|(file, text)| SpecText { file, text });
    let mut text = String::new();
    for warning in warnings {
        render_one(&mut text, warning, spec, &WARNING_HEAD);
    }
    // Nothing can be said about a terminal that cannot be written to.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// The file of the spec that a fault, or one reported with it, points to, and its text; `None` where it cannot be read.
pub fn spec_of(fault: &Fault) -> Option<(String, String)> {
    let mut sites = std::iter::once(fault)
        .chain(fault.others())
        .map(Fault::site);
    let file = sites.find_map(|site| Some(site.spec.as_ref()?.file.clone()))?;
    let opened = std::fs::File::open(&file).ok()?;
    let text = std::io::read_to_string(opened.take(SPEC_BYTES_MAX as u64)).ok()?;
    Some((file, text))
}

/// The terminal form with colours; `anstream` or [`plain`] take them out.
pub fn render(fault: &Fault, spec: Option<SpecText<'_>>) -> String {
    let mut out = String::new();
    let count = 1 + fault.others().len();
    for (index, fault) in std::iter::once(fault)
        .chain(fault.others())
        .take(FAULTS_SHOWN_MAX)
        .enumerate()
    {
        if index > 0 {
            out.push('\n');
        }
        render_one(&mut out, fault, spec, &ERROR_HEAD);
    }
    if count > FAULTS_SHOWN_MAX {
        let _ = write!(
            out,
            "\n{} more are not shown\n",
            units::grouped((count - FAULTS_SHOWN_MAX) as u64)
        );
    }
    if count > 1 {
        let _ = write!(
            out,
            "\n{ERROR}{} problems{ERROR:#} were found\n",
            units::grouped(count as u64)
        );
    }
    out
}

/// The rendered fault without colours.
pub fn plain(fault: &Fault, spec: Option<SpecText<'_>>) -> String {
    anstream::adapter::strip_str(&render(fault, spec)).to_string()
}

fn render_one(out: &mut String, fault: &Fault, spec: Option<SpecText<'_>>, head: &FaultHead) {
    let FaultHead { word, style } = head;
    let message = printable(fault.message());
    let _ = writeln!(
        out,
        "{style}{word}[{}]{style:#}{STRONG}: {message}{STRONG:#}",
        fault.code().name
    );
    site_lines(out, fault.site(), spec);
    for cause in causes(fault) {
        let _ = writeln!(out, "because: {cause}");
    }
    if let Some(hint) = fault.hint_text() {
        let _ = writeln!(out, "{HINT}hint{HINT:#}: {}", printable(hint));
    }
    for note in fault.notes() {
        // A traceback keeps its lines, moved so that none of them can be taken for one of the fault.
        let note = printable_lines(note).replace('\n', "\n   | ");
        let _ = writeln!(out, "{STRONG}note{STRONG:#}: {note}");
    }
    for related in fault.related_places() {
        let _ = writeln!(
            out,
            "{STRONG}note{STRONG:#}: {}",
            printable(&related.message)
        );
        spec_site(out, &related.at, spec);
    }
}

/// Lines with the data, the place in the spec, the step, the pass and the worker of a fault.
fn site_lines(out: &mut String, site: &FaultSite, spec: Option<SpecText<'_>>) {
    match (&site.spec, data_site(site)) {
        (Some(at), Some(data)) => {
            let _ = writeln!(out, "  {PLACE}-->{PLACE:#} {data}");
            let _ = write!(
                out,
                "   {PLACE}|{PLACE:#} {}:{}:{}",
                printable(&at.file),
                at.line,
                at.column
            );
            match line_of(spec, at) {
                Some(line) => {
                    let line = hide_secrets(line.trim());
                    let (line, _) = window(&printable(&line), 1, 1);
                    let _ = writeln!(out, "  {line}");
                }
                None => out.push('\n'),
            }
        }
        (None, Some(data)) => {
            let _ = writeln!(out, "  {PLACE}-->{PLACE:#} {data}");
        }
        (Some(at), None) => spec_site(out, at, spec),
        (None, None) => {}
    }
    // A data site has its own line for these; a place in the spec already names the step.
    if site.spec.is_none()
        && let Some(step) = &site.step
    {
        // The condition of `preview --where` is an option, and no step of the spec.
        let kind = if step.starts_with("--") { "" } else { "step " };
        let mut text = format!("in {kind}{}", printable(step));
        if let Some(field) = &site.field {
            text += &format!(", field `{}`", printable(field));
        }
        let _ = writeln!(out, "   {PLACE}|{PLACE:#} {text}");
    }
    if let Some(pass) = &site.pass {
        let _ = writeln!(out, "   {PLACE}|{PLACE:#} in pass {}", printable(pass));
    }
    if let Some(worker) = &site.worker {
        let _ = writeln!(out, "   {PLACE}|{PLACE:#} on worker {}", printable(worker));
    }
}

/// `s3://lake/part-07.parquet, row group 4, column age, rows 118, 902`.
fn data_site(site: &FaultSite) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if let Some(file) = &site.file {
        parts.push(printable(file));
    }
    if let Some(row_group) = site.row_group {
        parts.push(format!("row group {row_group}"));
    }
    // Without a file or rows, a column is a word of the message.
    let is_about_rows = !parts.is_empty() || !site.rows.is_empty();
    if is_about_rows && let Some(column) = &site.column {
        parts.push(format!("column `{}`", printable(column)));
    }
    match site.rows.as_slice() {
        [] => {}
        [row] => parts.push(format!("row {row}")),
        rows => {
            let rows: Vec<String> = rows.iter().map(u64::to_string).collect();
            parts.push(format!("rows {}", rows.join(", ")));
        }
    }
    if parts.is_empty() {
        return None;
    }
    Some(parts.join(", "))
}

fn line_of<'a>(spec: Option<SpecText<'a>>, at: &SpecLocation) -> Option<&'a str> {
    let spec = spec.filter(|spec| spec.file == at.file)?;
    spec.text.lines().nth(at.line.checked_sub(1)?)
}

/// The place with its line and a caret below it.
fn spec_site(out: &mut String, at: &SpecLocation, spec: Option<SpecText<'_>>) {
    let gutter = at.line.to_string().len().max(2);
    let _ = write!(
        out,
        "{:gutter$}{PLACE}-->{PLACE:#} {}:{}:{}",
        "",
        printable(&at.file),
        at.line,
        at.column
    );
    let Some(line) = line_of(spec, at) else {
        // Without the text, the path has to give the position.
        let path = if at.path.is_empty() {
            String::new()
        } else {
            format!("  {}", printable(&at.path))
        };
        let _ = writeln!(out, "{path}");
        return;
    };
    let prefix: String = line.chars().take(at.column.saturating_sub(1)).collect();
    let hidden = hide_secrets(line.trim_end());
    let (line, column) = if hidden == line.trim_end() {
        window(&printable(&hidden), at.column, at.width)
    } else {
        // What is hidden moves what stands behind it.
        let column = hide_secrets(&prefix).chars().count() + 1;
        window(&printable(&hidden), column, at.width)
    };
    let room = line.chars().count().saturating_sub(column - 1).max(1);
    let carets = "^".repeat(at.width.clamp(1, room));
    let _ = writeln!(out, "\n{:gutter$} {PLACE}|{PLACE:#}", "");
    let _ = writeln!(out, "{PLACE}{:>gutter$} |{PLACE:#} {line}", at.line);
    let _ = writeln!(
        out,
        "{:gutter$} {PLACE}|{PLACE:#} {:indent$}{ERROR}{carets}{ERROR:#}",
        "",
        "",
        indent = column - 1
    );
}

/// The part of a long line around a column, and the column in it.
fn window(line: &str, column: usize, width: usize) -> (String, usize) {
    let length = line.chars().count();
    if length <= LINE_CHARS_MAX {
        return (line.to_owned(), column.clamp(1, length + 1));
    }
    let first_char =
        (column - 1 + width.min(LINE_CHARS_MAX / 2)).saturating_sub(LINE_CHARS_MAX * 3 / 4);
    let start = first_char.min(length - LINE_CHARS_MAX);
    let mut text: String = line.chars().skip(start).take(LINE_CHARS_MAX).collect();
    let mut column = column - start;
    if start > 0 {
        text.insert_str(0, "... ");
        column += 4;
    }
    if start + LINE_CHARS_MAX < length {
        text.push_str(" ...");
    }
    (text, column)
}

/// The first line of an error, without values as programs print them for debugging.
fn cause_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    without_debug_text(line.trim())
}

/// The errors that led to a fault, each in one line, without texts that the ones before them hold.
pub(crate) fn causes(fault: &Fault) -> Vec<String> {
    let mut shown_text = fault.message().to_owned();
    let mut causes = Vec::new();
    let mut next = fault.source();
    while let Some(error) = next {
        next = error.source();
        let text = match error.downcast_ref::<Fault>() {
            Some(fault) => fault.message().to_owned(),
            None => error.to_string(),
        };
        let line: String = cause_line(&text).chars().take(CAUSE_CHARS_MAX).collect();
        if line.is_empty() || shown_text.contains(&line) {
            continue;
        }
        shown_text = line.clone();
        causes.push(printable(&line));
        if causes.len() == CAUSES_SHOWN_MAX {
            break;
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_model::codes;

    fn at(line: usize, column: usize, width: usize) -> SpecLocation {
        SpecLocation {
            file: "specs/users.yaml".into(),
            line,
            column,
            width,
            path: "steps.a.do[0].standardize".into(),
        }
    }

    fn check(fault: Fault, spec: Option<&str>, expect: &str) {
        let spec = spec.map(|text| SpecText {
            file: "specs/users.yaml",
            text,
        });
        let text = plain(&fault, spec);
        assert!(text == expect.trim_start_matches('\n'), "got:\n{text}");
    }

    #[test]
    fn a_fault_in_the_data() {
        let fault = Fault::new(codes::NOT_FINITE, "`age` has 3 values that are not finite")
            .file("s3://lake/users/part-07.parquet")
            .row_group(4)
            .column("age")
            .rows([118, 902, 903])
            .step("a.standardize")
            .pass("1")
            .at(Some(&at(2, 3, 11)))
            .hint("set `non_finite: reject`, or `clip` before this step")
            .note("passes 1-2 are saved; run the same command again to continue");
        check(
            fault,
            Some("do:\n- standardize: { columns: [age] }\n"),
            "
error[FB0205]: `age` has 3 values that are not finite
  --> s3://lake/users/part-07.parquet, row group 4, column `age`, rows 118, 902, 903
   | specs/users.yaml:2:3  - standardize: { columns: [age] }
   | in pass 1
hint: set `non_finite: reject`, or `clip` before this step
note: passes 1-2 are saved; run the same command again to continue
",
        );
    }

    #[test]
    fn notes_keep_their_lines() {
        let fault = Fault::new(codes::FUNCTION, "the program `x` ended with exit status: 1")
            .note("its last messages are\nTraceback:\n  \u{1b}[31mline 1");
        check(
            fault,
            None,
            "
error[FB0219]: the program `x` ended with exit status: 1
note: its last messages are
   | Traceback:
   |   \\u{1b}[31mline 1
",
        );
    }

    #[test]
    fn causes_that_say_something_new() {
        let deepest = std::io::Error::other("connection reset");
        let inner = Fault::new(codes::STORAGE, "a part could not be fetched").cause(deepest);
        let fault = Fault::new(codes::STORAGE, "`x.parquet` cannot be read")
            .file("x.parquet")
            .cause(inner);
        check(
            fault,
            None,
            "
error[FB0401]: `x.parquet` cannot be read
  --> x.parquet
because: a part could not be fetched
because: connection reset
",
        );
    }

    #[test]
    fn causes_hold_no_values_of_foreign_types() {
        let foreign = "cannot plan Call(Call { name: sum, args: [] })\nbacktrace";
        check(
            Fault::new(codes::EXPRESSION, "`x` cannot be run").cause(foreign),
            None,
            "
error[FB0110]: `x` cannot be run
because: cannot plan
",
        );
    }

    #[test]
    fn without_the_text_the_path_tells() {
        check(
            Fault::new(codes::BAD_VALUE, "`x` is wrong").at(Some(&at(14, 7, 3))),
            None,
            "
error[FB0104]: `x` is wrong
  --> specs/users.yaml:14:7  steps.a.do[0].standardize
",
        );
    }

    #[test]
    fn hostile_text_cannot_reach_the_terminal() {
        check(
            Fault::new(codes::BAD_VALUE, "`\u{1b}[31mred\r\n` is wrong"),
            None,
            "error[FB0104]: `\\u{1b}[31mred\\r ` is wrong\n",
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let line = format!("x: {} wrong {}", "a".repeat(300), "b".repeat(300));
        let text = plain(
            &Fault::new(codes::BAD_VALUE, "wrong").at(Some(&at(1, 305, 5))),
            Some(SpecText {
                file: "specs/users.yaml",
                text: &line,
            }),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].chars().count() < 140, "{text}");
        assert_eq!(lines[3].find("wrong"), lines[4].find("^^^^^"));
    }
}
