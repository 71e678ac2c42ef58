//! `forebay report`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use forebay_connectors::has_delta_log;
use forebay_model::{Pipeline, PipelineSink, Result};
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
        let known = self.known();
        page.finish(known, |(pipeline, outputs, session)| {
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
        let places = sinks.filter_map(|sink| Some((sink, sink.config["path"].as_str()?)));
        let output = |(sink, path): (&PipelineSink, &str)| {
            let seen =
                match has_delta_log(session.io(), path)? {
                    true => Some(seen_table(session.io(), path)?),
                    false => Manifest::read(session.io(), &output_root(session.io(), path)?)?.map(
                        |seen| SeenFiles {
                            rows: Some(seen.rows),
                            files: seen.files().count() as u64,
                            bytes: seen.files().map(|file| file.bytes).sum(),
                        },
                    ),
                };
            Ok(LastOutput {
                sink: sink.name.clone(),
                path: path.to_owned(),
                seen,
            })
        };
        let outputs = places.map(output).collect::<Result<Vec<_>>>()?;
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
