//! Circles of imports between the files of one package.
//!
//! An import is a path that begins with `crate`, `self` or `super`. A re-export is followed to the file that
//! defines the name, and is itself no import.

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use tree_sitter::Node;

use super::source_file::SourceFile;

/// Number of files in the largest circle of imports; 0 where there is none.
pub fn largest(files: &[SourceFile]) -> usize {
    ImportGraph::of(files).largest_circle().len()
}

/// Imports within the largest circle, as `importer -> imported`, in the order of the files.
pub fn imports_of_largest(files: &[SourceFile]) -> Vec<String> {
    let graph = ImportGraph::of(files);
    let circle = graph.largest_circle();
    let mut imports = Vec::new();
    for edge in graph.graph.edge_references() {
        if circle.contains(&edge.source()) && circle.contains(&edge.target()) {
            let importer = &graph.graph[edge.source()];
            let imported = &graph.graph[edge.target()];
            imports.push(format!("{importer} -> {imported}"));
        }
    }
    imports.sort();
    imports
}

/// Files of a package by their paths, with an edge from each to those that it imports from.
struct ImportGraph {
    graph: DiGraph<String, ()>,
}

impl ImportGraph {
    fn of(files: &[SourceFile]) -> ImportGraph {
        let modules = Modules::of(files);
        let mut graph = DiGraph::new();
        let mut nodes: Vec<NodeIndex> = Vec::new();
        for file in &modules.files {
            nodes.push(graph.add_node(file.path.clone()));
        }
        for (importer, file) in modules.files.iter().enumerate() {
            for path in &file.imports {
                let Some(imported) = modules.defining_file(path) else {
                    continue;
                };
                if imported != importer {
                    graph.update_edge(nodes[importer], nodes[imported], ());
                }
            }
        }
        ImportGraph { graph }
    }

    /// Files of the largest circle; none where there is no circle.
    fn largest_circle(&self) -> Vec<NodeIndex> {
        let components = tarjan_scc(&self.graph);
        let largest = components.into_iter().max_by_key(Vec::len);
        largest
            .filter(|circle| circle.len() > 1)
            .unwrap_or_default()
    }
}

/// Names from the root of the package to an item, as `["chain", "run", "RunChain"]`.
type ItemPath = Vec<String>;

struct ModuleFile {
    path: String,
    imports: Vec<ItemPath>,
    /// Name here to the path that it stands for
    exports: BTreeMap<String, ItemPath>,
}

struct Modules {
    files: Vec<ModuleFile>,
    /// File of a module by its path
    by_path: BTreeMap<ItemPath, usize>,
}

impl Modules {
    fn of(files: &[SourceFile]) -> Modules {
        let mut modules = Modules {
            files: Vec::new(),
            by_path: BTreeMap::new(),
        };
        for file in files {
            if file.is_test_file() {
                continue;
            }
            let Some(module_path) = module_path(&file.path) else {
                continue;
            };
            let module_file = read_module(file, &module_path);
            modules.by_path.insert(module_path, modules.files.len());
            modules.files.push(module_file);
        }
        modules
    }

    /// File that defines the item, behind all re-exports.
    fn defining_file(&self, path: &[String]) -> Option<usize> {
        let mut path = path.to_vec();
        // A chain of re-exports is short; the bound ends one that leads back to itself.
        for _ in 0..8 {
            let (file, names) = self.longest_module(&path)?;
            let exported = names
                .first()
                .and_then(|name| self.files[file].exports.get(name));
            match exported {
                Some(target) => path = target.clone(),
                None => return Some(file),
            }
        }
        None
    }

    /// The deepest module on the path, and the names behind it.
    fn longest_module<'a>(&self, path: &'a [String]) -> Option<(usize, &'a [String])> {
        for length in (0..=path.len()).rev() {
            if let Some(file) = self.by_path.get(&path[..length]) {
                return Some((*file, &path[length..]));
            }
        }
        None
    }
}

/// Path of the module that a file holds: `engine/run/src/feed/mod.rs` holds `feed`.
fn module_path(file: &str) -> Option<ItemPath> {
    let (_, within) = file.split_once("/src/")?;
    let mut names: ItemPath = within
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    let is_folder_file = names.last().is_some_and(|name| name == "mod");
    let is_root = names.len() == 1 && (names[0] == "lib" || names[0] == "main");
    if is_folder_file || is_root {
        names.pop();
    }
    Some(names)
}

fn read_module(file: &SourceFile, module_path: &[String]) -> ModuleFile {
    let mut module_file = ModuleFile {
        path: file.path.clone(),
        imports: Vec::new(),
        exports: BTreeMap::new(),
    };
    for node in file.nodes() {
        if file.is_test_code(node) {
            continue;
        }
        match node.kind() {
            "use_declaration" => read_use(file, node, module_path, &mut module_file),
            "scoped_identifier" | "scoped_type_identifier" => {
                let is_inner = node
                    .parent()
                    .is_some_and(|parent| parent.kind().starts_with("scoped_"));
                if !is_inner && !is_within_use(node) {
                    let names = split_path(file.text_of(node));
                    module_file.imports.extend(absolute(&names, module_path));
                }
            }
            _ => {}
        }
    }
    module_file
}

fn is_within_use(node: Node<'_>) -> bool {
    let mut ancestor = node.parent();
    while let Some(parent) = ancestor {
        if parent.kind() == "use_declaration" {
            return true;
        }
        ancestor = parent.parent();
    }
    false
}

fn read_use(
    file: &SourceFile,
    declaration: Node<'_>,
    module_path: &[String],
    module_file: &mut ModuleFile,
) {
    let Some(argument) = declaration.child_by_field_name("argument") else {
        return;
    };
    let is_export = file.text_of(declaration).starts_with("pub");
    let mut used = Vec::new();
    expand_use(file, argument, &[], &mut used);
    for (names, alias) in used {
        let mut target = absolute(&names, module_path);
        if target.is_none() && is_export {
            // `pub use child::Name`: a path from this module.
            target = Some([module_path, &names].concat());
        }
        let Some(target) = target else {
            continue;
        };
        if is_export {
            module_file.exports.insert(alias, target);
        } else {
            module_file.imports.push(target);
        }
    }
}

/// Paths of a `use` tree, each with the name that it has here.
fn expand_use(
    file: &SourceFile,
    node: Node<'_>,
    prefix: &[String],
    used: &mut Vec<(Vec<String>, String)>,
) {
    match node.kind() {
        "scoped_use_list" => {
            let mut inner = prefix.to_vec();
            if let Some(path) = node.child_by_field_name("path") {
                inner.extend(split_path(file.text_of(path)));
            }
            if let Some(list) = node.child_by_field_name("list") {
                expand_use(file, list, &inner, used);
            }
        }
        "use_list" => {
            let mut cursor = node.walk();
            for child in node.named_children(&mut cursor) {
                expand_use(file, child, prefix, used);
            }
        }
        "use_as_clause" => {
            let path = node.child_by_field_name("path");
            let alias = node.child_by_field_name("alias");
            if let (Some(path), Some(alias)) = (path, alias) {
                let names = [prefix, &split_path(file.text_of(path))].concat();
                used.push((names, file.text_of(alias).to_owned()));
            }
        }
        "line_comment" | "block_comment" => {}
        _ => {
            let names = [prefix, &split_path(file.text_of(node))].concat();
            let alias = names.last().cloned().unwrap_or_default();
            used.push((names, alias));
        }
    }
}

fn split_path(path: &str) -> Vec<String> {
    let without_arguments = path.split('<').next().unwrap_or(path);
    without_arguments
        .split("::")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty() && name != "*")
        .collect()
}

/// Path from the root of the package; None for a path that leads to another package.
fn absolute(names: &[String], module_path: &[String]) -> Option<ItemPath> {
    let (first, rest) = names.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module_path, rest].concat()),
        "super" => {
            let (_, parent) = module_path.split_last()?;
            let mut base = parent.to_vec();
            let mut rest = rest;
            while rest.first().is_some_and(|name| name == "super") {
                base.pop();
                rest = &rest[1..];
            }
            Some([base.as_slice(), rest].concat())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest_circle(files: &[(&str, &str)]) -> usize {
        let parsed: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile::parse(path, (*text).to_owned()).unwrap())
            .collect();
        largest(&parsed)
    }

    #[test]
    fn circles_are_counted_in_files() {
        let straight = [
            ("a/src/lib.rs", "mod low; mod high; use crate::high::High;"),
            ("a/src/low.rs", "pub struct Low;"),
            ("a/src/high.rs", "use super::low::Low; pub struct High;"),
        ];
        assert_eq!(largest_circle(&straight), 0);

        let circle = [
            ("a/src/lib.rs", "mod low; mod high;"),
            ("a/src/low.rs", "fn low() { crate::high::call(); }"),
            ("a/src/high.rs", "use crate::low::{self, Low};"),
        ];
        assert_eq!(largest_circle(&circle), 2);
    }

    #[test]
    fn re_exports_are_followed_to_the_definition() {
        let files = [
            ("a/src/lib.rs", "mod part; mod user;"),
            ("a/src/part/mod.rs", "mod inner; pub use inner::Inner;"),
            ("a/src/part/inner.rs", "pub struct Inner;"),
            ("a/src/user.rs", "use crate::part::Inner;"),
        ];
        assert_eq!(largest_circle(&files), 0);
    }

    #[test]
    fn imports_of_tests_do_not_count() {
        let files = [
            (
                "a/src/low.rs",
                "#[cfg(test)] mod tests { use crate::high::High; }",
            ),
            ("a/src/high.rs", "use crate::low::Low;"),
        ];
        assert_eq!(largest_circle(&files), 0);
    }
}
