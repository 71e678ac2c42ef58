//! `cargo xtask new`: the file of a new kind from a template, and the lines that register it.

use std::path::Path;

use clap::{Args, Subcommand};

use crate::workspace::{self, Outcome};

const TRANSFORM_TEMPLATE: &str = include_str!("../templates/transform.rs.txt");
const SOURCE_TEMPLATE: &str = include_str!("../templates/source.rs.txt");
const SINK_TEMPLATE: &str = include_str!("../templates/sink.rs.txt");
const COMMAND_TEMPLATE: &str = include_str!("../templates/command.rs.txt");

#[derive(Args)]
pub struct NewArguments {
    #[command(subcommand)]
    kind: NewKind,
}

#[derive(Subcommand)]
enum NewKind {
    /// A step of a spec
    Transform {
        /// Folder under `transforms/src`, as `numeric`
        folder: String,
        /// Name in a spec, as `square_root`
        name: String,
    },
    /// A format that sources read
    Source {
        /// Name in a spec and ending of its files, as `avro`
        name: String,
    },
    /// A format that sinks write
    Sink {
        /// Name in a spec and ending of its files, as `avro`
        name: String,
    },
    /// A command of the program
    Command {
        /// Name of the command, as `compare`
        name: String,
    },
}

pub fn run(arguments: &NewArguments) -> Outcome<()> {
    match &arguments.kind {
        NewKind::Transform { folder, name } => add_transform(&workspace::root(), folder, name),
        NewKind::Source { name } => add_source(&workspace::root(), name),
        NewKind::Sink { name } => add_sink(&workspace::root(), name),
        NewKind::Command { name } => add_command(&workspace::root(), name),
    }?;
    // The generated files name each kind and each command.
    anstream::eprintln!("now edit the file, then `cargo xtask bless` and `cargo xtask check`");
    Ok(())
}

fn add_transform(root: &Path, folder: &str, name: &str) -> Outcome<()> {
    check_name(name)?;
    let type_name = type_name(name);
    let module = root.join("transforms/src").join(folder);
    create(
        &module.join(format!("{name}.rs")),
        &filled(TRANSFORM_TEMPLATE, name, &type_name),
    )?;
    let declarations = module.join("mod.rs");
    insert_sorted(&declarations, "mod ", &format!("mod {name};"))?;
    insert_sorted(
        &declarations,
        "pub use ",
        &format!("pub use {name}::{{{type_name}, {name}}};"),
    )?;
    insert_sorted(
        &root.join("transforms/src/lib.rs"),
        "        .register::<",
        &format!("        .register::<{folder}::{type_name}>()"),
    )
}

fn add_source(root: &Path, name: &str) -> Outcome<()> {
    check_name(name)?;
    let type_name = type_name(name);
    let text = filled(SOURCE_TEMPLATE, name, &type_name);
    let type_name = format!("{type_name}Source");
    add_connector(root, &format!("{name}_source"), &type_name, &text)?;
    register_connector(root, "register_source", &type_name)
}

fn add_sink(root: &Path, name: &str) -> Outcome<()> {
    check_name(name)?;
    let type_name = type_name(name);
    let text = filled(SINK_TEMPLATE, name, &type_name);
    let type_name = format!("{type_name}Sink");
    add_connector(root, &format!("{name}_sink"), &type_name, &text)?;
    register_connector(root, "register_sink", &type_name)
}

/// Adds a module of `connectors/formats` with the type of a configuration.
fn add_connector(root: &Path, module: &str, type_name: &str, text: &str) -> Outcome<()> {
    let folder = root.join("connectors/formats/src");
    create(&folder.join(format!("{module}.rs")), text)?;
    let declarations = folder.join("lib.rs");
    insert_sorted(&declarations, "mod ", &format!("mod {module};"))?;
    let export = format!("pub use crate::{module}::{type_name};");
    insert_sorted(&declarations, "pub use crate::", &export)?;
    let export = format!("pub use forebay_formats::{type_name};");
    insert_sorted(
        &root.join("connectors/src/lib.rs"),
        "pub use forebay_",
        &export,
    )
}

fn register_connector(root: &Path, method: &str, type_name: &str) -> Outcome<()> {
    let prefix = format!("        .{method}::<");
    let line = format!("{prefix}forebay_formats::{type_name}>()");
    insert_sorted(&root.join("connectors/src/built_in.rs"), &prefix, &line)
}

fn add_command(root: &Path, name: &str) -> Outcome<()> {
    check_name(name)?;
    let type_name = type_name(name);
    let module = root.join("pipelines/src/cli");
    create(
        &module.join(format!("{name}.rs")),
        &filled(COMMAND_TEMPLATE, name, &type_name),
    )?;
    let declarations = module.join("mod.rs");
    insert_sorted(&declarations, "mod ", &format!("mod {name};"))?;
    let variant = format!("    {type_name}({name}::{type_name}Command),");
    insert_behind(&declarations, "enum CliCommand {", &variant)?;
    let arm = format!("        CliCommand::{type_name}(command) => command.run(),");
    insert_behind(&declarations, "match command {", &arm)
}

/// A name of small letters, digits and underscores, as specs and commands use them.
fn check_name(name: &str) -> Outcome<()> {
    let begins_with_letter = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    let is_snake_case = name
        .chars()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if begins_with_letter && is_snake_case {
        Ok(())
    } else {
        Err(format!("`{name}` must be snake_case, as `square_root`"))
    }
}

/// `square_root` as `SquareRoot`.
fn type_name(name: &str) -> String {
    let mut type_name = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        if let Some(first) = letters.next() {
            type_name.push(first.to_ascii_uppercase());
            type_name.extend(letters);
        }
    }
    type_name
}

fn filled(template: &str, name: &str, type_name: &str) -> String {
    template
        .replace("{name}", name)
        .replace("{type}", type_name)
}

fn create(path: &Path, text: &str) -> Outcome<()> {
    if path.exists() {
        return Err(format!("{} exists already", path.display()));
    }
    anstream::eprintln!("new file {}", path.display());
    workspace::write(path, text)
}

/// Puts the line where it sorts among the first block of lines that begin with `prefix`.
fn insert_sorted(path: &Path, prefix: &str, line: &str) -> Outcome<()> {
    let text = workspace::read(path)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let first = lines
        .iter()
        .position(|existing| existing.starts_with(prefix))
        .ok_or_else(|| missing_anchor(path, prefix))?;
    let mut position = first;
    for (index, existing) in lines.iter().enumerate().skip(first) {
        if existing.starts_with(prefix) && *existing < line {
            position = index + 1;
        }
    }
    if position > first && line.ends_with(';') {
        // The statement before it may have several lines.
        let mut lines_of_statement = lines[position - 1..].iter();
        let last = lines_of_statement.position(|part| part.ends_with(';'));
        position += last.unwrap_or(0);
    }
    lines.insert(position, line);
    write_lines(path, &lines)
}

fn insert_behind(path: &Path, anchor: &str, line: &str) -> Outcome<()> {
    let text = workspace::read(path)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let position = lines
        .iter()
        .position(|existing| existing.trim_end().ends_with(anchor))
        .ok_or_else(|| missing_anchor(path, anchor))?;
    lines.insert(position + 1, line);
    write_lines(path, &lines)
}

fn missing_anchor(path: &Path, anchor: &str) -> String {
    let shown = path.display();
    format!("{shown} has no line `{anchor}`: the templates of `cargo xtask new` are out of date")
}

fn write_lines(path: &Path, lines: &[&str]) -> Outcome<()> {
    let mut text = lines.join("\n");
    text.push('\n');
    anstream::eprintln!("changed  {}", path.display());
    workspace::write(path, &text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn names_become_types() {
        assert_eq!(type_name("square_root"), "SquareRoot");
        assert_eq!(type_name("log1p"), "Log1p");
        assert!(check_name("square_root").is_ok());
        for wrong in ["", "SquareRoot", "1st", "a-b", "../x"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_statement_goes_behind_one_of_several_lines() {
        let folder = workspace::root().join("target/inserted-lines");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("lib.rs");
        let text = "pub use a::{\n    B,\n    C,\n};\npub use x::Y;\n";
        std::fs::write(&file, text).unwrap();
        insert_sorted(&file, "pub use ", "pub use m::N;").unwrap();
        let expected = "pub use a::{\n    B,\n    C,\n};\npub use m::N;\npub use x::Y;\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Copy of the files that git tracks, for changes that are thrown away.
    fn copy_of_checkout(folder: &Path) {
        let listing = workspace::output(workspace::program_in_root("git").args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ]));
        for file in listing.unwrap().lines() {
            let from = workspace::root().join(file);
            let to = folder.join(file);
            if from.is_file() {
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(from, to).unwrap();
            }
        }
    }

    #[test]
    #[ignore = "compiles the program once more; `.ci/run` runs it after Clippy, whose dependencies it shares"]
    fn what_is_generated_compiles() {
        let target = workspace::root().join("target");
        let folder: PathBuf = target.join("generated-kinds");
        let _ = std::fs::remove_dir_all(&folder);
        copy_of_checkout(&folder);
        add_transform(&folder, "numeric", "square_root").unwrap();
        add_source(&folder, "log_lines").unwrap();
        add_sink(&folder, "log_lines").unwrap();
        add_command(&folder, "compare").unwrap();
        let mut check = workspace::cargo();
        check.current_dir(&folder);
        check.env("CARGO_TARGET_DIR", &target);
        check.args(["check", "--workspace", "--bins", "--quiet", "--offline"]);
        workspace::run(&mut check).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
