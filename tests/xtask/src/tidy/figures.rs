//! Figures of product code.
//!
//! Tokens, closures and code lines include the test modules of a file, so that they stand beside those of other
//! projects that were counted in this way; everything else leaves tests out.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{self, is_binding};
use super::source_file::SourceFile;

#[derive(Default)]
pub struct Figures {
    pub files: usize,
    /// Lines of product code, comments and blank lines included
    pub lines: usize,
    /// Lines of tests: whole files and test modules
    pub test_lines: usize,
    /// Lines that are neither blank nor a comment, test modules included
    pub code_lines: usize,
    /// Leaves of the syntax tree, comments and test modules included
    pub tokens: usize,
    /// Closures, test modules included
    pub closures: usize,
    pub bindings: usize,
    pub doc_lines: usize,
    /// Lines of comments that are no documentation
    pub comment_lines: usize,
    /// First lines of doc comments
    pub docs: usize,
    /// Lines of each function
    pub function_lines: Vec<usize>,
    /// Breaches by rule
    pub breaches: BTreeMap<&'static str, usize>,
}

impl Figures {
    pub fn add(&mut self, file: &SourceFile) {
        let line_count = file.text.lines().count();
        if file.is_test_file() {
            self.test_lines += line_count;
            return;
        }
        let inline_test_lines = file.inline_test_lines();
        self.files += 1;
        self.test_lines += inline_test_lines;
        self.lines += line_count.saturating_sub(inline_test_lines);
        self.add_nodes(file);
        for breach in rules::breaches(file) {
            *self.breaches.entry(breach.rule).or_default() += 1;
        }
    }

    fn add_nodes(&mut self, file: &SourceFile) {
        let mut comment_rows = BTreeSet::new();
        for node in file.nodes() {
            if node.child_count() == 0 {
                self.tokens += 1;
            }
            if node.kind() == "closure_expression" {
                self.closures += 1;
            }
            if file.is_test_code(node) {
                continue;
            }
            match node.kind() {
                "line_comment" if rules::doc_text(file, node).is_some() => {
                    self.doc_lines += 1;
                    if rules::begins_doc(file, node) {
                        self.docs += 1;
                    }
                }
                "line_comment" | "block_comment" => {
                    comment_rows.extend(node.start_position().row..=node.end_position().row);
                }
                "identifier" if is_binding(node) => self.bindings += 1,
                "function_item" => {
                    let lines = node.end_position().row - node.start_position().row + 1;
                    self.function_lines.push(lines);
                }
                _ => {}
            }
        }
        self.comment_lines += comment_rows.len();
        self.code_lines += file.text.lines().filter(|line| is_code(line)).count();
    }

    pub fn merge(&mut self, other: &Figures) {
        self.files += other.files;
        self.lines += other.lines;
        self.test_lines += other.test_lines;
        self.code_lines += other.code_lines;
        self.tokens += other.tokens;
        self.closures += other.closures;
        self.bindings += other.bindings;
        self.doc_lines += other.doc_lines;
        self.comment_lines += other.comment_lines;
        self.docs += other.docs;
        self.function_lines.extend(&other.function_lines);
        for (rule, count) in &other.breaches {
            *self.breaches.entry(rule).or_default() += count;
        }
    }

    pub fn breaches_of(&self, rule: &str) -> usize {
        self.breaches.get(rule).copied().unwrap_or(0)
    }

    /// Length that `percent` of the functions do not exceed.
    pub fn function_percentile(&self, percent: usize) -> usize {
        let mut lines = self.function_lines.clone();
        lines.sort_unstable();
        let index = lines.len() * percent / 100;
        let last = lines.len().saturating_sub(1);
        lines.get(index.min(last)).copied().unwrap_or(0)
    }
}

fn is_code(line: &str) -> bool {
    let text = line.trim();
    !text.is_empty() && !text.starts_with("//")
}

/// `count` in a thousand of `total`, or 0 where there is none.
pub fn per_thousand(count: usize, total: usize) -> f64 {
    if total == 0 {
        return 0.0;
    }
    count as f64 * 1000.0 / total as f64
}
