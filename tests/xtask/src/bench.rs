//! `cargo xtask bench`: finds and runs the programs under `benches/`.

use clap::Args;

use crate::workspace::{self, Outcome};

#[derive(Args)]
pub struct BenchArguments {
    /// The benchmark, as `operations`
    name: Option<String>,
    /// What the benchmark itself takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run(arguments: &BenchArguments) -> Outcome<()> {
    let names = benchmark_names()?;
    let Some(name) = &arguments.name else {
        for name in names {
            anstream::println!("{name}");
        }
        return Ok(());
    };
    if !names.contains(name) {
        return Err(format!(
            "there is no benchmark `{name}`; there are {}",
            names.join(", ")
        ));
    }
    let program = workspace::root().join("benches").join(name);
    workspace::run(workspace::program_in_root(program).args(&arguments.arguments))
}

/// The programs of a folder of `benches/`.
const FOLDER_PROGRAMS: [&str; 2] = ["run", "external"];

/// Executable files of `benches/`, and of its folders the programs with these names.
fn benchmark_names() -> Outcome<Vec<String>> {
    let folder = workspace::root().join("benches");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        for program in FOLDER_PROGRAMS {
            if path.join(program).is_file() {
                names.push(format!("{name}/{program}"));
            }
        }
        if path.is_file() && !name.contains('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
