//! `cargo xtask release`: a directory with everything that a release consists of.
//!
//! Steps run in the order of [`ReleaseStep`]. A step that needs a tool which this machine lacks is
//! skipped by name, and `--require` makes that a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::workspace::{self, Outcome};

/// Targets of programs.
const TARGETS: [&str; 3] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
];

/// The oldest C library that programs for Linux run with.
const GLIBC: &str = "2.28";

/// File of the digests of all others.
const CHECKSUMS: &str = "SHA256SUMS";

const INSTALLER: &str = "install.sh";

#[derive(Args)]
pub struct ReleaseArguments {
    /// Directory of the release [default: target/release-VERSION]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs these steps alone; the directory keeps the files of others
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STEP")]
    only: Vec<ReleaseStep>,
    /// Cargo profile of the programs; `dist` is smaller and takes an hour
    #[arg(long, default_value = "dist", value_name = "NAME")]
    profile: String,
    /// Fails where a step is skipped
    #[arg(long)]
    require: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReleaseStep {
    /// Programs for each target, as archives
    Programs,
    /// The Python wheel, which holds the program, too
    Wheel,
    /// Crates of the program with their versions and licences, as CycloneDX
    Sbom,
    /// Subjects of the commits since the last release
    Changelog,
    /// The script that installs from the directory
    Installer,
    /// The container image, as an archive
    Image,
    /// Digests of all files
    Checksums,
    /// Installation and the README's job in a bare root directory
    Trial,
}

/// A version that is being released.
struct Release {
    version: String,
    folder: PathBuf,
    profile: String,
    /// Steps that did not run, with their reasons.
    skipped: Vec<String>,
}

pub fn run(arguments: &ReleaseArguments) -> Outcome<()> {
    let manifest = workspace::read(&workspace::root().join("Cargo.toml"))?;
    let version = version_of(&manifest)?;
    let folder = match &arguments.out {
        Some(folder) => std::path::absolute(folder).map_err(|error| error.to_string())?,
        None => workspace::root().join(format!("target/release-{version}")),
    };
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut release = Release {
        version,
        folder,
        profile: arguments.profile.clone(),
        skipped: Vec::new(),
    };
    for step in ReleaseStep::value_variants() {
        if arguments.only.is_empty() || arguments.only.contains(step) {
            release.run_step(*step)?;
        }
    }
    for reason in &release.skipped {
        anstream::println!("skipped: {reason}");
    }
    anstream::println!("{}", release.folder.display());
    if arguments.require && !release.skipped.is_empty() {
        return Err(format!("{} steps were skipped", release.skipped.len()));
    }
    Ok(())
}

impl Release {
    fn run_step(&mut self, step: ReleaseStep) -> Outcome<()> {
        match step {
            ReleaseStep::Programs => self.build_programs(),
            ReleaseStep::Wheel => self.build_wheel(),
            ReleaseStep::Sbom => self.write_bill_of_materials(),
            ReleaseStep::Changelog => self.write_changelog(),
            ReleaseStep::Installer => self.copy_installer(),
            ReleaseStep::Image => self.build_image(),
            ReleaseStep::Checksums => write_checksums(&self.folder),
            ReleaseStep::Trial => self.run_trial(),
        }
    }

    fn skip(&mut self, step: &str, reason: &str) {
        self.skipped.push(format!("{step}: {reason}"));
    }

    fn build_programs(&mut self) -> Outcome<()> {
        let host = host_target()?;
        let has_zig = is_installed("cargo-zigbuild");
        for target in TARGETS {
            if !has_standard_library(target)? {
                self.skip(target, "rustup has no standard library for it");
            } else if target.ends_with("darwin") && std::env::var_os("SDKROOT").is_none() {
                self.skip(target, "Zig needs Apple's SDK: set SDKROOT to it");
            } else if has_zig {
                self.build_program(target, &["zigbuild", "--target", &zig_target(target)])?;
            } else if target == host {
                // Linked against the C library here, it runs on this system and newer ones.
                anstream::eprintln!("without cargo-zigbuild: linked against this C library");
                self.build_program(target, &["build", "--target", target])?;
            } else {
                self.skip(target, "cargo-zigbuild is not installed");
            }
        }
        Ok(())
    }

    fn build_program(&self, target: &str, build: &[&str]) -> Outcome<()> {
        let mut cargo = workspace::cargo();
        cargo.args(build);
        cargo.args(["--package", "forebay", "--bin", "forebay", "--locked"]);
        cargo.args(["--profile", &self.profile]);
        workspace::run(&mut cargo)?;
        // Cargo names the folder of its own development profile otherwise.
        let profile_folder = match self.profile.as_str() {
            "dev" => "debug",
            name => name,
        };
        let program = target_folder()
            .join(target)
            .join(profile_folder)
            .join("forebay");
        let files = [
            program,
            workspace::root().join("LICENSE"),
            workspace::root().join("README.md"),
        ];
        pack(&self.folder, &archive_stem(&self.version, target), &files)
    }

    fn build_wheel(&mut self) -> Outcome<()> {
        if !is_installed("python3") {
            self.skip("wheel", "python3 is not installed");
            return Ok(());
        }
        let script = workspace::root().join("pipelines/python/wheel");
        let mut build = workspace::program_in_root(script);
        build.env("FOREBAY_WHEEL_PROFILE", &self.profile);
        workspace::run(&mut build)?;
        for file in files_of(&workspace::root().join("target/wheels"))? {
            if file.starts_with("forebay-") && file.ends_with(".whl") {
                let from = workspace::root().join("target/wheels").join(&file);
                copy(&from, &self.folder.join(&file))?;
            }
        }
        Ok(())
    }

    fn write_bill_of_materials(&self) -> Outcome<()> {
        let mut query = workspace::cargo();
        query.args(["metadata", "--format-version", "1", "--locked"]);
        query.args(["--filter-platform", TARGETS[0]]);
        let metadata: Value = serde_json::from_str(&workspace::output(&mut query)?)
            .map_err(|error| format!("cannot read Cargo's metadata: {error}"))?;
        let bill = bill_of_materials(&metadata, "forebay")?;
        let name = format!("forebay-{}.cdx.json", self.version);
        workspace::write(&self.folder.join(name), &format!("{bill:#}\n"))
    }

    fn write_changelog(&self) -> Outcome<()> {
        let mut query = workspace::program_in_root("git");
        query.args(["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD"]);
        // Git fails where no release has a tag yet.
        let last = workspace::output(&mut query).ok();
        let last = last.as_deref().map(str::trim);
        let mut subjects = String::new();
        if let Some(tag) = last {
            let mut log = workspace::program_in_root("git");
            log.args(["log", "--no-merges", "--format=%s"]);
            log.arg(format!("{tag}..HEAD"));
            subjects = workspace::output(&mut log)?;
        }
        let text = changelog(&self.version, last, &subjects);
        workspace::write(&self.folder.join("CHANGELOG.md"), &text)
    }

    fn copy_installer(&self) -> Outcome<()> {
        let from = workspace::root().join("pipelines").join(INSTALLER);
        copy(&from, &self.folder.join(INSTALLER))
    }

    fn build_image(&mut self) -> Outcome<()> {
        if !is_installed("docker") {
            self.skip("image", "docker is not installed");
            return Ok(());
        }
        let tag = format!("forebay:{}", self.version);
        let mut build = workspace::program_in_root("docker");
        build.args([
            "build",
            "--file",
            "pipelines/Dockerfile",
            "--tag",
            &tag,
            ".",
        ]);
        workspace::run(&mut build)?;
        let archive = self
            .folder
            .join(format!("forebay-{}-image.tar", self.version));
        let mut save = workspace::program_in_root("docker");
        save.args(["save", "--output"]).arg(archive).arg(&tag);
        workspace::run(&mut save)
    }

    fn run_trial(&mut self) -> Outcome<()> {
        if !is_installed("debootstrap") {
            self.skip("trial", "debootstrap is not installed");
            return Ok(());
        }
        let mut user = workspace::program_in_root("id");
        user.arg("-u");
        if workspace::output(&mut user)?.trim() != "0" {
            self.skip("trial", "a bare root directory takes the rights of root");
            return Ok(());
        }
        let script = workspace::root().join("pipelines/try-release");
        workspace::run(workspace::program_in_root(script).arg(&self.folder))
    }
}

/// The version of the workspace, from its manifest.
fn version_of(manifest: &str) -> Outcome<String> {
    let manifest: toml::Table =
        toml::from_str(manifest).map_err(|error| format!("Cargo.toml: {error}"))?;
    let package = manifest
        .get("workspace")
        .and_then(|section| section.get("package"));
    let version = package.and_then(|package| package.get("version"));
    match version.and_then(toml::Value::as_str) {
        Some(version) => Ok(version.to_owned()),
        None => Err("Cargo.toml has no version of the workspace".to_owned()),
    }
}

/// Name of an archive and of the folder in it: `forebay-0.1.0-x86_64-unknown-linux-gnu`.
fn archive_stem(version: &str, target: &str) -> String {
    format!("forebay-{version}-{target}")
}

/// A target as cargo-zigbuild names it: with the version of the C library, where it has one.
fn zig_target(target: &str) -> String {
    if target.ends_with("-gnu") {
        return format!("{target}.{GLIBC}");
    }
    target.to_owned()
}

/// The target of this machine.
fn host_target() -> Outcome<String> {
    let description = workspace::output(workspace::program_in_root("rustc").arg("-vV"))?;
    let host = description
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    match host {
        Some(host) => Ok(host.to_owned()),
        None => Err("`rustc -vV` names no host".to_owned()),
    }
}

fn has_standard_library(target: &str) -> Outcome<bool> {
    let mut query = workspace::program_in_root("rustc");
    query.args(["--print", "target-libdir", "--target", target]);
    let folder = workspace::output(&mut query)?;
    Ok(Path::new(folder.trim()).is_dir())
}

/// True if a program of this name is on the path.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The folder that Cargo builds into.
fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => workspace::root().join(folder),
        None => workspace::root().join("target"),
    }
}

/// Packs files into the archive `STEM.tar.gz` with one folder, `STEM`. The same files give the same
/// bytes.
fn pack(folder: &Path, stem: &str, files: &[PathBuf]) -> Outcome<()> {
    let content = folder.join(stem);
    std::fs::create_dir_all(&content)
        .map_err(|error| format!("cannot make {}: {error}", content.display()))?;
    for file in files {
        let name = file
            .file_name()
            .ok_or_else(|| format!("{} names no file", file.display()))?;
        copy(file, &content.join(name))?;
    }
    let mut tar = workspace::program_in_root("tar");
    tar.current_dir(folder);
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--use-compress-program=gzip -9n"]);
    tar.args(["--create", "--file", &format!("{stem}.tar.gz"), stem]);
    workspace::run(&mut tar)?;
    std::fs::remove_dir_all(&content)
        .map_err(|error| format!("cannot remove {}: {error}", content.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    match std::fs::copy(from, to) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "cannot copy {} to {}: {error}",
            from.display(),
            to.display()
        )),
    }
}

/// Names of the files in a folder, in order.
fn files_of(folder: &Path) -> Outcome<Vec<String>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Writes the digests of all files of a folder, in the form of `sha256sum`.
fn write_checksums(folder: &Path) -> Outcome<()> {
    let mut names = files_of(folder)?;
    names.retain(|name| name != CHECKSUMS);
    if names.is_empty() {
        return Err(format!("{} holds no files", folder.display()));
    }
    let mut digests = workspace::program_in_root("sha256sum");
    digests.current_dir(folder).arg("--").args(&names);
    digests.stdin(Stdio::null());
    let text = workspace::output(&mut digests)?;
    workspace::write(&folder.join(CHECKSUMS), &text)
}

/// A changelog of the commits since a tag, the newest first.
fn changelog(version: &str, last: Option<&str>, subjects: &str) -> String {
    let mut text = format!("# Forebay {version}\n\n");
    match last {
        None => text += "The first release.\n",
        Some(tag) => text += &format!("Changes since {tag}:\n\n"),
    }
    for subject in subjects.lines() {
        text += &format!("- {subject}\n");
    }
    text
}

/// The crates that a program consists of, as CycloneDX 1.5 has them: what it depends on for itself,
/// not for its build or its tests.
fn bill_of_materials(metadata: &Value, program: &str) -> Outcome<Value> {
    let mut packages: BTreeMap<&str, &Value> = BTreeMap::new();
    for package in items(&metadata["packages"]) {
        packages.insert(text(&package["id"]), package);
    }
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in items(&metadata["resolve"]["nodes"]) {
        edges.insert(text(&node["id"]), linked_packages(node));
    }
    let root = packages
        .iter()
        .find(|(_, package)| text(&package["name"]) == program);
    let Some((root, root_package)) = root else {
        return Err(format!("Cargo's metadata has no package `{program}`"));
    };
    let mut reached: BTreeSet<&str> = BTreeSet::from([*root]);
    let mut waiting = vec![*root];
    while let Some(id) = waiting.pop() {
        for linked in edges.get(id).into_iter().flatten() {
            if reached.insert(*linked) {
                waiting.push(*linked);
            }
        }
    }
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &reached {
        let package = packages
            .get(id)
            .ok_or_else(|| format!("Cargo's metadata has no package `{id}`"))?;
        if id != root {
            components.push(component(package, "library"));
        }
        let linked = edges.get(id).into_iter().flatten();
        let references: Vec<String> = linked
            .filter_map(|id| packages.get(id))
            .map(|package| package_url(package))
            .collect();
        dependencies.push(json!({ "ref": package_url(package), "dependsOn": references }));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(root_package, "application") },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Packages that a package is linked with: its normal dependencies.
fn linked_packages(node: &Value) -> BTreeSet<&str> {
    let mut linked = BTreeSet::new();
    for dependency in items(&node["deps"]) {
        let kinds = items(&dependency["dep_kinds"]);
        if kinds.iter().any(|kind| kind["kind"].is_null()) {
            linked.insert(text(&dependency["pkg"]));
        }
    }
    linked
}

fn component(package: &Value, kind: &str) -> Value {
    let reference = package_url(package);
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": package["name"],
        "version": package["version"],
        "purl": reference,
    });
    if let Some(license) = package["license"].as_str() {
        // Older manifests separate choices by a slash.
        let expression = license.replace(" / ", "/").replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    component
}

/// The package URL of a crate: `pkg:cargo/serde@1.0.0`.
fn package_url(package: &Value) -> String {
    let name = text(&package["name"]);
    let version = text(&package["version"]).replace('+', "%2B");
    format!("pkg:cargo/{name}@{version}")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Output};

    use super::*;

    #[test]
    fn names_hold_version_and_target() {
        let manifest = "[workspace.package]\nversion = \"0.3.1\"\n";
        assert_eq!(version_of(manifest).unwrap(), "0.3.1");
        assert!(version_of("[package]\nversion = \"1.0.0\"\n").is_err());
        assert_eq!(
            archive_stem("0.3.1", TARGETS[0]),
            "forebay-0.3.1-x86_64-unknown-linux-gnu"
        );
        assert_eq!(zig_target(TARGETS[1]), "aarch64-unknown-linux-gnu.2.28");
        assert_eq!(zig_target(TARGETS[2]), TARGETS[2]);
    }

    #[test]
    fn a_changelog_lists_subjects_since_the_last_release() {
        assert_eq!(
            changelog("0.1.0", None, ""),
            "# Forebay 0.1.0\n\nThe first release.\n"
        );
        assert_eq!(
            changelog("0.2.0", Some("v0.1.0"), "Add ngrams\nRead gzip\n"),
            "# Forebay 0.2.0\n\nChanges since v0.1.0:\n\n- Add ngrams\n- Read gzip\n"
        );
    }

    fn package(name: &str, license: Value) -> Value {
        json!({
            "id": format!("{name}#1"),
            "name": name,
            "version": "1.0.0+x",
            "license": license,
        })
    }

    fn dependency(name: &str, kind: Value) -> Value {
        json!({ "pkg": format!("{name}#1"), "dep_kinds": [{ "kind": kind }] })
    }

    /// `forebay` needs `codec`, which needs `bits`; `checks` is for tests, and nothing needs `other`.
    #[test]
    fn a_bill_lists_the_crates_of_the_program() {
        let metadata = json!({
            "packages": [
                package("forebay", json!("Apache-2.0")),
                package("codec", json!("MIT/Apache-2.0")),
                package("bits", json!(null)),
                package("checks", json!("MIT")),
                package("other", json!("MIT")),
            ],
            "resolve": { "nodes": [
                { "id": "forebay#1", "deps": [
                    dependency("codec", json!(null)),
                    dependency("checks", json!("dev")),
                ] },
                { "id": "codec#1", "deps": [dependency("bits", json!(null))] },
                { "id": "bits#1", "deps": [] },
            ] },
        });
        let bill = bill_of_materials(&metadata, "forebay").unwrap();
        let names: Vec<&str> = items(&bill["components"])
            .iter()
            .map(|component| text(&component["name"]))
            .collect();
        assert_eq!(names, ["bits", "codec"]);
        assert_eq!(
            bill["metadata"]["component"]["purl"],
            "pkg:cargo/forebay@1.0.0%2Bx"
        );
        assert_eq!(
            bill["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert!(bill["components"][0].get("licenses").is_none());
        let last = &bill["dependencies"][2];
        assert_eq!(last["dependsOn"], json!(["pkg:cargo/codec@1.0.0%2Bx"]));
        assert!(bill_of_materials(&metadata, "missing").is_err());
    }

    /// Directory below `target` that is removed at the end.
    struct TrialFolder(PathBuf);

    impl TrialFolder {
        fn new(name: &str) -> TrialFolder {
            let name = format!("{name}-{}", std::process::id());
            let folder = target_folder().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            TrialFolder(folder)
        }
    }

    impl Drop for TrialFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn install(release: &Path, to: &Path) -> Output {
        Command::new("sh")
            .arg(release.join(INSTALLER))
            .arg("--to")
            .arg(to)
            .output()
            .unwrap()
    }

    /// A release whose program is a script, for the machine of the test.
    fn made_up_release(folder: &Path) -> String {
        let program = folder.join("forebay");
        let script = "#!/bin/sh\necho forebay 9.9.9\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let stem = archive_stem("9.9.9", &target);
        pack(folder, &stem, std::slice::from_ref(&program)).unwrap();
        std::fs::remove_file(program).unwrap();
        let installer = workspace::root().join("pipelines").join(INSTALLER);
        copy(&installer, &folder.join(INSTALLER)).unwrap();
        write_checksums(folder).unwrap();
        format!("{stem}.tar.gz")
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_release_installs_from_its_directory() {
        let folder = TrialFolder::new("release-trial");
        let release = folder.0.join("release");
        std::fs::create_dir(&release).unwrap();
        let archive = made_up_release(&release);
        let checksums = std::fs::read_to_string(release.join(CHECKSUMS)).unwrap();
        assert_eq!(checksums.lines().count(), 2, "{checksums}");

        let bin = folder.0.join("bin");
        let ended = install(&release, &bin);
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{errors}");
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(printed.contains("forebay 9.9.9"), "{printed}");
        let version = Command::new(bin.join("forebay")).output().unwrap();
        assert_eq!(version.stdout, b"forebay 9.9.9\n");

        // An archive that is not the one of the checksums installs nothing.
        let mut bytes = std::fs::read(release.join(&archive)).unwrap();
        bytes.push(0);
        std::fs::write(release.join(&archive), bytes).unwrap();
        let other_bin = folder.0.join("other");
        let ended = install(&release, &other_bin);
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            !ended.status.success() && errors.contains("SHA256SUMS"),
            "{errors}"
        );
        assert!(!other_bin.join("forebay").exists());

        std::fs::remove_file(release.join(&archive)).unwrap();
        let ended = install(&release, &other_bin);
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(errors.contains("holds no program for"), "{errors}");
    }
}
