//! The visible directory of an output on a local disk: hard links to the files of its manifest, replaced in one step.
//!
//! A name holds the file's number in row order and the beginning of its digest. A reader that listed the directory
//! before it was replaced therefore opens the rows that it listed, or no file: never rows of two results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageLocation;
use forebay_storage::failpoint::step;
use tempfile::TempDir;

use crate::output::{OutputFile, attempt_dir};
use crate::output_layout::{DATA_SUFFIX, visible_directory, visible_location};

/// Hexadecimal digits of a file's digest in its visible name.
const DIGEST_DIGITS: usize = 12;

/// Prefix of the names of numbered data files; other files keep their names.
const NUMBERED: &str = "part-";

/// Entries that earlier versions wrote into the directory that readers see.
const EARLIER_LAYOUT: [&str; 2] = ["_manifest.json", "_data"];

/// A name in the visible directory, and the file that has it.
struct VisibleLink {
    name: PathBuf,
    file: PathBuf,
    bytes: u64,
}

/// Replaces the files that readers see by others, in one step. The caller holds the lock of the
/// output.
pub fn show<'f>(root: &Path, files: impl Iterator<Item = &'f OutputFile>) -> Result<()> {
    let Some(visible) = visible_directory(root) else {
        return Ok(());
    };
    let failed = |error| Fault::disk("the links to an output's files cannot be made", error);
    let staged = link_files(root, &visible_links(root, files)).map_err(failed)?;
    step("name", visible.display());
    if visible.exists() {
        exchange(staged.path(), &visible).map_err(failed)?;
        step("have named", visible.display());
        // What readers saw before goes with the staged directory.
        return staged.close().map_err(failed);
    }
    std::fs::rename(staged.keep(), &visible).map_err(failed)?;
    step("have named", visible.display());
    Ok(())
}

/// True if the names in the visible directory are exactly those of some files.
pub fn is_shown<'f>(root: &Path, files: impl Iterator<Item = &'f OutputFile>) -> Result<bool> {
    let Some(visible) = visible_directory(root) else {
        return Ok(true);
    };
    let failed = |error| {
        Fault::disk("the output cannot be listed", error).file(visible.display().to_string())
    };
    let mut names = BTreeSet::new();
    match list_files(&visible, Path::new(""), &mut |name, _| {
        names.insert(name);
    }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        listed => listed.map_err(failed)?,
    }
    Ok(names
        == visible_links(root, files)
            .into_iter()
            .map(|link| link.name)
            .collect())
}

/// Refuses a visible directory that holds anything but the files of an output: replacing it would remove that.
/// `known_files` are the files of the manifest.
///
/// A file is the output's if it is a link to a data file of the output, or, on a file system without hard links, if it
/// has the name and the size of a file of the manifest or the bytes of another data file. The look of a name proves
/// nothing: a copy of an output has the same names.
pub fn check_replaceable<'f>(
    out: &StorageLocation,
    known_files: impl Iterator<Item = &'f OutputFile>,
) -> Result<()> {
    let Some((root, visible)) = out
        .local
        .as_ref()
        .and_then(|root| Some((root, visible_directory(root)?)))
    else {
        return Ok(());
    };
    let shown_path = || visible_location(out).shown;
    if EARLIER_LAYOUT
        .iter()
        .all(|name| visible.join(name).exists())
    {
        let fault = Fault::new(
            codes::STATE_VERSION,
            "the output has the layout of an earlier version",
        )
        .file(shown_path());
        return Err(
            fault.hint("move it away, or write to another directory: a run writes the output anew")
        );
    }
    let failed = |error| Fault::disk("the output cannot be listed", error).file(shown_path());
    let mut seen = Vec::new();
    match list_files(&visible, Path::new(""), &mut |name, meta| {
        seen.push((name, meta.clone()));
    }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(failed)?,
    }
    let owned = OwnedFiles::list(root, known_files).map_err(failed)?;
    let mut foreign = None;
    for (name, meta) in seen {
        if !owned.holds(&visible, &name, &meta).map_err(failed)? {
            foreign = Some(name);
            break;
        }
    }
    foreign.map_or(Ok(()), |name| {
        let message = "the directory holds a file that is not the output's, and would be replaced";
        let fault = Fault::new(codes::OUTPUT_CLASH, message).file(format!(
            "{}/{}",
            shown_path(),
            name.display()
        ));
        Err(fault.hint(
            "a copy of an output is not the output: move the directory away, or write to another \
             directory",
        ))
    })
}

/// The links of an output: numbered in row order, in each partition.
fn visible_links<'f>(root: &Path, files: impl Iterator<Item = &'f OutputFile>) -> Vec<VisibleLink> {
    let mut counters: BTreeMap<&str, usize> = BTreeMap::new();
    let link = |file: &'f OutputFile| {
        // Below `_data/<shard id>/` come partitions and a name.
        let inside = file.path.splitn(3, '/').nth(2).unwrap_or(&file.path);
        let (partition, name) = inside.rsplit_once('/').unwrap_or(("", inside));
        let name = name.strip_suffix(DATA_SUFFIX).unwrap_or(name);
        let name = match name.split_once('.') {
            Some((numbered, extension)) if numbered.starts_with(NUMBERED) => {
                let counter = counters.entry(partition).or_default();
                *counter += 1;
                let digest = file.digest.get(..DIGEST_DIGITS).unwrap_or(&file.digest);
                format!("{NUMBERED}{:05}-{digest}.{extension}", *counter - 1)
            }
            _ => name.to_owned(),
        };
        VisibleLink {
            name: Path::new(partition).join(name),
            file: root.join(&*file.path),
            bytes: file.bytes,
        }
    };
    files.map(link).collect()
}

/// The files that an output may have put into its visible directory.
struct OwnedFiles {
    /// Data files below the root by their size: those of the manifest, of the manifest before it, and of attempts.
    data: BTreeMap<u64, Vec<DataFile>>,
    /// Names that the files of the manifest have, with their sizes.
    names: BTreeMap<PathBuf, u64>,
}

struct DataFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl OwnedFiles {
    fn list<'f>(
        root: &Path,
        known_files: impl Iterator<Item = &'f OutputFile>,
    ) -> io::Result<OwnedFiles> {
        let mut data: BTreeMap<u64, Vec<DataFile>> = BTreeMap::new();
        let listed = list_files(root, Path::new(""), &mut |name, meta| {
            data.entry(meta.len()).or_default().push(DataFile {
                path: root.join(name),
                inode: inode(meta),
            });
        });
        match listed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut names = BTreeMap::new();
        for link in visible_links(root, known_files) {
            names.insert(link.name, link.bytes);
        }
        Ok(OwnedFiles { data, names })
    }

    /// Checks that a file of the visible directory is the output's.
    fn holds(&self, visible: &Path, name: &Path, meta: &Metadata) -> io::Result<bool> {
        let alike = self.data.get(&meta.len()).map_or(&[][..], Vec::as_slice);
        let inode_of_file = inode(meta);
        if inode_of_file.is_some() && alike.iter().any(|file| file.inode == inode_of_file) {
            return Ok(true);
        }
        if self.names.get(name) == Some(&meta.len()) {
            return Ok(true);
        }
        // A run that ended between the manifest and the links leaves those of the manifest before.
        for file in alike {
            if meta.is_file() && same_bytes(&visible.join(name), &file.path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 1 << 16;

/// Compares the bytes of two files of one size. A file that vanishes meanwhile differs from all others.
fn same_bytes(a: &Path, b: &Path) -> io::Result<bool> {
    let Some(a) = open_if_there(a)? else {
        return Ok(false);
    };
    let Some(b) = open_if_there(b)? else {
        return Ok(false);
    };
    let mut a = BufReader::with_capacity(COMPARED_BYTES, a);
    let mut b = BufReader::with_capacity(COMPARED_BYTES, b);
    loop {
        let next = a.fill_buf()?;
        let other = b.fill_buf()?;
        let length = next.len().min(other.len());
        if length == 0 {
            return Ok(next.len() == other.len());
        }
        if next[..length] != other[..length] {
            return Ok(false);
        }
        a.consume(length);
        b.consume(length);
    }
}

/// A directory with the links.
fn link_files(root: &Path, links: &[VisibleLink]) -> io::Result<TempDir> {
    let staged = attempt_dir(root)?;
    let mut folders = BTreeSet::from([Path::new("")]);
    for VisibleLink { name, file, .. } in links {
        if let Some(folder) = name.parent().filter(|folder| folders.insert(folder)) {
            std::fs::create_dir_all(staged.path().join(folder))?;
        }
        let link = staged.path().join(name);
        // A copy where there are no hard links.
        std::fs::hard_link(file, &link).or_else(|_| std::fs::copy(file, &link).map(drop))?;
        step("have linked", "a file of rows");
    }
    Ok(staged)
}

/// Exchanges two directories. Where the file system cannot, the visible one is absent for a moment.
fn exchange(staged: &Path, visible: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        if renameat_with(CWD, staged, CWD, visible, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
    }
    let old = staged.with_extension("old");
    std::fs::rename(visible, &old)?;
    std::fs::rename(staged, visible)?;
    std::fs::rename(old, staged)
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Calls back with each file below a directory: its path from there, and its metadata.
fn list_files(
    folder: &Path,
    below: &Path,
    visit: &mut dyn FnMut(PathBuf, &Metadata),
) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        let below = below.join(entry.file_name());
        if meta.is_dir() {
            list_files(&entry.path(), &below, visit)?
        } else {
            visit(below, &meta)
        }
    }
    Ok(())
}

/// The device and the number of a file, which all its links share.
#[cfg(unix)]
fn inode(file: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn inode(_file: &Metadata) -> Option<(u64, u64)> {
    None
}
