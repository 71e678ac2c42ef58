//! The rules, and the places that break them.

use tree_sitter::Node;

use super::source_file::{SourceFile, descendants};

/// The rules by name, as in `tidy.toml`.
pub const NAMES: [&str; 6] = [
    "bool_matches",
    "doc_beginnings",
    "long_lines",
    "named_closures",
    "tuple_lets",
    "word_bindings",
];

/// Longest line that reads without scrolling beside another file.
pub const LINE_LENGTH_MAX: usize = 100;
/// Closures with a name that one function may hold: a third one asks to be a function.
const NAMED_CLOSURES_MAX: usize = 2;

/// Adverbs, participles and pronouns that say neither type nor role of a value.
const VAGUE_WORDS: [&str; 38] = [
    "own", "known", "made", "told", "found", "left", "beside", "together", "given", "along",
    "away", "later", "place", "places", "before", "after", "said", "gone", "come", "one", "all",
    "both", "rest", "more", "wanted", "held", "kept", "shown", "asked", "taken", "there", "who",
    "nobody", "somebody", "whoever", "what", "whatever", "anew",
];

/// Beginnings of a doc comment that is no noun phrase and no imperative.
const DOC_BEGINNINGS: [&str; 6] = ["What", "Whether", "Where", "How", "Who", "The same"];

/// A place that breaks a rule.
pub struct Breach {
    pub rule: &'static str,
    /// Counted from 1
    pub line: usize,
    /// The first line of the place
    pub text: String,
}

/// All breaches in product code. Tests, benchmarks and examples are free of the rules.
pub fn breaches(file: &SourceFile) -> Vec<Breach> {
    let mut breaches = Vec::new();
    if file.is_test_file() {
        return breaches;
    }
    for node in file.nodes() {
        if file.is_test_code(node) {
            continue;
        }
        if let Some(rule) = broken_rule(file, node) {
            breaches.push(Breach {
                rule,
                line: node.start_position().row + 1,
                text: first_line(file.text_of(node)),
            });
        }
    }
    for (index, line) in file.text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if !is_comment && line.chars().count() > LINE_LENGTH_MAX {
            breaches.push(Breach {
                rule: "long_lines",
                line: index + 1,
                text: line.trim().to_owned(),
            });
        }
    }
    breaches
}

fn broken_rule(file: &SourceFile, node: Node<'_>) -> Option<&'static str> {
    match node.kind() {
        "let_declaration" if is_tuple_let(node) => Some("tuple_lets"),
        "match_expression" if is_bool_match(file, node) => Some("bool_matches"),
        "function_item" if named_closures(node) > NAMED_CLOSURES_MAX => Some("named_closures"),
        "identifier" if is_vague_binding(file, node) => Some("word_bindings"),
        "line_comment" if is_vague_doc(file, node) => Some("doc_beginnings"),
        _ => None,
    }
}

/// `let (a, b) = (x, y)`: two statements in one line.
pub fn is_tuple_let(node: Node<'_>) -> bool {
    let pattern = node.child_by_field_name("pattern");
    let value = node.child_by_field_name("value");
    let is_tuple_pattern = pattern.is_some_and(|pattern| pattern.kind() == "tuple_pattern");
    let is_tuple = value.is_some_and(|value| value.kind() == "tuple_expression");
    is_tuple_pattern && is_tuple
}

/// `match condition { true => .., false => .. }`: an `if` in disguise.
pub fn is_bool_match(file: &SourceFile, node: Node<'_>) -> bool {
    let Some(body) = node.child_by_field_name("body") else {
        return false;
    };
    let inner = file.text_of(body).trim_start_matches('{').trim_start();
    inner.starts_with("true =>") || inner.starts_with("false =>")
}

fn named_closures(function: Node<'_>) -> usize {
    let mut count = 0;
    for node in descendants(function) {
        if node.kind() != "let_declaration" {
            continue;
        }
        let value = node.child_by_field_name("value");
        if value.is_some_and(|value| value.kind() == "closure_expression") {
            count += 1;
        }
    }
    count
}

fn is_vague_binding(file: &SourceFile, identifier: Node<'_>) -> bool {
    VAGUE_WORDS.contains(&file.text_of(identifier)) && is_binding(identifier)
}

/// A name that a `let`, a parameter or a closure introduces.
pub fn is_binding(identifier: Node<'_>) -> bool {
    let mut child = identifier;
    while let Some(parent) = child.parent() {
        match parent.kind() {
            "let_declaration" | "parameter" => {
                let pattern = parent.child_by_field_name("pattern");
                return pattern.is_some_and(|pattern| pattern == child);
            }
            "closure_parameters" => return true,
            kind if kind.ends_with("_pattern") => child = parent,
            _ => return false,
        }
    }
    false
}

fn is_vague_doc(file: &SourceFile, comment: Node<'_>) -> bool {
    let Some(text) = doc_text(file, comment) else {
        return false;
    };
    begins_doc(file, comment)
        && DOC_BEGINNINGS
            .iter()
            .any(|beginning| begins_with_word(text, beginning))
}

/// The line is the first one of its doc comment, which is shown without the others in lists.
pub fn begins_doc(file: &SourceFile, comment: Node<'_>) -> bool {
    let previous = comment.prev_sibling();
    previous.is_none_or(|sibling| doc_text(file, sibling).is_none())
}

/// Text of a doc comment's line.
pub fn doc_text<'a>(file: &'a SourceFile, node: Node<'_>) -> Option<&'a str> {
    if node.kind() != "line_comment" {
        return None;
    }
    let comment = file.text_of(node);
    let text = comment
        .strip_prefix("///")
        .or_else(|| comment.strip_prefix("//!"))?;
    Some(text.trim())
}

fn begins_with_word(text: &str, word: &str) -> bool {
    let Some(rest) = text.strip_prefix(word) else {
        return false;
    };
    !rest.starts_with(|letter: char| letter.is_alphanumeric())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_rules(text: &str) -> Vec<&'static str> {
        let file = SourceFile::parse("a/src/part.rs", text.to_owned()).unwrap();
        breaches(&file).iter().map(|breach| breach.rule).collect()
    }

    #[test]
    fn each_rule_finds_its_breach_and_nothing_else() {
        let cases: [(&str, &[&str]); 12] = [
            ("fn f() { let (a, b) = (1, 2); }", &["tuple_lets"]),
            ("fn f() { let (a, b) = pair(); }", &[]),
            (
                "fn f(x: bool) { match x { true => 1, false => 2 } }",
                &["bool_matches"],
            ),
            ("fn f(x: bool) { if x { 1 } else { 2 } }", &[]),
            (
                "fn f() { let a = || 1; let b = || 2; let c = || 3; }",
                &["named_closures"],
            ),
            ("fn f() { let a = || 1; let b = || 2; }", &[]),
            ("fn f(own: u8) {}", &["word_bindings"]),
            (
                "fn f() { let Some(found) = g() else { return }; }",
                &["word_bindings"],
            ),
            ("fn f() { own.found(known); }", &[]),
            ("/// What it is.\nfn f() {}", &["doc_beginnings"]),
            ("/// A pass.\n/// What it reads is kept.\nfn f() {}", &[]),
            ("/// Whatever.\nfn f() {}", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(broken_rules(text), expected, "{text}");
        }
    }

    #[test]
    fn tests_are_free_of_the_rules() {
        let text = "#[cfg(test)]\nmod tests { fn f(own: u8) { let (a, b) = (1, 2); } }";
        assert!(broken_rules(text).is_empty());
    }
}
