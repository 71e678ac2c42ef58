//! Outputs that would overlap with sources, or with each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_contract::plain_path;
use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_storage::{StorageClient, StorageLocation, shell_path_hint};

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
        let output = SinkAddress {
            sink,
            location,
            address: canonical_address(location),
        };
        for (other, address) in &seen {
            if *address == output.address {
                let message = format!("`{}` and `{other}` write to the same directory", sink.name);
                faults.push(output.clash(message, "give each sink a directory of its own"));
                break;
            }
        }
        for source in &pipeline.sources {
            let source_paths = paths.get(&source.name).map_or(&[][..], Vec::as_slice);
            let dataset = datasets.get(&source.name);
            faults.extend(output.source_fault(io, &source.name, source_paths, dataset));
        }
        seen.push((&sink.name, output.address));
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// A sink with the location that it writes to.
struct SinkAddress<'a> {
    sink: &'a PipelineSink,
    location: &'a StorageLocation,
    /// Canonical text of the location.
    address: String,
}

impl SinkAddress<'_> {
    /// The fault of a sink whose directory holds files that a source reads, or lies in a directory
    /// that it reads.
    fn source_fault(
        &self,
        io: &StorageClient,
        source: &str,
        source_paths: &[String],
        dataset: Option<&Dataset>,
    ) -> Option<Fault> {
        let sink = &self.sink.name;
        for folder in dataset.map(read_folders).unwrap_or_default() {
            if is_inside(&address_of(io, folder), &self.address) {
                let message = format!("`{sink}` would write where `{source}` reads `{folder}`");
                return Some(self.clash(message, "write to a directory that holds no input"));
            }
        }
        for path in source_paths {
            // Paths without wildcards may be directories.
            let Some(folder) = plain_path(path) else {
                continue;
            };
            if is_inside(&self.address, &address_of(io, &folder)) {
                let message =
                    format!("`{sink}` would write into the directory that `{source}` reads");
                let hint = "write beside it: the next run would read what this one wrote";
                return Some(self.clash(message, hint));
            }
        }
        None
    }

    fn clash(&self, message: String, hint: &str) -> Fault {
        Fault::new(codes::OUTPUT_CLASH, message)
            .file(&self.location.shown)
            .hint(hint)
            .at(self.sink.at.as_ref())
    }
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
    let mut folders = Vec::new();
    for span in &dataset.spans {
        for piece in &span.pieces {
            if let Some((folder, _)) = piece.path.rsplit_once('/') {
                folders.push(folder);
            }
        }
    }
    folders.dedup();
    folders
}

fn is_inside(path: &str, folder: &str) -> bool {
    let Some(remainder) = path.strip_prefix(folder) else {
        return false;
    };
    remainder.is_empty() || remainder.starts_with('/') || folder.ends_with('/')
}

fn address_of(io: &StorageClient, text: &str) -> String {
    match io.resolve(text) {
        Ok(location) => canonical_address(&location),
        // A path that cannot be resolved has been reported by its readers and writers.
        Err(_) => text.to_owned(),
    }
}

/// Canonical text of a location, with links followed and `..` resolved.
fn canonical_address(location: &StorageLocation) -> String {
    if let Some(local) = &location.local {
        return resolved(local).display().to_string();
    }
    let address = location.at(&location.path).shown;
    address.trim_end_matches('/').to_owned()
}

/// The path with links followed as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        let Ok(real) = ancestor.canonicalize() else {
            continue;
        };
        if let Ok(remainder) = path.strip_prefix(ancestor) {
            return real.join(remainder);
        }
    }
    path.to_owned()
}
