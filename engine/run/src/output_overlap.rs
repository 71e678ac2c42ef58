//! Outputs that would lie over the data that is read, or over each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, PipelineSource, Result, codes};
use forebay_storage::{StorageClient, StorageLocation, plain_path};
use serde_json::Value;

/// Refuses two sinks in one directory, sinks in a directory from which a source reads, and sources
/// that read what a sink writes: the next run would read its own output.
pub(crate) fn check_overlap(
    io: &StorageClient,
    pipeline: &Pipeline,
    datasets: &BTreeMap<String, Dataset>,
    sinks: &[(&PipelineSink, StorageLocation)],
) -> Result<()> {
    let mut faults = Vec::new();
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (sink, place) in sinks {
        let out = canonical_address(place);
        let mut clash = |message: String, hint: &str| {
            faults.push(
                Fault::new(codes::OUTPUT_CLASH, message)
                    .file(&place.shown)
                    .hint(hint)
                    .at(sink.at.as_ref()),
            );
        };
        if let Some((other, _)) = seen.iter().find(|(_, known)| *known == out) {
            let message = format!("`{}` and `{other}` write to the same directory", sink.name);
            clash(message, "give each sink a directory of its own");
        }
        for source in &pipeline.sources {
            let read = datasets
                .get(&source.name)
                .map(read_folders)
                .unwrap_or_default();
            if let Some(folder) = read
                .into_iter()
                .find(|folder| is_inside(&address_of(io, folder), &out))
            {
                let message = format!(
                    "`{}` would write where `{}` reads `{folder}`",
                    sink.name, source.name
                );
                clash(message, "write to a directory that holds no input");
            } else if folders(source).any(|folder| is_inside(&out, &address_of(io, &folder))) {
                let message = format!(
                    "`{}` would write into the directory that `{}` reads",
                    sink.name, source.name
                );
                clash(
                    message,
                    "write beside it: the next run would read what this one wrote",
                );
            }
        }
        seen.push((&sink.name, out));
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// The directories in which a dataset's files lie; files come in the order of their paths.
fn read_folders(dataset: &Dataset) -> Vec<&str> {
    let files = dataset.spans.iter().flat_map(|span| &span.pieces);
    let mut folders: Vec<&str> = files
        .filter_map(|piece| piece.path.rsplit_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    folders.dedup();
    folders
}

/// The paths of a source that may be directories: those without wildcards.
fn folders(source: &PipelineSource) -> impl Iterator<Item = String> {
    let one = source.config.get("path").and_then(Value::as_str);
    let many = source
        .config
        .get("paths")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    one.into_iter().chain(many).filter_map(plain_path)
}

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || folder.ends_with('/'))
}

fn address_of(io: &StorageClient, text: &str) -> String {
    // A path that cannot be understood has been reported by those who use it.
    io.resolve(text)
        .map_or_else(|_| text.to_owned(), |place| canonical_address(&place))
}

/// One text for one place: links followed, `..` resolved.
fn canonical_address(place: &StorageLocation) -> String {
    match &place.local {
        Some(local) => resolved(local).display().to_string(),
        None => place.at(&place.path).shown.trim_end_matches('/').to_owned(),
    }
}

/// The path with links followed as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
