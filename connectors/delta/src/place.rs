//! Location of a table: as storage knows it, and as the kernel names it.

use delta_kernel::{FileMeta, KernelError};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};
use percent_encoding::percent_decode_str;
use url::Url;

/// Directory of the log, relative to that of the table.
pub(super) const LOG: &str = "_delta_log";

/// The root of a table.
#[derive(Clone)]
pub(super) struct TablePlace {
    pub(super) root: StorageLocation,
    /// Ends with a slash.
    pub(super) url: Url,
    /// Directories elsewhere, in full, of which the log may name files.
    outside: Vec<String>,
}

/// Location of a file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePlace {
    /// A path from the root of the file system, or a URL.
    pub(super) path: String,
    /// Below the root of the table; the whole path of a file elsewhere.
    pub(super) relative: String,
}

fn url_fault(path: &str) -> Fault {
    Fault::new(
        codes::BAD_VALUE,
        format!("`{path}` cannot be the directory of a table"),
    )
}

/// A path from the root of the file system, or a URL.
pub(super) fn full_path(location: StorageLocation) -> String {
    location
        .local
        .map_or(location.shown, |local| local.display().to_string())
}

pub(super) fn decode(text: &str) -> Result<String> {
    let wrong =
        |error| Fault::new(codes::CORRUPT, format!("`{text}` is not a path in UTF-8")).cause(error);
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(wrong)
}

/// The scheme of a URL and what follows it; `None` of a path. The scheme is `s3` for Hadoop's names of S3.
fn split_scheme(path: &str) -> Option<(&str, &str)> {
    if path.starts_with('/') {
        return None;
    }
    match path.split_once("://")? {
        ("s3a" | "s3n", after_scheme) => Some(("s3", after_scheme)),
        other => Some(other),
    }
}

/// The scheme of a URL; `file` of a path.
pub(super) fn scheme_of(path: &str) -> &str {
    split_scheme(path).map_or("file", |(scheme, _)| scheme)
}

/// True for a file that the log, which encodes paths, has below its table: no URL, no path from a root, no way out of the
/// directory.
pub(super) fn is_below_table(logged: &str) -> bool {
    if logged.contains("://") || logged.starts_with("file:") {
        return false;
    }
    decode(logged)
        .is_ok_and(|path| !path.starts_with('/') && !path.split('/').any(|part| part == ".."))
}

/// A full path or a URL in its shortest form: no empty parts, no `.`, no `..`. `None` where `..` leaves its root.
fn shortest(path: &str) -> Option<String> {
    let (root, below) = match split_scheme(path) {
        Some((scheme, after_scheme)) => {
            let (bucket, key) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
            (format!("{scheme}://{bucket}"), key)
        }
        None => (String::new(), path),
    };
    let mut parts = Vec::new();
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(format!("{root}/{}", parts.join("/")))
}

/// The part of a path below a directory, both in their shortest form.
fn path_below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory)?.strip_prefix('/')
}

/// A fault for a file that the log of a table may not name.
fn outside_fault(logged: &str, table: &str, same_storage: bool) -> Fault {
    let fault = Fault::new(
        codes::ACCESS,
        format!("the log of the Delta table names `{logged}`, which is outside of the table"),
    )
    .file(table);
    if same_storage {
        fault.hint(
            "the files of a shallow clone lie in another table: if this is one, allow that \
             directory with `allow_outside: [DIRECTORY]`",
        )
    } else {
        fault.hint("a log may only name files of the storage in which the table lies")
    }
}

/// The location without symbolic links: the kernel follows those, and names files by the directories in which they lie.
fn resolve_links(io: &StorageClient, location: StorageLocation) -> Result<StorageLocation> {
    let Some(local) = &location.local else {
        return Ok(location);
    };
    // A table that does not exist yet has no links.
    let Ok(directory) = local.canonicalize() else {
        return Ok(location);
    };
    if directory == *local {
        return Ok(location);
    }
    let mut resolved = io.resolve(&directory.display().to_string())?;
    resolved.shown = location.shown;
    Ok(resolved)
}

impl TablePlace {
    pub(super) fn new(io: &StorageClient, path: &str) -> Result<TablePlace> {
        let root = resolve_links(io, io.resolve(path.trim_end_matches('/'))?)?;
        let url = match &root.local {
            Some(local) => Url::from_directory_path(local).map_err(|()| url_fault(path))?,
            None => {
                // The key is no URL yet: what it may not hold there is encoded.
                let (scheme, after_scheme) = root
                    .shown
                    .split_once("://")
                    .ok_or_else(|| url_fault(path))?;
                let (bucket, key) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
                let mut url = Url::parse(&format!("{scheme}://{bucket}/"))
                    .map_err(|e| url_fault(path).cause(e))?;
                let encoded = key.trim_end_matches('/').replace('%', "%25");
                url.set_path(&if encoded.is_empty() {
                    "/".to_owned()
                } else {
                    format!("/{encoded}/")
                });
                url
            }
        };
        Ok(TablePlace {
            root,
            url,
            outside: Vec::new(),
        })
    }

    /// Lets the log name files of further directories, of the storage in which the table lies.
    pub(super) fn allow_outside(
        mut self,
        io: &StorageClient,
        directories: &[String],
    ) -> Result<TablePlace> {
        for directory in directories {
            let full = if scheme_of(directory) == "file" {
                io.absolute_path(directory)?.display().to_string()
            } else {
                directory.clone()
            };
            if let Some(shortest) = shortest(&full) {
                self.outside.push(shortest);
            }
        }
        Ok(self)
    }

    /// Location of a file that the log names, if it may be read: `path` in full and decoded, `logged` as the log has it.
    fn admit(&self, io: &StorageClient, path: &str, logged: &str) -> Result<StorageLocation> {
        let root = full_path(self.root.clone());
        let same_storage = scheme_of(path) == scheme_of(&root);
        let refused = || outside_fault(logged, &self.root.shown, same_storage);
        let path = shortest(path).ok_or_else(refused)?;
        if let Some(below) = shortest(&root).and_then(|root| path_below(&path, &root)) {
            return Ok(self.root.join(below));
        }
        let is_allowed = |directory: &String| path_below(&path, directory).is_some();
        if same_storage && self.outside.iter().any(is_allowed) {
            return io.resolve(&path);
        }
        Err(refused())
    }

    /// The log's directory.
    pub(super) fn log(&self) -> StorageLocation {
        self.root.join(LOG)
    }

    /// True if a table exists.
    pub(super) fn has_log(&self, io: &StorageClient) -> Result<bool> {
        match &self.root.local {
            Some(local) => Ok(local.join(LOG).is_dir()),
            None => Ok(!io.list(&self.log())?.is_empty()),
        }
    }

    /// Location of a URL of the kernel.
    pub(super) fn locate(&self, io: &StorageClient, url: &Url) -> Result<StorageLocation> {
        let path = match url.scheme() {
            "file" => {
                let local = url.to_file_path().map_err(|()| url_fault(url.as_str()))?;
                local.display().to_string()
            }
            scheme => format!("{scheme}://{}{}", url.authority(), decode(url.path())?),
        };
        self.admit(io, &path, url.as_str())
    }

    /// Location of the path of an action: relative to the table, or a URL.
    pub(super) fn file(&self, io: &StorageClient, path: &str) -> Result<FilePlace> {
        let root = full_path(self.root.clone());
        let location = if path.contains("://") || path.starts_with("file:") {
            let url = Url::parse(path).map_err(|error| url_fault(path).cause(error))?;
            self.locate(io, &url)?
        } else {
            let decoded = decode(path)?;
            // A path from the root of the file system, or of the bucket.
            let is_absolute = decoded.starts_with('/');
            let full = if is_absolute {
                format!("{}{decoded}", self.storage_root())
            } else {
                format!("{}/{decoded}", root.trim_end_matches('/'))
            };
            self.admit(io, &full, path)?
        };
        let path = full_path(location);
        let below = path_below(&path, &root).map(str::to_owned);
        Ok(FilePlace {
            relative: below.unwrap_or_else(|| path.clone()),
            path,
        })
    }

    /// The scheme and the bucket of the table; empty in the file system.
    fn storage_root(&self) -> String {
        match (&self.root.local, self.root.shown.split_once("://")) {
            (None, Some((scheme, after_scheme))) => {
                let bucket = after_scheme.split('/').next().unwrap_or_default();
                format!("{scheme}://{bucket}")
            }
            _ => String::new(),
        }
    }

    /// The files of a directory whose names come after one, in order of their names.
    pub(super) fn list_after(&self, io: &StorageClient, last_seen: &Url) -> Result<Vec<FileMeta>> {
        let below = last_seen
            .as_str()
            .strip_prefix(self.url.as_str())
            .ok_or_else(|| url_fault(last_seen.as_str()))?;
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        let folder_url = self
            .url
            .join(&format!("{folder}/"))
            .map_err(|error| url_fault(below).cause(error))?;
        let directory = self.root.join(&decode(folder)?);
        let prefix = format!("{}/", directory.path);
        let mut files = Vec::new();
        for object in io.list_after(&directory, &decode(name)?)? {
            let location = object.location.to_string();
            // Sidecars lie deeper; the kernel opens them by name.
            let Some(name) = location
                .strip_prefix(&prefix)
                .filter(|name| !name.contains('/'))
            else {
                continue;
            };
            let Ok(url) = folder_url.join(name) else {
                continue;
            };
            files.push(FileMeta::new(
                url,
                object.last_modified.timestamp_millis(),
                object.size,
            ));
        }
        Ok(files)
    }
}

/// Fault for an error of the kernel. A fault of Forebay's storage that made the kernel fail is
/// returned unchanged.
pub(super) fn kernel_fault(error: KernelError, table: &str) -> Fault {
    match error {
        KernelError::Backtraced { source, .. } => kernel_fault(*source, table),
        KernelError::GenericError { source } => match source.downcast::<Fault>() {
            Ok(fault) => *fault,
            Err(source) => unreadable(table).cause(source),
        },
        KernelError::Unsupported(feature) => {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                format!("the Delta table cannot be read: {feature}"),
            )
            .file(table);
            fault.hint(
                "let the program that wrote the table turn the feature off, or export the \
                 table to Parquet",
            )
        }
        KernelError::EmptyLog => no_table_fault(table),
        KernelError::FileNotFound(path) => {
            let fault =
                Fault::new(codes::NOT_FOUND, "a file of the table's log is not there").file(path);
            fault.hint("the log may have been cleaned up: read a later version")
        }
        other => unreadable(table).cause(other),
    }
}

fn unreadable(table: &str) -> Fault {
    Fault::new(codes::CORRUPT, "the log of the Delta table cannot be read").file(table)
}

/// A fault for a directory that is no table.
pub(super) fn no_table_fault(table: &str) -> Fault {
    let fault = Fault::new(codes::NO_INPUT, "there is no Delta table here")
        .file(table)
        .fragment(table, 0);
    fault.hint(format!(
        "a Delta table is a directory with a directory `{LOG}`; plain files are read by `parquet:`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_tables_are_told_by_their_paths() {
        let below = [
            "a.parquet",
            "at=06%3A30/a.parquet",
            "at=06:30/a.parquet",
            "a..b/c.parquet",
        ];
        let elsewhere = [
            "../a.parquet",
            "x/%2e%2e/%2e%2e/a.parquet",
            "/a.parquet",
            "s3://lake/a.parquet",
            "file:/a.parquet",
        ];
        assert_eq!(below.map(is_below_table), [true; 4]);
        assert_eq!(elsewhere.map(is_below_table), [false; 5]);
    }

    #[test]
    fn urls_of_an_action_keep_their_container() {
        let io = StorageClient::new().unwrap();
        let table = "abfss://lake@account.dfs.core.windows.net/tables/a";
        let original = ["abfss://other@account.dfs.core.windows.net".to_owned()];
        let table_place = TablePlace::new(&io, table)
            .and_then(|table_place| table_place.allow_outside(&io, &original))
            .unwrap();
        for (path, expected) in [
            (
                "abfss://lake@account.dfs.core.windows.net/tables/a/b%20c.parquet",
                ("b c.parquet", true),
            ),
            (
                "abfss://other@account.dfs.core.windows.net/b.parquet",
                ("b.parquet", false),
            ),
        ] {
            let found = table_place.file(&io, path).unwrap();
            let decoded = path.replace("%20", " ");
            let relative = if expected.1 {
                expected.0.to_owned()
            } else {
                decoded.clone()
            };
            assert_eq!(
                found,
                FilePlace {
                    path: decoded,
                    relative
                }
            );
        }
    }
}
