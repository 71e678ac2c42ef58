//! Test that a crate outside the workspace can add kinds of its own: the examples compile there.

use crate::workspace;

/// Examples of kinds that another crate writes.
const EXAMPLES: [&str; 5] = [
    "own_analyzer",
    "own_sink",
    "own_source",
    "own_trainer",
    "own_transform",
];

/// Crates that the examples import besides Forebay's, in the versions of the workspace.
const DEPENDENCIES: [&str; 4] = ["arrow", "schemars", "serde", "serde_json"];

/// Manifest of a crate that is no member of the workspace. It has the workspace's profile, so that
/// both share what is built of their dependencies.
fn manifest() -> String {
    let root = workspace::root();
    let mut manifest = String::from(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[dependencies]\n",
    );
    for (name, folder) in [
        ("forebay", "pipelines"),
        ("forebay-generate", "pipelines/generate"),
    ] {
        let path = root.join(folder);
        manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
    }
    let workspace_manifest = workspace::read(&root.join("Cargo.toml")).unwrap();
    let mut profile = String::from("\n");
    let mut is_profile = false;
    for line in workspace_manifest.lines() {
        if line.starts_with('[') {
            is_profile = line.starts_with("[profile.dev");
        }
        if is_profile {
            profile.push_str(line);
            profile.push('\n');
        }
        let name = line.split(" = ").next().unwrap_or_default();
        if !is_profile && DEPENDENCIES.contains(&name) {
            manifest.push_str(line);
            manifest.push('\n');
        }
    }
    manifest + &profile
}

#[test]
#[ignore = "compiles the library once more; `.ci/run` runs it after Clippy, whose dependencies it shares"]
fn kinds_of_another_crate_compile() {
    let root = workspace::root();
    let target = root.join("target");
    let folder = target.join("outside-crate");
    let _ = std::fs::remove_dir_all(&folder);
    let programs = folder.join("src/bin");
    std::fs::create_dir_all(&programs).unwrap();
    for example in EXAMPLES {
        let name = format!("{example}.rs");
        let source = root.join("pipelines/examples").join(&name);
        std::fs::copy(source, programs.join(name)).unwrap();
    }
    workspace::write(&folder.join("Cargo.toml"), &manifest()).unwrap();
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let mut check = workspace::cargo();
    check.current_dir(&folder);
    check.env("CARGO_TARGET_DIR", &target);
    check.args(["check", "--bins", "--quiet", "--offline"]);
    workspace::run(&mut check).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
