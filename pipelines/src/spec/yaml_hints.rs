//! Hints for broken YAML: the error in the line, and the remedy.

/// Message about text that the YAML parser refuses.
pub(super) struct YamlProblem {
    pub message: String,
    pub hint: Option<String>,
    /// The line from 1, and the column from 1, if another place is to blame than where the parser stopped.
    pub place: Option<(usize, usize)>,
}

impl YamlProblem {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        YamlProblem {
            message: message.into(),
            hint: Some(hint.into()),
            place: None,
        }
    }

    fn at(mut self, line: usize, column: usize) -> Self {
        self.place = Some((line, column));
        self
    }
}

/// Explains why the parser stopped in a line (from 1), with `reason` and inside an open bracket, if any.
pub(super) fn explain(
    lines: &[&str],
    line: usize,
    reason: &str,
    bracket: Option<(char, usize)>,
) -> YamlProblem {
    let text = lines.get(line - 1).copied().unwrap_or_default();
    let trimmed = text.trim_start_matches(' ');
    if trimmed.starts_with('\t') {
        let column = text.len() - trimmed.len() + 1;
        return YamlProblem::new(
            "a line begins with a tab",
            "indent with spaces, not with tabs",
        )
        .at(line, column);
    }
    // What is wrong in the line itself comes before what the parser makes of it.
    let near = |index: usize| lines.get(index).copied().unwrap_or_default();
    for (index, text) in [(line, text), (line - 1, near(line.wrapping_sub(2)))] {
        if let Some((column, word)) = unquoted(text) {
            let meaning = if word.starts_with('*') {
                "an alias of YAML"
            } else {
                "a map of YAML"
            };
            return YamlProblem::new(
                format!("`{word}` is read as {meaning}"),
                format!("quote it: \"{word}\""),
            )
            .at(index, column);
        }
    }
    if reason.contains("quoted scalar") || reason.contains("trailing content") {
        return quotes(text, line, reason);
    }
    if let Some(problem) = indentation(lines, line) {
        return problem;
    }
    if let Some(problem) = plain_colon(text, line).or_else(|| missing_space(lines, line)) {
        return problem;
    }
    let hint = bracket.map(|(bracket, line)| format!("is the `{bracket}` in line {line} closed?"));
    YamlProblem {
        message: format!(
            "the YAML cannot be parsed: {}",
            reason.trim_end_matches('.')
        ),
        hint,
        place: None,
    }
}

/// A `*pattern` or `${parameter}` that stands without quotes, and its column.
fn unquoted(line: &str) -> Option<(usize, String)> {
    let mut quote = None;
    let mut previous = ' ';
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => {}
            None if letter == '#' && previous == ' ' => return None,
            None if matches!(letter, '"' | '\'') && !previous.is_alphanumeric() => {
                quote = Some(letter)
            }
            None if letter == '*' && matches!(previous, ' ' | '[' | '{' | ',') => {
                let word = &line[at..];
                let end = word.find([',', ' ', ']', '}']).unwrap_or(word.len());
                return (end > 1).then(|| (line[..at].chars().count() + 1, word[..end].to_owned()));
            }
            None if line[at..].starts_with("${") => {
                // The whole value, from the space before it.
                let start = line[..at]
                    .rfind([' ', '[', '{', ','])
                    .map_or(0, |index| index + 1);
                let word = &line[start..];
                let close = word.find('}').map_or(word.len(), |close| close + 1);
                let end = word[close..]
                    .find([',', ' ', ']', '}'])
                    .map_or(word.len(), |end| close + end);
                return Some((line[..start].chars().count() + 1, word[..end].to_owned()));
            }
            None => {}
        }
        previous = letter;
    }
    None
}

fn quotes(text: &str, line: usize, reason: &str) -> YamlProblem {
    let column = |letter: char| {
        text.chars()
            .position(|other| other == letter)
            .map_or(1, |at| at + 1)
    };
    if reason.contains("trailing content") {
        let (message, hint) = match text
            .find(['\'', '"'])
            .and_then(|at| text[at..].chars().next())
        {
            Some('\'') => (
                "text follows the closing `'`",
                "write '' for a quote inside '...', or use \"...\" around it",
            ),
            _ => (
                "text follows the closing `\"`",
                "write \\\" for a quote inside \"...\", or use '...' around it",
            ),
        };
        return YamlProblem::new(message, hint);
    }
    let letter = if text.contains('"') { '"' } else { '\'' };
    YamlProblem::new(
        format!("the `{letter}` that begins here is not closed"),
        format!("end the text with `{letter}`"),
    )
    .at(line, column(letter))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A line whose indentation fits no line before it.
fn indentation(lines: &[&str], line: usize) -> Option<YamlProblem> {
    let text = lines.get(line - 1)?;
    let line_indent = indent(text);
    // Lines with content, the nearest first.
    let earlier = lines[..line - 1].iter().enumerate().rev();
    let earlier = earlier.filter(|(_, text)| !is_blank_or_comment(text));
    let earlier: Vec<(usize, &str)> = earlier.map(|(index, text)| (index, *text)).collect();
    let (last, previous) = *earlier.first()?;
    let problem = if is_item(text) {
        let other_indent = indent_of_items_above(&earlier, line_indent)?;
        YamlProblem::new(
            format!(
                "this item is indented by {line_indent} spaces, and the items above it by \
                 {other_indent}"
            ),
            format!("indent it by {other_indent} spaces"),
        )
    } else if line_indent > indent(previous) && has_value(previous) && !is_item(previous) {
        YamlProblem::new(
            format!(
                "this line is indented further than line {}, which has its value already",
                last + 1
            ),
            "give fields of one map the same indentation",
        )
    } else if earlier.iter().any(|(_, text)| begins_at(text, line_indent)) {
        return None;
    } else {
        YamlProblem::new(
            "the indentation of this line fits no line above it",
            "align it with the fields of its map",
        )
    };
    Some(problem.at(line, line_indent + 1))
}

fn is_item(line: &str) -> bool {
    line.trim_start().starts_with("- ")
}

fn is_blank_or_comment(line: &str) -> bool {
    let content = line.trim();
    content.is_empty() || content.starts_with('#')
}

/// True for a line with a key and a value.
fn has_value(line: &str) -> bool {
    line.split_once(": ")
        .is_some_and(|(_, value)| !value.trim().is_empty())
}

/// True if a map that this line begins or continues has its keys at this indentation.
fn begins_at(line: &str, key_indent: usize) -> bool {
    indent(line) == key_indent || (is_item(line) && indent(line) + 2 == key_indent)
}

/// The other indentation of the items above an item, as far as no line is further out than a list could be.
fn indent_of_items_above(earlier: &[(usize, &str)], item_indent: usize) -> Option<usize> {
    for (_, text) in earlier {
        if !is_item(text) {
            if indent(text) <= item_indent.min(2) {
                return None;
            }
            continue;
        }
        if indent(text) != item_indent {
            return Some(indent(text));
        }
    }
    None
}

/// A plain value with `: ` inside.
fn plain_colon(text: &str, line: usize) -> Option<YamlProblem> {
    let start = text.len() - text.trim_start_matches([' ', '-']).len();
    let (key, value) = text[start..].split_once(": ")?;
    let value = value.trim();
    let is_plain = !value.starts_with(['"', '\'', '[', '{', '|', '>']);
    if !is_plain
        || !value.contains(": ")
        || !key
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_')
    {
        return None;
    }
    let column = text[..start].chars().count() + key.chars().count() + 3;
    let quoted = if value.contains('"') {
        format!("'{}'", value.replace('\'', "''"))
    } else {
        format!("\"{value}\"")
    };
    Some(
        YamlProblem::new(
            "a `: ` inside this text ends it",
            format!("quote it: {quoted}"),
        )
        .at(line, column),
    )
}

/// `name:sales` in this line or the one before.
fn missing_space(lines: &[&str], line: usize) -> Option<YamlProblem> {
    [line, line - 1]
        .into_iter()
        .filter(|line| *line > 0)
        .find_map(|line| {
            let text = lines.get(line - 1)?.trim_end();
            let trimmed = text.trim_start();
            if text.contains(": ") || text.ends_with(':') {
                return None;
            }
            let column = text.chars().count() - trimmed.chars().count() + 1;
            let problem = match trimmed.split_once(':') {
                Some((key, value)) => YamlProblem::new(
                    "the space after `:` is missing",
                    format!("write `{key}: {value}`"),
                ),
                None => YamlProblem::new(
                    "a `:` is missing in this line",
                    format!("write `{trimmed}: ...`"),
                ),
            };
            Some(problem.at(line, column))
        })
}
