//! `forebay report`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use forebay_connectors::has_delta_log;
use forebay_model::{Pipeline, Result};
use forebay_run::{Manifest, Session, output_root};
use forebay_storage::StorageClient;

use super::options::{RunArgs, SpecArgs};
use crate::VisibleDataset;
use crate::page::{LastOutput, PageArgs, SeenFiles, last_page};

/// Write a page of what the runs of a spec have left: outputs as readers see them, the graph, profiles, costs. Runs
/// nothing.
#[derive(Debug, Args)]
pub(crate) struct ReportCommand {
    #[command(flatten)]
    spec: SpecArgs,
    /// The page: one HTML file that opens offline.
    file: PathBuf,
    #[command(flatten)]
    options: RunArgs,
}

impl ReportCommand {
    pub fn run(self) -> Result<ExitCode> {
        let page = PageArgs {
            report: Some(self.file.clone()),
        }
        .begin(self.spec.shown())?;
        let last_outputs = self.known();
        page.finish(last_outputs, |(pipeline, outputs, session)| {
            let mut page = last_page(pipeline, outputs);
            page.add_kept(pipeline, session)?;
            Ok(page)
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn known(&self) -> Result<(Pipeline, Vec<LastOutput>, Session)> {
        let session = self.options.silent_session()?;
        let pipeline = self.spec.pipeline()?;
        let sinks = pipeline
            .sinks
            .iter()
            .chain(&pipeline.trainings)
            .chain(&pipeline.predictions);
        let mut outputs = Vec::new();
        for sink in sinks {
            if let Some(path) = sink.path() {
                outputs.push(LastOutput {
                    sink: sink.name.clone(),
                    path: path.to_owned(),
                    seen: seen_files(session.io(), path)?,
                });
            }
        }
        Ok((pipeline, outputs, session))
    }
}

fn seen_table(io: &StorageClient, path: &str) -> Result<SeenFiles> {
    let table = VisibleDataset::open(io, path)?;
    let files = table.files();
    Ok(SeenFiles {
        // Rows that are deleted are in the files all the same.
        rows: files
            .iter()
            .map(|file| file.rows)
            .sum::<Option<u64>>()
            .filter(|_| !table.has_deleted_rows()),
        files: files.len() as u64,
        bytes: files.iter().map(|file| file.bytes).sum(),
    })
}

/// The published files of an output; `None` if there are none.
fn seen_files(io: &StorageClient, path: &str) -> Result<Option<SeenFiles>> {
    if has_delta_log(io, path)? {
        return seen_table(io, path).map(Some);
    }
    let Some(manifest) = Manifest::read(io, &output_root(io, path)?)? else {
        return Ok(None);
    };
    Ok(Some(SeenFiles {
        rows: Some(manifest.rows),
        files: manifest.files().count() as u64,
        bytes: manifest.files().map(|file| file.bytes).sum(),
    }))
}
