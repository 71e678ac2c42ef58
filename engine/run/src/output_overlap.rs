//! Outputs that would overlap with sources, or with each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_storage::{StorageClient, StorageLocation, plain_path, shell_path_hint};

/// Refuses two sinks in one directory, sinks in a directory from which a source reads, and sources
/// that read the output of a sink: the next run would read its own output. `paths` are those that
/// the sources name, by the names of the sources. Paths of sinks with `~` or variables of a shell are refused, too.
pub(crate) fn check_overlap(
    io: &StorageClient,
    pipeline: &Pipeline,
    paths: &BTreeMap<String, Vec<String>>,
    datasets: &BTreeMap<String, Dataset>,
    sinks: &[(&PipelineSink, StorageLocation)],
) -> Result<()> {
    let mut faults = Vec::new();
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (sink, location) in sinks {
        if let Some(fault) = shell_path_fault(sink, location) {
            faults.push(fault);
        }
        let out = canonical_address(location);
        let mut clash = |message: String, hint: &str| {
            faults.push(
                Fault::new(codes::OUTPUT_CLASH, message)
                    .file(&location.shown)
                    .hint(hint)
                    .at(sink.at.as_ref()),
            );
        };
        if let Some((other, _)) = seen.iter().find(|(_, address)| *address == out) {
            let message = format!("`{}` and `{other}` write to the same directory", sink.name);
            clash(message, "give each sink a directory of its own");
        }
        for source in &pipeline.sources {
            // Paths without wildcards may be directories.
            let source_paths = paths.get(&source.name).into_iter().flatten();
            let mut folders = source_paths.filter_map(|path| plain_path(path));
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
            } else if folders.any(|folder| is_inside(&out, &address_of(io, &folder))) {
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

/// The fault for a local path that only a shell would read as it is meant: without one, the output would go to a folder
/// called `~` or `$HOME`.
fn shell_path_fault(sink: &PipelineSink, location: &StorageLocation) -> Option<Fault> {
    location.local.as_ref()?;
    let path = &location.shown;
    let hint = shell_path_hint(path)?;
    let message = format!("`{}` would write to a folder called `{path}`", sink.name);
    let fault = Fault::new(codes::BAD_VALUE, message).file(path).hint(hint);
    Some(fault.at(sink.at.as_ref()))
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

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|remainder| {
        remainder.is_empty() || remainder.starts_with('/') || folder.ends_with('/')
    })
}

fn address_of(io: &StorageClient, text: &str) -> String {
    // A path that cannot be resolved has been reported by its readers and writers.
    io.resolve(text)
        .map_or_else(|_| text.to_owned(), |location| canonical_address(&location))
}

/// Canonical text of a location, with links followed and `..` resolved.
fn canonical_address(location: &StorageLocation) -> String {
    match &location.local {
        Some(local) => resolved(local).display().to_string(),
        None => location
            .at(&location.path)
            .shown
            .trim_end_matches('/')
            .to_owned(),
    }
}

/// The path with links followed as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(remainder)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(remainder);
        }
    }
    path.to_owned()
}
