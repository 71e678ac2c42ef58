//! The exact place of a fault that was found after the spec was read: from the path and the wrong words to a line
//! and column.

use forebay_model::{Fault, FaultSite, SpecLocation};

use super::node::{self, TextPosition, YamlData, YamlNode};

/// Maximum number of lines of one value that are searched for the wrong words.
const VALUE_LINES_MAX: usize = 1000;

/// Adds the positions of the wrong words in the spec to faults. `text` is the content of `file`.
pub fn locate(fault: Fault, file: &str, text: &str) -> Fault {
    let Ok(root) = node::load(text, file, &mut Vec::new()) else {
        return fault;
    };
    let lines: Vec<&str> = text.lines().collect();
    fault.relocate(&|at, site| {
        if at.file == file {
            location_of(&root, &lines, at, site)
        } else {
            at.clone()
        }
    })
}

fn location_of(
    root: &YamlNode,
    lines: &[&str],
    at: &SpecLocation,
    site: &FaultSite,
) -> SpecLocation {
    // Most faults know their place: it is not looked for in the spec.
    let is_placed = at.line != 1 || at.column != 1;
    if is_placed && site.fragment.is_none() && site.column.is_none() {
        return at.clone();
    }
    let Some((key, node)) = node_at(root, &at.path) else {
        return at.clone();
    };
    let whole = SpecLocation {
        line: key.line,
        column: key.column,
        width: key.width,
        ..at.clone()
    };
    let (words, skip) = match (&site.fragment, &site.column) {
        (Some(fragment), _) => (fragment.text.as_str(), fragment.skip),
        (None, Some(column)) => (column.as_str(), 0),
        (None, None) => return whole,
    };
    let location = find_value(node, &at.path, words)
        .or_else(|| find_words(node, lines, &at.path, words, skip));
    match location.or_else(|| find_key(node, &at.path, words)) {
        Some((mark, path)) => SpecLocation {
            file: at.file.clone(),
            line: mark.line,
            column: mark.column,
            width: mark.width,
            path,
        },
        None => whole,
    }
}

/// The value at a path, and the place of its key.
fn node_at<'n>(root: &'n YamlNode, path: &str) -> Option<(TextPosition, &'n YamlNode)> {
    let mut node = root;
    let mut mark = root.mark;
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        (mark, node) = match part
            .strip_suffix(']')
            .and_then(|index| index.parse::<usize>().ok())
        {
            Some(index) => node.items().get(index).map(|item| (item.mark, item))?,
            None => node.entry(part).map(|(key, value)| (key.mark, value))?,
        };
    }
    Some((mark, node))
}

type Found = Option<(TextPosition, String)>;

fn children(node: &YamlNode) -> Vec<(String, &YamlNode)> {
    let items = node
        .items()
        .iter()
        .enumerate()
        .map(|(index, item)| (format!("[{index}]"), item));
    items
        .chain(
            node.entries()
                .iter()
                .map(|(key, value)| (format!(".{}", key.text), value)),
        )
        .collect()
}

/// The first value that is these words.
fn find_value(node: &YamlNode, path: &str, words: &str) -> Found {
    if node.text() == Some(words) {
        return Some((node.mark, path.to_owned()));
    }
    children(node)
        .into_iter()
        .find_map(|(part, child)| find_value(child, &format!("{path}{part}"), words))
}

/// The words inside the first value that holds them.
fn find_words(node: &YamlNode, lines: &[&str], path: &str, words: &str, skip: usize) -> Found {
    if let YamlData::Text(text) = &node.data {
        // Parameters are in place of `${name}` by now; the words may stand in the text all the same.
        let holds = text.contains("${") || occurrence(text, words, skip).is_some();
        return holds
            .then(|| find_in_lines(node.mark, lines, words, skip))
            .flatten()
            .map(|mark| (mark, path.to_owned()));
    }
    children(node)
        .into_iter()
        .find_map(|(part, child)| find_words(child, lines, &format!("{path}{part}"), words, skip))
}

/// The first key that is these words.
fn find_key(node: &YamlNode, path: &str, words: &str) -> Found {
    if let Some((key, _)) = node.entry(words) {
        return Some((key.mark, format!("{path}.{words}")));
    }
    children(node)
        .into_iter()
        .find_map(|(part, child)| find_key(child, &format!("{path}{part}"), words))
}

/// The place of the words in the lines of a value that begins at `start`.
fn find_in_lines(
    start: TextPosition,
    lines: &[&str],
    words: &str,
    mut skip: usize,
) -> Option<TextPosition> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let key_indent = lines.get(start.line - 1).map_or(0, |line| indent(line));
    // Text in a block has lines of its own; other text goes on in lines that are indented further than its key.
    let outer = if key_indent == start.column - 1 {
        key_indent.saturating_sub(1)
    } else {
        key_indent
    };
    for (index, line) in lines
        .iter()
        .enumerate()
        .skip(start.line - 1)
        .take(VALUE_LINES_MAX)
    {
        let first = index + 1 == start.line;
        if !first && !line.trim().is_empty() && indent(line) <= outer {
            return None;
        }
        let from = if first {
            line.char_indices()
                .nth(start.column - 1)
                .map_or(line.len(), |(at, _)| at)
        } else {
            0
        };
        let mut count = 0;
        while let Some(at) = occurrence(&line[from..], words, count) {
            if skip == 0 {
                let column = line[..from + at].chars().count() + 1;
                return Some(TextPosition {
                    line: index + 1,
                    column,
                    width: words.chars().count().max(1),
                });
            }
            (skip, count) = (skip - 1, count + 1);
        }
    }
    None
}

/// Offset of the `skip + 1`-th occurrence of the words in a text as words of their own.
fn occurrence(text: &str, words: &str, skip: usize) -> Option<usize> {
    let first = words.chars().next()?;
    let last = words.chars().next_back()?;
    let mut skipped = 0;
    for (start, _) in text.match_indices(words) {
        let previous = text[..start].chars().next_back();
        let next = text[start + words.len()..].chars().next();
        let is_inside = [(first, previous), (last, next)]
            .iter()
            .any(|(inner, outer)| is_word_letter(*inner) && outer.is_some_and(is_word_letter));
        if is_inside {
            continue;
        }
        if skipped == skip {
            return Some(start);
        }
        skipped += 1;
    }
    None
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}
