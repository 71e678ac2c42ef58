//! A parsed file, and which of its lines are tests.

use std::ops::Range;

use tree_sitter::{Node, Parser, Tree};

use crate::workspace::{self, Outcome};

pub struct SourceFile {
    /// Relative to the root of the checkout
    pub path: String,
    pub text: String,
    tree: Tree,
    /// Bytes of modules and functions that only tests compile
    test_regions: Vec<Range<usize>>,
}

impl SourceFile {
    pub fn read(path: &str) -> Outcome<SourceFile> {
        let text = workspace::read(&workspace::root().join(path))?;
        SourceFile::parse(path, text)
    }

    pub fn parse(path: &str, text: String) -> Outcome<SourceFile> {
        let mut parser = Parser::new();
        parser
            .set_language(&tree_sitter_rust::LANGUAGE.into())
            .map_err(|error| format!("the grammar does not fit the parser: {error}"))?;
        let tree = parser
            .parse(&text, None)
            .ok_or_else(|| format!("cannot parse {path}"))?;
        let test_regions = test_regions(&tree, &text);
        Ok(SourceFile {
            path: path.to_owned(),
            text,
            tree,
            test_regions,
        })
    }

    /// All nodes in the order of the text.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        descendants(self.tree.root_node())
    }

    pub fn text_of(&self, node: Node<'_>) -> &str {
        &self.text[node.byte_range()]
    }

    pub fn is_test_code(&self, node: Node<'_>) -> bool {
        let start = node.start_byte();
        self.test_regions
            .iter()
            .any(|region| region.contains(&start))
    }

    /// Lines within test modules of this file.
    pub fn inline_test_lines(&self) -> usize {
        let mut lines = 0;
        for region in &self.test_regions {
            lines += self.text[region.clone()].matches('\n').count() + 1;
        }
        lines
    }

    /// A file that only tests, benchmarks or examples compile.
    pub fn is_test_file(&self) -> bool {
        const TEST_FOLDERS: [&str; 8] = [
            "test",
            "tests",
            "benches",
            "fuzz",
            "examples",
            "testing",
            "fixtures",
            "simulation",
        ];
        let mut components = self.path.split('/').rev();
        let name = components.next().unwrap_or_default();
        let stem = name.trim_end_matches(".rs");
        let in_test_folder = components.any(|folder| TEST_FOLDERS.contains(&folder));
        in_test_folder
            || TEST_FOLDERS.contains(&stem)
            || stem.starts_with("test_")
            || stem.ends_with("_test")
            || stem.ends_with("_tests")
            || stem.ends_with("laws")
    }
}

/// The node and everything below it, in the order of the text.
pub fn descendants(root: Node<'_>) -> Vec<Node<'_>> {
    let mut nodes = Vec::new();
    let mut cursor = root.walk();
    loop {
        nodes.push(cursor.node());
        if cursor.goto_first_child() {
            continue;
        }
        // Up until there is a sibling: the walk ends above the root.
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return nodes;
            }
        }
    }
}

fn test_regions(tree: &Tree, text: &str) -> Vec<Range<usize>> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    for node in descendants(tree.root_node()) {
        if !matches!(node.kind(), "mod_item" | "function_item") {
            continue;
        }
        let within_region = regions
            .iter()
            .any(|region| region.contains(&node.start_byte()));
        if !within_region && has_test_attribute(node, text) {
            regions.push(node.byte_range());
        }
    }
    regions
}

fn has_test_attribute(node: Node<'_>, text: &str) -> bool {
    let mut sibling = node.prev_sibling();
    while let Some(attribute) = sibling {
        match attribute.kind() {
            "attribute_item" => {
                let attribute_text = &text[attribute.byte_range()];
                let names_test = attribute_text.contains("test");
                let is_condition = attribute_text.starts_with("#[cfg(");
                let marks_test = attribute_text.ends_with("test]");
                if names_test && (is_condition || marks_test) {
                    return true;
                }
            }
            "line_comment" | "block_comment" => {}
            _ => return false,
        }
        sibling = attribute.prev_sibling();
    }
    false
}
