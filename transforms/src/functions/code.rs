//! Content of the code that a step runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::Lines;

use forebay_model::{ContentId, Fault, IdBuilder, Result, codes};

/// Most modules that a function may import from the directories of the step.
const MODULES_MAX: usize = 2_000;

/// Bytes of the source text of a module at most.
const MODULE_BYTES_MAX: u64 = 16 << 20;

/// Most lines of one import statement.
const STATEMENT_LINES_MAX: usize = 500;

/// The variable with further directories of modules.
const PATH_VARIABLE: &str = "PYTHONPATH";

/// Code that a step runs, most of which lies outside of the spec.
#[derive(Debug, Clone)]
pub(super) enum FunctionCode {
    /// The words of a command line.
    Command(Vec<String>),
    /// A module of Python, or code of the spec.
    Python(PythonCode),
}

/// Code of Python with the directories of its modules.
#[derive(Debug, Clone)]
pub(super) struct PythonCode {
    /// The code, or the module.
    pub root: PythonRoot,
    /// The directories in which modules are searched, in this order.
    pub directories: Vec<PathBuf>,
}

/// The code that has the function.
#[derive(Debug, Clone)]
pub(super) enum PythonRoot {
    /// A module by its name.
    Module(String),
    /// Code of the spec.
    Text(String),
}

/// The source of a module.
struct ModuleSource {
    text: String,
    /// The package that its relative imports begin at.
    package: String,
}

impl FunctionCode {
    /// The id of the code. It depends on contents, and on no directory.
    pub fn digest(&self) -> Result<ContentId> {
        match self {
            FunctionCode::Command(words) => command_digest(words),
            FunctionCode::Python(code) => code.digest(),
        }
    }

    /// The remedy where a batch is not answered in time. Python's answers are written for its functions.
    pub fn timeout_hint(&self) -> &'static str {
        match self {
            FunctionCode::Command(_) => {
                "it must write one batch for each batch that it reads, and flush it, before it \
                 reads the next one; raise `timeout_seconds` if it needs longer"
            }
            FunctionCode::Python(_) => {
                "raise `timeout_seconds` if it needs longer, or give it fewer rows (`batch_rows`, \
                 or more keys in `by`)"
            }
        }
    }
}

/// The id of a command line: words that name files stand for their content. A program that is searched in `PATH` counts
/// by its name.
fn command_digest(words: &[String]) -> Result<ContentId> {
    let mut id = IdBuilder::new("command of a step");
    for (position, word) in words.iter().enumerate() {
        let is_searched = position == 0 && !word.contains('/');
        if is_searched || !Path::new(word).is_file() {
            id.text("word").text(word);
            continue;
        }
        id.text("file");
        add_file(&mut id, word).map_err(|error| unreadable(Path::new(word), error))?;
    }
    Ok(id.finish())
}

/// Adds the content of a file to an id. Programs may be large.
fn add_file(id: &mut IdBuilder, path: &str) -> std::io::Result<()> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    id.read_bytes(length, file)
}

fn unreadable(path: &Path, error: std::io::Error) -> Fault {
    Fault::disk("the code of a step cannot be read", error).file(path.display().to_string())
}

/// True if a program can be started: it is a file, or one of that name lies in a directory of `PATH`.
pub(super) fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| directory.join(name).is_file())
}

impl PythonCode {
    /// Searches modules in these directories, and then in those of `PYTHONPATH`.
    pub fn new(root: PythonRoot, path: &[String]) -> PythonCode {
        let mut directories: Vec<PathBuf> = path.iter().map(PathBuf::from).collect();
        let variable = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
        let is_named = |directory: &PathBuf| !directory.as_os_str().is_empty();
        directories.extend(std::env::split_paths(&variable).filter(is_named));
        PythonCode { root, directories }
    }

    /// Fails if the function cannot be in the source: the module is missing, or no word of it is the name. Nothing is
    /// executed.
    pub fn check_function(&self, name: &str) -> Result<()> {
        let source = self.root_source()?;
        let first = name.split('.').next().unwrap_or_default();
        let is_word_end = |letter: char| !(letter.is_alphanumeric() || letter == '_');
        let is_named = source.text.split(is_word_end).any(|word| word == first);
        if is_named || source.text.contains("import *") {
            return Ok(());
        }
        let holder = match &self.root {
            PythonRoot::Module(module) => format!("the module `{module}`"),
            PythonRoot::Text(_) => "`code`".to_owned(),
        };
        let message = format!("{holder} has no function `{first}`");
        let fault = Fault::new(codes::UNKNOWN_NAME, message).field("function");
        Err(fault.suggest(first, defined_names(&source.text), "it defines"))
    }

    fn root_source(&self) -> Result<ModuleSource> {
        let module = match &self.root {
            PythonRoot::Module(module) => module,
            PythonRoot::Text(text) => {
                return Ok(ModuleSource {
                    text: text.clone(),
                    package: String::new(),
                });
            }
        };
        if let Some(source) = self.source(module)? {
            return Ok(source);
        }
        let names: Vec<String> = self
            .directories
            .iter()
            .map(|directory| format!("`{}`", directory.display()))
            .collect();
        let message = format!("there is no module `{module}` in {}", names.join(", "));
        let fault = Fault::new(codes::UNKNOWN_NAME, message).field("function");
        Err(fault.hint("name the directory of the module under `path`"))
    }

    /// The source of a module, if it lies in one of the directories.
    fn source(&self, module: &str) -> Result<Option<ModuleSource>> {
        if module.split('.').any(str::is_empty) {
            return Ok(None);
        }
        let relative: PathBuf = module.split('.').collect();
        for directory in &self.directories {
            let package_file = directory.join(&relative).join("__init__.py");
            if package_file.is_file() {
                let text = source_text(&package_file)?;
                let package = module.to_owned();
                return Ok(Some(ModuleSource { text, package }));
            }
            let file = directory.join(&relative).with_extension("py");
            if file.is_file() {
                let text = source_text(&file)?;
                let package = module.rsplit_once('.').map_or("", |(package, _)| package);
                let package = package.to_owned();
                return Ok(Some(ModuleSource { text, package }));
            }
        }
        Ok(None)
    }

    /// The id of the source and of all modules that it imports from the directories, directly or through each other.
    fn digest(&self) -> Result<ContentId> {
        let root = self.root_source()?;
        let mut open = module_names(&root);
        let mut modules: BTreeMap<String, String> = BTreeMap::new();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        if let PythonRoot::Module(module) = &self.root {
            open.extend(with_packages(module));
        }
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(source) = self.source(&name)? else {
                continue;
            };
            open.extend(module_names(&source));
            modules.insert(name, source.text);
            if modules.len() > MODULES_MAX {
                let message = format!("a function imports more than {MODULES_MAX} modules");
                let fault = Fault::new(codes::LIMIT, message).field("path");
                return Err(fault.hint(
                    "leave directories of installed packages out of `path`: only modules in its \
                     directories are part of the id",
                ));
            }
        }
        let mut id = IdBuilder::new("function of Python");
        if let PythonRoot::Text(text) = &self.root {
            id.text(text);
        }
        for (name, text) in &modules {
            id.text(name).text(text);
        }
        Ok(id.finish())
    }
}

fn source_text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let opened = File::open(path).map(|file| file.take(MODULE_BYTES_MAX + 1));
    opened
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| unreadable(path, error))?;
    if bytes.len() as u64 > MODULE_BYTES_MAX {
        let message = format!("a module has more than {} MiB", MODULE_BYTES_MAX >> 20);
        let fault = Fault::new(codes::LIMIT, message).file(path.display().to_string());
        return Err(fault.hint("read large tables from files, not from source text"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The functions and classes that source text defines at its top.
fn defined_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for line in text.lines() {
        for keyword in ["def ", "class ", "async def "] {
            if let Some(definition) = line.strip_prefix(keyword) {
                names.extend(definition.split(['(', ':', ' ']).next());
            }
        }
    }
    names
}

/// The modules that source text may import, and their packages. Some of the names may be those of functions.
fn module_names(source: &ModuleSource) -> Vec<String> {
    let mut names = Vec::new();
    for statement in import_statements(&source.text) {
        for name in imported_names(&statement, &source.package) {
            names.extend(with_packages(&name));
        }
    }
    names
}

/// A module with its packages: `a`, `a.b` and `a.b.c`.
fn with_packages(module: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in module.split('.') {
        let name = match names.last() {
            Some(package) => format!("{package}.{part}"),
            None => part.to_owned(),
        };
        names.push(name);
    }
    names
}

/// The import statements of source text, each in one line.
fn import_statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        for part in code_of_line(line).split(';') {
            let Some(begin) = import_of(part) else {
                continue;
            };
            let mut further_lines = lines.clone();
            let statement = whole_statement(begin, &mut further_lines);
            // Text that only looks like a statement may have no end: its lines are searched themselves then.
            if !is_continued(&statement) {
                lines = further_lines;
            }
            statements.push(statement);
        }
    }
    statements
}

/// The import statement that a part of a line is, or has behind a colon, as in `try: import a`.
fn import_of(part: &str) -> Option<&str> {
    let behind_colon = part.rsplit_once(':').map_or("", |(_, behind)| behind);
    let mut statements = [part.trim(), behind_colon.trim()].into_iter();
    statements.find(|statement| statement.starts_with("import ") || statement.starts_with("from "))
}

/// A statement with the lines in which it goes on.
fn whole_statement(begin: &str, lines: &mut Lines<'_>) -> String {
    let mut statement = begin.to_owned();
    let mut count = 1;
    while count < STATEMENT_LINES_MAX && is_continued(&statement) {
        let Some(line) = lines.next() else { break };
        statement = format!(
            "{} {}",
            statement.trim_end_matches('\\'),
            code_of_line(line)
        );
        count += 1;
    }
    statement
}

/// A line without its indentation and its comment.
fn code_of_line(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// True if the next line belongs to a statement, too.
fn is_continued(statement: &str) -> bool {
    let is_open = statement.contains('(') && !statement.contains(')');
    is_open || statement.ends_with('\\')
}

/// The names that an import statement of a package brings: modules, or what lies in them.
fn imported_names(statement: &str, package: &str) -> Vec<String> {
    if let Some(list) = statement.strip_prefix("import ") {
        return listed_names(list).map(str::to_owned).collect();
    }
    let mut names = Vec::new();
    let Some((module, list)) = statement
        .strip_prefix("from ")
        .and_then(|words| words.trim_start().split_once(" import"))
    else {
        return names;
    };
    let Some(module) = absolute_name(module.trim(), package) else {
        return names;
    };
    for name in listed_names(list) {
        names.push(joined_name(&module, name));
    }
    names.push(module);
    names
}

/// The names of a list, without those that `as` gives them.
fn listed_names(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', '(', ')', ';'])
        .filter_map(|item| item.split_whitespace().next())
}

/// The full name of a module, which may begin with a dot for each package above.
fn absolute_name(module: &str, package: &str) -> Option<String> {
    let name = module.trim_start_matches('.');
    let level = module.len() - name.len();
    let mut base = package;
    for _ in 1..level {
        base = base.rsplit_once('.').map_or("", |(above, _)| above);
    }
    match (level, name) {
        (0, name) => Some(name.to_owned()),
        (_, "") if base.is_empty() => None,
        (_, "") => Some(base.to_owned()),
        (_, name) => Some(joined_name(base, name)),
    }
}

fn joined_name(package: &str, name: &str) -> String {
    if package.is_empty() {
        return name.to_owned();
    }
    format!("{package}.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_python_are_not_told_to_write_batches() {
        let python = FunctionCode::Python(PythonCode {
            root: PythonRoot::Text(String::new()),
            directories: Vec::new(),
        });
        let command = FunctionCode::Command(Vec::new());
        for (code, is_told) in [(python, false), (command, true)] {
            let hint = code.timeout_hint();
            assert!(hint.contains("timeout_seconds"), "{hint}");
            assert_eq!(hint.contains("flush"), is_told, "{hint}");
        }
    }

    #[test]
    fn import_statements_name_modules() {
        let cases = [
            ("import a", "", "a"),
            ("import a.b as c, d  # e", "", "a d a.b"),
            ("from a import b, c as d", "", "a a.b a.c"),
            (
                "from a import (\n  b,  # one\n  c,\n)\nx = 1",
                "",
                "a a.b a.c",
            ),
            ("from a \\\n  import b", "", "a a.b"),
            ("import a; import b", "", "a b"),
            ("x = 1; from a import (\n  b)", "", "a a.b"),
            ("try: import a\nexcept: from b import c", "", "a b b.c"),
            ("from a import(b)", "", "a a.b"),
            ("from . import b", "p.q", "p p.q p.q.b"),
            ("from .b import c", "p.q", "p p.q p.q.b p.q.b.c"),
            ("from ..b import c", "p.q", "p p.b p.b.c"),
            ("def f():\n    import late", "", "late"),
            ("important = 1\nfrom_a = 2", "", ""),
        ];
        for (text, package, expected) in cases {
            let source = ModuleSource {
                text: text.to_owned(),
                package: package.to_owned(),
            };
            let names: BTreeSet<String> = module_names(&source).into_iter().collect();
            let expected: BTreeSet<String> =
                expected.split_whitespace().map(str::to_owned).collect();
            assert_eq!(names, expected, "{text}");
        }
        let without_end = ModuleSource {
            text: "from here (on\nimport a".to_owned(),
            package: String::new(),
        };
        assert!(module_names(&without_end).contains(&"a".to_owned()));
    }
}
