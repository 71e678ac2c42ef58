//! Where a table lies: as storage knows it, and as the kernel names it.

use delta_kernel::{FileMeta, KernelError};
use forebay_model::{Fault, Result, codes};
use forebay_storage::{StorageClient, StorageLocation};
use percent_encoding::percent_decode_str;
use url::Url;

/// The directory of the log, below that of the table.
pub(super) const LOG: &str = "_delta_log";

/// The root of a table.
#[derive(Clone)]
pub(super) struct TablePlace {
    pub(super) root: StorageLocation,
    /// Ends with a slash.
    pub(super) url: Url,
}

/// Where a file of a table lies.
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
pub(super) fn full_path(place: StorageLocation) -> String {
    place
        .local
        .map_or(place.shown, |local| local.display().to_string())
}

pub(super) fn decode(text: &str) -> Result<String> {
    let wrong =
        |error| Fault::new(codes::CORRUPT, format!("`{text}` is not a path in UTF-8")).cause(error);
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(wrong)
}

impl TablePlace {
    pub(super) fn new(io: &StorageClient, path: &str) -> Result<TablePlace> {
        let root = io.resolve(path.trim_end_matches('/'))?;
        let url = match &root.local {
            Some(local) => Url::from_directory_path(local).map_err(|()| url_fault(path))?,
            None => {
                // The key is no URL yet: what it may not hold there is encoded.
                let (scheme, rest) = root
                    .shown
                    .split_once("://")
                    .ok_or_else(|| url_fault(path))?;
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
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
        Ok(TablePlace { root, url })
    }

    /// The log's directory.
    pub(super) fn log(&self) -> StorageLocation {
        self.root.join(LOG)
    }

    /// Whether there is a table.
    pub(super) fn has_log(&self, io: &StorageClient) -> Result<bool> {
        match &self.root.local {
            Some(local) => Ok(local.join(LOG).is_dir()),
            None => Ok(!io.list(&self.log())?.is_empty()),
        }
    }

    /// Where a URL of the kernel leads.
    pub(super) fn locate(&self, io: &StorageClient, url: &Url) -> Result<StorageLocation> {
        if let Some(below) = url.as_str().strip_prefix(self.url.as_str()) {
            return Ok(self.root.join(&decode(below)?));
        }
        match url.to_file_path() {
            Ok(local) if url.scheme() == "file" => io.resolve(&local.display().to_string()),
            _ => io.resolve(&format!(
                "{}://{}{}",
                url.scheme(),
                url.authority(),
                decode(url.path())?
            )),
        }
    }

    /// Where the path of an action leads: relative to the table, or a URL.
    pub(super) fn file(&self, io: &StorageClient, path: &str) -> Result<FilePlace> {
        if path.contains("://") || path.starts_with("file:") {
            let url = Url::parse(path).map_err(|error| url_fault(path).cause(error))?;
            let path = full_path(self.locate(io, &url)?);
            let root = full_path(self.root.clone());
            let below = path
                .strip_prefix(&root)
                .and_then(|below| below.strip_prefix('/'));
            return Ok(FilePlace {
                relative: below.unwrap_or(&path).to_owned(),
                path,
            });
        }
        let relative = decode(path)?;
        Ok(FilePlace {
            path: full_path(self.root.join(&relative)),
            relative,
        })
    }

    /// The files of a directory whose names come after one, in order of their names.
    pub(super) fn list_after(&self, io: &StorageClient, after: &Url) -> Result<Vec<FileMeta>> {
        let below = after
            .as_str()
            .strip_prefix(self.url.as_str())
            .ok_or_else(|| url_fault(after.as_str()))?;
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        let folder_url = self
            .url
            .join(&format!("{folder}/"))
            .map_err(|error| url_fault(below).cause(error))?;
        let place = self.root.join(&decode(folder)?);
        let prefix = format!("{}/", place.path);
        let mut files = Vec::new();
        for object in io.list_after(&place, &decode(name)?)? {
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

/// A fault for what the kernel answered; one of ours that made it fail is given back as it was.
pub(super) fn kernel_fault(error: KernelError, table: &str) -> Fault {
    match error {
        KernelError::Backtraced { source, .. } => kernel_fault(*source, table),
        KernelError::GenericError { source } => match source.downcast::<Fault>() {
            Ok(fault) => *fault,
            Err(source) => unreadable(table).cause(source),
        },
        KernelError::Unsupported(what) => {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                format!("the Delta table cannot be read: {what}"),
            )
            .file(table);
            fault.hint("let the program that wrote the table turn the feature off, or export the table to Parquet")
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
    fn urls_of_an_action_keep_their_container() {
        let io = StorageClient::new().unwrap();
        let place =
            TablePlace::new(&io, "abfss://lake@account.dfs.core.windows.net/tables/a").unwrap();
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
            let found = place.file(&io, path).unwrap();
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
