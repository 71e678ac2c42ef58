//! Finds the files of a source's paths.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use forebay_model::{
    Fault, LeftOutFiles, LeftOutReason, Result, codes, is_unusable_name, nearest_word,
};
use forebay_storage::{StorageClient, shell_path_hint};
use object_store::ObjectMeta;

use super::blob;
use super::glob::{self, Glob, GlobMatch};
use super::stamp::FileStamp;
use super::survey::{InFile, inspect_parallel};

/// Folders inside folders at most: deeper ones are links in a circle.
const DEPTH_MAX: usize = 64;

/// A file of a source.
#[derive(Debug, Clone)]
pub struct ListedFile {
    /// An absolute path or a URL.
    pub path: String,
    /// The path below the source's root.
    pub relative: String,
    /// Stamp that distinguishes its versions.
    pub stamp: FileStamp,
    /// The object's etag, where the listing has one that reads can use.
    pub etag: Option<String>,
}

/// The marks by which files of a format are recognised inside folders.
pub(crate) struct FileMarks {
    /// The ends of their names, in lower case.
    pub(crate) endings: &'static [&'static str],
    /// The first bytes of every such file; empty for a format that has none.
    pub(crate) magic: &'static [u8],
}

/// The files of a source, and others in its folders.
pub(crate) struct FileListing {
    /// Files in the order of their paths.
    pub(crate) files: Vec<ListedFile>,
    pub(crate) left_out: LeftOutFiles,
}

/// Name endings that programs give to unfinished files and to backups. Their rows are those of
/// another file.
const COPY_ENDINGS: [&str; 8] = [
    "~", ".bak", ".old", ".orig", ".part", ".swp", ".temp", ".tmp",
];

/// Finds the files of some paths. Inside folders, files count by the end of their names or by their first bytes; where no
/// name in a folder has such an end, all files count. The files that do not count are reported. Names that begin with `_`
/// or `.` are passed over silently.
pub(crate) fn list_files(
    io: &StorageClient,
    paths: &[&str],
    marks: &FileMarks,
) -> Result<FileListing> {
    let mut roots: Vec<String> = Vec::new();
    let mut entries: Vec<ListingEntry> = Vec::new();
    let mut left_out: Vec<(String, LeftOutReason)> = Vec::new();
    for path in paths {
        let (fixed, pattern) = glob::split_pattern(path);
        let (root, listed) = if path.contains("://") && !path.starts_with("file://") {
            remote(io, &fixed, pattern)?
        } else {
            local(io, &fixed, pattern)?
        };
        let recognised = recognise_files(io, listed, marks, &mut left_out)?;
        if recognised.is_empty() {
            return Err(no_match_fault(path, &root));
        }
        roots.push(root);
        entries.extend(recognised);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries.dedup_by(|a, b| a.path == b.path);
    let special = entries
        .iter()
        .filter(|entry| entry.is_special)
        .map(|entry| special_file_fault(&entry.path));
    if let Some(fault) = Fault::combine(special.collect()) {
        return Err(fault);
    }
    let root = common_root(&roots);
    let relative = |path: &str| {
        path.strip_prefix(root.as_str())
            .unwrap_or(path)
            .trim_start_matches('/')
            .to_owned()
    };
    // Another path may name a file that a folder leaves out.
    left_out.retain(|(path, _)| {
        entries
            .binary_search_by(|file| file.path.cmp(path))
            .is_err()
    });
    left_out.sort();
    left_out.dedup();
    let by_path = left_out
        .into_iter()
        .map(|(path, reason)| (relative(&path), reason));
    let left_out = LeftOutFiles::new(by_path);
    let files = entries.into_iter().map(|entry| ListedFile {
        relative: relative(&entry.path),
        path: entry.path,
        stamp: entry.stamp,
        etag: entry.etag,
    });
    Ok(FileListing {
        files: files.collect(),
        left_out,
    })
}

/// Entry that is no folder and that the pattern matches.
pub(crate) struct ListingEntry {
    pub(crate) path: String,
    stamp: FileStamp,
    etag: Option<String>,
    /// True if the pattern names it, not only a folder above it.
    is_named: bool,
    /// True for a FIFO, a socket or a device. Opening one may block, and its size has no meaning.
    is_special: bool,
}

impl InFile for &ListedFile {
    fn path(&self) -> &str {
        &self.path
    }
}

impl InFile for ListedFile {
    fn path(&self) -> &str {
        &self.path
    }
}

impl InFile for ListingEntry {
    fn path(&self) -> &str {
        &self.path
    }
}

impl ListingEntry {
    fn local(path: String, meta: &Metadata, is_named: bool) -> ListingEntry {
        ListingEntry {
            path,
            stamp: FileStamp::local(meta),
            etag: None,
            is_named,
            is_special: !meta.is_file(),
        }
    }

    /// Compares the first bytes of the file with those of a format. Nothing is read for a format without such bytes.
    fn begins_with(&self, io: &StorageClient, magic: &[u8]) -> Result<bool> {
        let length = magic.len() as u64;
        // Opening a FIFO would wait for a writer.
        if magic.is_empty() || self.is_special || self.stamp.size < length {
            return Ok(false);
        }
        let file = match &self.etag {
            Some(etag) => blob::open_version(io, &self.path, etag)?,
            None => blob::open_file(io, &self.path)?.0,
        };
        Ok(file.read(&self.path, 0..length)? == magic)
    }

    fn remote(path: String, meta: &ObjectMeta, is_named: bool) -> ListingEntry {
        // Weak etags match nothing.
        let etag = meta.e_tag.clone().filter(|etag| !etag.starts_with("W/"));
        ListingEntry {
            path,
            stamp: FileStamp::remote(meta),
            etag,
            is_named,
            is_special: false,
        }
    }
}

impl FileMarks {
    fn fits_name(&self, path: &str) -> bool {
        ends_with_any(path, self.endings)
    }
}

fn ends_with_any(path: &str, endings: &[&str]) -> bool {
    let lower = path.to_ascii_lowercase();
    endings.iter().any(|ending| lower.ends_with(ending))
}

/// The entries of a path that are files of the format. Adds the others to `left_out`.
fn recognise_files(
    io: &StorageClient,
    listed: Vec<ListingEntry>,
    marks: &FileMarks,
    left_out: &mut Vec<(String, LeftOutReason)>,
) -> Result<Vec<ListingEntry>> {
    let is_choosy = listed
        .iter()
        .any(|entry| !entry.is_named && marks.fits_name(&entry.path));
    if !is_choosy {
        return Ok(listed);
    }
    let mut files = Vec::new();
    let mut unsure = Vec::new();
    for entry in listed {
        if entry.is_named || marks.fits_name(&entry.path) {
            files.push(entry);
        } else if ends_with_any(&entry.path, &COPY_ENDINGS) {
            left_out.push((entry.path, LeftOutReason::Copy));
        } else {
            unsure.push(entry);
        }
    }
    let begins = inspect_parallel(&unsure, |entry| entry.begins_with(io, marks.magic))?;
    for (entry, is_file) in unsure.into_iter().zip(begins) {
        if is_file {
            files.push(entry);
        } else {
            left_out.push((entry.path, LeftOutReason::Name));
        }
    }
    Ok(files)
}

fn special_file_fault(path: &str) -> Fault {
    let fault = Fault::new(
        codes::UNSUPPORTED,
        "a FIFO, a socket or a device cannot be read as data",
    )
    .file(path);
    fault.hint("copy its content to a file, or name the other files by a pattern")
}

/// Fault for a listed file whose metadata cannot be read.
fn metadata_fault(path: &Path, error: io::Error) -> Fault {
    let file = path.display().to_string();
    if is_unusable_name(&error) {
        return Fault::unusable_name("the file cannot be looked at", error).file(file);
    }
    match error.kind() {
        io::ErrorKind::NotFound => Fault::new(codes::NOT_FOUND, "the link leads to nothing")
            .file(file)
            .cause(error)
            .hint("restore the file that it leads to, or remove the link"),
        io::ErrorKind::PermissionDenied => {
            Fault::new(codes::ACCESS, "the folder may not be searched")
                .file(file)
                .cause(error)
                .hint("folders of data need the permissions to read and to execute")
        }
        _ => Fault::new(codes::STORAGE, "the file cannot be looked at")
            .file(file)
            .cause(error),
    }
}

/// Metadata of a path, following links; `None` if it does not exist. A dangling link is a fault.
fn metadata_of(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(metadata_fault(path, error)),
    }
}

fn local(
    io: &StorageClient,
    fixed: &str,
    pattern: Option<Glob>,
) -> Result<(String, Vec<ListingEntry>)> {
    let root = io.absolute_path(fixed)?;
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(
            Fault::new(codes::UNSUPPORTED, "the file's name is not valid UTF-8")
                .file(path.to_string_lossy()),
        ),
    };
    let mut entries = Vec::new();
    match metadata_of(&root)? {
        Some(meta) if meta.is_dir() => {
            walk_folder(
                &root,
                "",
                &pattern.unwrap_or_else(Glob::everything),
                0,
                &mut entries,
            )?;
        }
        Some(meta) if pattern.is_none() => {
            let parent = root.parent().unwrap_or(&root);
            return Ok((
                text(parent)?,
                vec![ListingEntry::local(text(&root)?, &meta, true)],
            ));
        }
        _ => {}
    }
    Ok((text(&root)?, entries))
}

fn walk_folder(
    folder: &Path,
    relative: &str,
    pattern: &Glob,
    depth: usize,
    entries: &mut Vec<ListingEntry>,
) -> Result<()> {
    let refused = |error: io::Error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => codes::ACCESS,
            _ => codes::STORAGE,
        };
        Fault::new(code, "the folder cannot be listed")
            .file(folder.display().to_string())
            .cause(error)
    };
    if depth > DEPTH_MAX {
        return Err(Fault::new(
            codes::LIMIT,
            format!("folders are nested more than {DEPTH_MAX} deep"),
        )
        .file(folder.display().to_string())
        .hint("is there a link that leads in a circle?"));
    }
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let path = entry.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(
                Fault::new(codes::UNSUPPORTED, "the file's name is not valid UTF-8")
                    .file(path.to_string_lossy()),
            );
        };
        let below = if relative.is_empty() {
            name.to_owned()
        } else {
            format!("{relative}/{name}")
        };
        let matched = pattern.matches(&below);
        if matched == GlobMatch::No {
            continue;
        }
        // Links are followed; all else is looked at from its folder, which is nearer than the root.
        let is_link = entry.file_type().is_ok_and(|of| of.is_symlink());
        let meta = match entry.metadata() {
            Ok(meta) if !is_link => Some(meta),
            _ => metadata_of(&path)?,
        };
        // A file that vanishes between the listing and here is as good as not there.
        let Some(meta) = meta else { continue };
        if meta.is_dir() {
            walk_folder(&path, &below, pattern, depth + 1, entries)?;
        } else if matched != GlobMatch::Above {
            entries.push(ListingEntry::local(
                path.display().to_string(),
                &meta,
                matched == GlobMatch::Named,
            ));
        }
    }
    Ok(())
}

fn remote(
    io: &StorageClient,
    fixed: &str,
    pattern: Option<Glob>,
) -> Result<(String, Vec<ListingEntry>)> {
    let location = io.resolve(fixed)?;
    let root = location
        .at(&location.path)
        .shown
        .trim_end_matches('/')
        .to_owned();
    let may_be_key =
        pattern.is_none() && !location.path.as_ref().is_empty() && !fixed.ends_with('/');
    if location.is_web() && (pattern.is_some() || !may_be_key) {
        let fault = Fault::new(codes::UNSUPPORTED, "a web server has no listings").file(root);
        return Err(
            fault.hint("name each file: `paths: [https://host/a.parquet, https://host/b.parquet]`")
        );
    }
    let pattern = pattern.unwrap_or_else(Glob::everything);
    let mut entries = Vec::new();
    let listed = if location.is_web() {
        Vec::new()
    } else {
        io.list(&location)?
    };
    for meta in listed {
        let path = location.at(&meta.location).shown;
        let relative = path
            .strip_prefix(root.as_str())
            .unwrap_or(&path)
            .trim_start_matches('/')
            .to_owned();
        let matched = pattern.matches(&relative);
        if matches!(matched, GlobMatch::Named | GlobMatch::Inside) {
            entries.push(ListingEntry::remote(
                path,
                &meta,
                matched == GlobMatch::Named,
            ));
        }
    }
    // Not a folder: then perhaps an object.
    if entries.is_empty()
        && may_be_key
        && let Some(meta) = io.head(&location)?
    {
        let parent = root
            .rsplit_once('/')
            .map_or(root.as_str(), |(parent, _)| parent)
            .to_owned();
        return Ok((parent, vec![ListingEntry::remote(root, &meta, true)]));
    }
    Ok((root, entries))
}

/// The deepest folder that holds all of the roots.
fn common_root(roots: &[String]) -> String {
    let Some((first, others)) = roots.split_first() else {
        return String::new();
    };
    let mut parts: Vec<&str> = first.split('/').collect();
    for root in others {
        let same = parts
            .iter()
            .zip(root.split('/'))
            .take_while(|(a, b)| **a == *b)
            .count();
        parts.truncate(same);
    }
    parts.join("/")
}

/// Several characters in brackets, which patterns of a shell take for one of them.
fn bracket_group(path: &str) -> Option<&str> {
    let from = path.find('[')?;
    let length = path[from..].find(']')?;
    // A single character in brackets is how a wildcard stands for itself.
    (length > 2).then(|| &path[from..=from + length])
}

fn no_match_fault(path: &str, root: &str) -> Fault {
    let fault = Fault::new(codes::NO_INPUT, format!("no file matches `{path}`"))
        .file(path)
        .fragment(path, 0);
    if root.contains("://") {
        return fault.hint(format!(
            "nothing below `{root}` fits; names that begin with `_` or `.` do not count"
        ));
    }
    if let Some(hint) = shell_path_hint(path) {
        return fault.hint(hint);
    }
    if let Some(brackets) = bracket_group(path) {
        return fault.hint(format!(
            "`{brackets}` is no pattern, and stands for itself: name the files under `paths`, or \
             write `?` for one character"
        ));
    }
    let root = Path::new(root);
    let Some(existing) = root.ancestors().find(|folder| folder.is_dir()) else {
        return fault;
    };
    if existing == root {
        return fault.hint(format!(
            "the folder `{}` is there, but nothing in it fits",
            existing.display()
        ));
    }
    let missing = root
        .strip_prefix(existing)
        .ok()
        .and_then(|below| below.iter().next())
        .and_then(|name| name.to_str());
    let names: Vec<String> = std::fs::read_dir(existing)
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    match missing
        .and_then(|missing_name| nearest_word(missing_name, names.iter().map(String::as_str)))
    {
        // The path as it was given, with the name that exists.
        Some(near) => fault.hint(
            match missing.filter(|missing_name| path.matches(missing_name).count() == 1) {
                Some(missing_name) => {
                    format!("did you mean `{}`?", path.replace(missing_name, near))
                }
                None => format!("did you mean `{}`?", existing.join(near).display()),
            },
        ),
        None => fault.hint(format!(
            "the nearest folder that exists is `{}`",
            existing.display()
        )),
    }
}
