//! The checkout that the commands work on: its root, its files, and programs that run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A problem as one sentence for the terminal.
pub type Outcome<T> = Result<T, String>;

/// Root of the checkout: `FOREBAY_ROOT`, or else the workspace that this program was built from.
pub fn root() -> PathBuf {
    if let Some(root) = std::env::var_os("FOREBAY_ROOT") {
        return PathBuf::from(root);
    }
    // This crate lies two folders below the root.
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder
        .ancestors()
        .nth(2)
        .unwrap_or(crate_folder)
        .to_owned()
}

/// Beginnings of the variables by which Cargo tells a program of its package.
const PACKAGE_VARIABLES: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Cargo as it called this program.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = program_in_root(program);
    // The build script of `ring` runs again where they change, and all crates above it are compiled again: once here, and
    // once more at the next build from a shell.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if PACKAGE_VARIABLES
            .iter()
            .any(|start| name.starts_with(start))
        {
            command.env_remove(&variable);
        }
    }
    command
}

/// A program that runs in the root of the checkout.
pub fn program_in_root(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Shows the command, runs it, and fails when it does.
pub fn run(command: &mut Command) -> Outcome<()> {
    let shown = shown_command(command);
    anstream::eprintln!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed: {status}"))
    }
}

/// Standard output of the command, which must succeed.
pub fn output(command: &mut Command) -> Outcome<String> {
    let shown = shown_command(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` failed: {complaint}"));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{shown}` printed no UTF-8"))
}

fn shown_command(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    for argument in command.get_args() {
        words.push(argument.to_string_lossy().into_owned());
    }
    words.join(" ")
}

/// Rust files that git tracks or would track, relative to the root, in order.
pub fn rust_files() -> Outcome<Vec<String>> {
    let listing = output(program_in_root("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.rs",
    ]))?;
    let mut files = Vec::new();
    for line in listing.lines() {
        // A deleted file stands in the index until the deletion is staged.
        if root().join(line).exists() {
            files.push(line.to_owned());
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

pub fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

pub fn write(path: &Path, text: &str) -> Outcome<()> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// A member of the workspace, as Cargo describes it.
#[derive(serde::Deserialize)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<PackageDependency>,
    pub targets: Vec<PackageTarget>,
    manifest_path: PathBuf,
}

#[derive(serde::Deserialize)]
pub struct PackageDependency {
    pub name: String,
    /// None for the dependencies of the product, `dev` for those of its tests
    pub kind: Option<String>,
}

#[derive(serde::Deserialize)]
pub struct PackageTarget {
    pub name: String,
    pub kind: Vec<String>,
    pub test: bool,
}

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Package {
    /// All members of the workspace.
    pub fn all() -> Outcome<Vec<Package>> {
        let mut query = cargo();
        query.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
        let text = output(&mut query)?;
        let metadata: Metadata = serde_json::from_str(&text)
            .map_err(|error| format!("cannot read Cargo's metadata: {error}"))?;
        Ok(metadata.packages)
    }

    /// Folder of the package, relative to the root.
    pub fn folder(&self) -> String {
        let folder = self.manifest_path.parent().unwrap_or(Path::new(""));
        let relative = folder.strip_prefix(root()).unwrap_or(folder);
        relative.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test has the variables of its package.
    #[test]
    fn cargo_is_called_as_from_a_shell() {
        let command = cargo();
        for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            let is_removed = command
                .get_envs()
                .any(|(name, value)| name == variable && value.is_none());
            let is_set = std::env::var_os(variable).is_some();
            assert_eq!(is_removed, is_set, "{variable}");
        }
    }
}
