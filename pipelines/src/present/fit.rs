//! Text that fits a narrow terminal.

use std::io::IsTerminal;

/// Columns of text that is laid out for no terminal in particular.
pub(crate) const TERMINAL_COLUMNS: usize = 80;

/// Maximum offset of the second cell of a line for continuations to be indented below it.
const HANG_MAX: usize = 30;

/// Width of the terminal of standard output, or the value of the variable `COLUMNS`. Output to a
/// file or a pipe has no width.
pub(crate) fn output_columns() -> Option<usize> {
    let columns: usize = match configured_columns() {
        Some(columns) => columns,
        None if std::io::stdout().is_terminal() => {
            let (columns, _) = terminal_size::terminal_size()?;
            columns.0.into()
        }
        None => return None,
    };
    // Nothing can be laid out in less.
    Some(columns.max(40))
}

fn configured_columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok()?;
    columns.trim().parse().ok()
}

/// The text with lines of at most `columns` columns: longer ones continue below their second cell,
/// or indented. A longer word stays whole.
pub(crate) fn fit(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if visible(line.trim_end_matches('\n')) <= columns {
            out.push_str(line)
        } else {
            wrap(line, columns, &mut out)
        }
    }
    out
}

fn wrap(line: &str, columns: usize, out: &mut String) {
    let (line, end) = match line.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (line, ""),
    };
    let hang = " ".repeat(hang(line));
    let mut width = 0;
    let mut is_first = true;
    // Words with the spaces before them: several of them align cells.
    let mut unwritten = line;
    while !unwritten.is_empty() {
        let spaces = unwritten.len() - unwritten.trim_start_matches(' ').len();
        let word = unwritten[spaces..]
            .find(' ')
            .map_or(unwritten.len(), |length| spaces + length);
        let gap = &unwritten[..spaces];
        let text = &unwritten[spaces..word];
        if !is_first && width + spaces + visible(text) > columns {
            out.push('\n');
            out.push_str(&hang);
            width = hang.len();
        } else {
            out.push_str(gap);
            width += spaces;
        }
        out.push_str(text);
        width += visible(text);
        // Cells that are empty at the end of a line leave nothing to go on with.
        (is_first, unwritten) = (is_first && text.is_empty(), &unwritten[word..]);
    }
    out.push_str(end);
}

/// Column at which a wrapped line continues.
fn hang(line: &str) -> usize {
    let plain = anstream::adapter::strip_str(line).to_string();
    let indent = plain.len() - plain.trim_start().len();
    let after_first = plain[indent..].find("  ").map(|at| indent + at);
    let second = after_first.map(|at| at + plain[at..].len() - plain[at..].trim_start().len());
    second
        .filter(|column| *column <= HANG_MAX)
        .unwrap_or(indent + 2)
}

/// Columns that a text takes, without its colours.
pub(super) fn visible(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .to_string()
        .chars()
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_second_cell() {
        let words = "word ".repeat(20);
        let cases = [
            ("short\n", "short\n".to_owned()),
            (
                &format!("  why     {words}\n"),
                format!(
                    "  why     {}\n          {}\n",
                    "word ".repeat(14).trim_end(),
                    "word ".repeat(6)
                ),
            ),
            (
                &format!("a {words}x"),
                format!(
                    "a {}\n  {}x",
                    "word ".repeat(15).trim_end(),
                    "word ".repeat(5)
                ),
            ),
            (
                &format!("at {}", "p".repeat(90)),
                format!("at\n  {}", "p".repeat(90)),
            ),
            ("", String::new()),
        ];
        for (text, expected) in cases {
            let fitted = fit(text, Some(80));
            assert_eq!(fitted.trim_end(), expected.trim_end(), "{text}");
            assert_eq!(fit(text, None), text);
        }
    }
}
