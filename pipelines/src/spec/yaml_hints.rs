//! Broken YAML in the words of its author: what is wrong in the line, and what to write.

/// What to say of text that the YAML parser refuses.
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
            let what = if word.starts_with('*') {
                "an alias of YAML"
            } else {
                "a map of YAML"
            };
            return YamlProblem::new(
                format!("`{word}` is read as {what}"),
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
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => {}
            None if letter == '#' && before == ' ' => return None,
            None if matches!(letter, '"' | '\'') && !before.is_alphanumeric() => {
                quote = Some(letter)
            }
            None if letter == '*' && matches!(before, ' ' | '[' | '{' | ',') => {
                let rest = &line[at..];
                let end = rest.find([',', ' ', ']', '}']).unwrap_or(rest.len());
                return (end > 1).then(|| (line[..at].chars().count() + 1, rest[..end].to_owned()));
            }
            None if line[at..].starts_with("${") => {
                // The whole value, from the space before it.
                let start = line[..at]
                    .rfind([' ', '[', '{', ','])
                    .map_or(0, |before| before + 1);
                let rest = &line[start..];
                let close = rest.find('}').map_or(rest.len(), |close| close + 1);
                let end = rest[close..]
                    .find([',', ' ', ']', '}'])
                    .map_or(rest.len(), |end| close + end);
                return Some((line[..start].chars().count() + 1, rest[..end].to_owned()));
            }
            None => {}
        }
        before = letter;
    }
    None
}

fn quotes(text: &str, line: usize, reason: &str) -> YamlProblem {
    let column = |letter: char| {
        text.chars()
            .position(|found| found == letter)
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
    let own = indent(text);
    let is_item = text.trim_start().starts_with("- ");
    let before = || {
        let earlier = lines[..line - 1].iter().enumerate().rev();
        earlier.filter(|(_, text)| !text.trim().is_empty() && !text.trim_start().starts_with('#'))
    };
    let (last, previous) = before().next()?;
    let place = |problem: YamlProblem| Some(problem.at(line, own + 1));
    if is_item {
        // The items above, as far as nothing is further out than a list could be.
        let items = before().take_while(|(_, text)| {
            text.trim_start().starts_with("- ") || indent(text) > own.min(2)
        });
        let other = items
            .map(|(_, text)| text)
            .find(|text| text.trim_start().starts_with("- ") && indent(text) != own)?;
        return place(YamlProblem::new(
            format!(
                "this item is indented by {own} spaces, and the items above it by {}",
                indent(other)
            ),
            format!("indent it by {} spaces", indent(other)),
        ));
    }
    let has_value = previous
        .split_once(": ")
        .is_some_and(|(_, value)| !value.trim().is_empty());
    if own > indent(previous) && has_value && !previous.trim_start().starts_with("- ") {
        return place(YamlProblem::new(
            format!(
                "this line is indented further than line {}, which has its value already",
                last + 1
            ),
            "give fields of one map the same indentation",
        ));
    }
    let fits = before().any(|(_, text)| {
        indent(text) == own || (text.trim_start().starts_with("- ") && indent(text) + 2 == own)
    });
    (!fits).then(|| {
        place(YamlProblem::new(
            "the indentation of this line fits no line above it",
            "align it with the fields of its map",
        ))
    })?
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
