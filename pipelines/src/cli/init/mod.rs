//! `forebay init`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use forebay_generate::{DemandOptions, FilePeriod, HistoryExtent, demand};
use forebay_model::{Fault, Result, codes};
use forebay_run::{PreviewOptions, SessionOptions};

use super::new::name_of;
use super::usage;
use crate::present::rows;
use crate::settings::Settings;
use crate::{Forebay, spec};

/// Days of the generated history.
const DAYS: u32 = 42;

/// Pairs of an item and a store in it.
const SERIES: u64 = 40;

/// Rows of the expected results: of the last day, all series.
const EXPECTED_ROWS: usize = 100;

/// The rows that the project's test compares.
const EXPECTED_CONDITION: &str = "date = DATE '2016-05-22'";

/// Make a small project: a spec, generated data, the results expected of them with a test, settings, and files for CI
/// and Airflow.
#[derive(Debug, Args)]
pub(crate) struct InitCommand {
    /// The project's directory: a new or an empty one.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The pipeline's name [default: from the directory's name]
    #[arg(long)]
    name: Option<String>,
}

/// A file of a project. `NAME`, `REPOSITORY` and `CONDITION` in it are replaced.
struct ProjectFile {
    path: &'static str,
    text: &'static str,
    executable: bool,
}

const FILES: [ProjectFile; 7] = [
    ProjectFile {
        path: "NAME.yaml",
        text: include_str!("spec.yaml"),
        executable: false,
    },
    ProjectFile {
        path: "forebay.toml",
        text: include_str!("settings.toml"),
        executable: false,
    },
    ProjectFile {
        path: "README.md",
        text: include_str!("readme.md"),
        executable: false,
    },
    ProjectFile {
        path: ".gitignore",
        text: "/.forebay/\n/out/\n",
        executable: false,
    },
    ProjectFile {
        path: "test",
        text: include_str!("test.sh"),
        executable: true,
    },
    ProjectFile {
        path: ".github/workflows/NAME.yaml",
        text: include_str!("workflow.yaml"),
        executable: false,
    },
    ProjectFile {
        path: "dags/NAME_nightly.py",
        text: include_str!("dag.py"),
        executable: false,
    },
];

impl InitCommand {
    pub fn run(self) -> Result<ExitCode> {
        let name = self.pipeline_name()?;
        let root = &self.directory;
        check_empty(root)?;
        let filled = |text: &str| {
            let words = [
                ("NAME", name.as_str()),
                ("REPOSITORY", env!("CARGO_PKG_REPOSITORY")),
                ("CONDITION", EXPECTED_CONDITION),
            ];
            words.iter().fold(text.to_owned(), |text, (word, value)| {
                text.replace(word, value)
            })
        };
        for file in &FILES {
            write(
                &root.join(filled(file.path)),
                &filled(file.text),
                file.executable,
            )?;
        }
        let mut history = DemandOptions::new(HistoryExtent::Days(DAYS), 1, root.join("data"));
        history.series = SERIES;
        history.stores = 2;
        history.period = FilePeriod::Week;
        demand(&history, &mut |_| {})?;
        write(
            &root.join("expected/features.csv"),
            &expected(root, &name)?,
            false,
        )?;
        let directory = root.display();
        super::write_stdout(&format!(
            "{directory}: a spec, its data and its test\nnext: cd {directory} && ./test\n"
        ))?;
        Ok(ExitCode::SUCCESS)
    }

    fn pipeline_name(&self) -> Result<String> {
        let from_directory = || {
            let directory =
                std::path::absolute(&self.directory).unwrap_or_else(|_| self.directory.clone());
            name_of(&directory.file_name().unwrap_or_default().to_string_lossy())
        };
        let name = self.name.clone().unwrap_or_else(from_directory);
        if name == name_of(&name) {
            Ok(name)
        } else {
            Err(usage(format!("`{name}` is not a pipeline's name"))
                .hint(format!("write `{}`", name_of(&name))))
        }
    }
}

/// Refuses a directory that holds anything.
fn check_empty(root: &Path) -> Result<()> {
    let directory = root.display().to_string();
    match std::fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Fault::disk("the directory cannot be read", error).file(directory)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(usage("the directory is not empty")
                .file(directory)
                .hint("name a new directory")),
        },
    }
}

fn write(path: &Path, text: &str, executable: bool) -> Result<()> {
    let written = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        std::fs::write(path, text)?;
        #[cfg(unix)]
        if executable {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    };
    written().map_err(|error| {
        Fault::disk("the project cannot be written", error).file(path.display().to_string())
    })
}

/// The features that the project's test compares with.
fn expected(root: &Path, name: &str) -> Result<String> {
    let path = root.join(format!("{name}.yaml"));
    let text = spec::read_text(&path)?;
    let params = BTreeMap::from([("data".to_owned(), root.join("data").display().to_string())]);
    let pipeline = spec::parse(
        &text,
        &path.display().to_string(),
        &params,
        &Forebay::new().spec_catalog(),
    )?;
    let settings = Settings::load()?;
    let session = SessionOptions {
        threads: settings.threads(None)?.value,
        memory_bytes: settings.memory_bytes(None)?.value,
        state: root.join(".forebay").display().to_string(),
        ..SessionOptions::default()
    };
    let session = Forebay::new().with_options(session).session()?;
    let options = PreviewOptions {
        step: Some("features".to_owned()),
        rows: EXPECTED_ROWS,
        condition: Some(EXPECTED_CONDITION.to_owned()),
        sample_rows: u64::from(DAYS) * SERIES,
        ..PreviewOptions::default()
    };
    let preview = session.preview(&pipeline, &options)?;
    if preview.batches.iter().all(|batch| batch.num_rows() == 0) {
        Err(Fault::new(
            codes::INTERNAL,
            "the generated data have no row of the last day",
        ))
    } else {
        rows::csv(&preview.batches)
    }
}
