//! Views: on local disks, a directory with the files of all shards of an output, in row order, for tools that read
//! directories.
//!
//! Its files are links, and a link costs ten times as much as a look at one. Most files of a night are those of the
//! nights before: the next view is made of an old one that nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result};

use crate::crash::step;
use crate::output::{Written, attempt_dir};

/// Where the views of an output lie.
pub(crate) const VIEWS: &str = "_views/";

/// Makes a view of some files, of `old` where most links are there. Nobody may make another one meanwhile.
pub(crate) fn make<'f>(
    out: &Path,
    name: &str,
    files: impl Iterator<Item = &'f Written>,
    old: Option<&str>,
) -> Result<()> {
    let views = out.join(VIEWS);
    let whole = views.join(name);
    step("make", whole.display());
    let failed = |error| Fault::disk("the links to an output's files cannot be made", error);
    if whole.exists() {
        std::fs::remove_dir_all(&whole).map_err(failed)?;
        step("have removed", whole.display());
    }
    let attempt = std::fs::create_dir_all(&views).and_then(|()| attempt_dir(&views)).map_err(failed)?;
    let links = links(out, files);
    let there = match old {
        Some(old) => take(&views.join(old), attempt.path(), &links).map_err(failed)?,
        None => BTreeSet::new(),
    };
    let mut folders: BTreeSet<&Path> = BTreeSet::from([Path::new("")]);
    for (link, file) in links.iter().filter(|(link, _)| !there.contains(link.as_path())) {
        if let Some(folder) = link.parent().filter(|folder| folders.insert(folder)) {
            std::fs::create_dir_all(attempt.path().join(folder)).map_err(failed)?;
        }
        link_file(file, &attempt.path().join(link)).map_err(failed)?;
        step("have linked", "a file of rows");
    }
    std::fs::rename(attempt.keep(), &whole).map_err(failed)?;
    step("have named", whole.display());
    // Where too little of it was like this one, it goes beside whatever goes on meanwhile.
    old.filter(|_| there.is_empty()).map_or(Ok(()), |old| remove(&views.join(old))).map_err(failed)
}

/// Removes a directory, if it is there.
fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The links of a view, seen from there, to files: numbered in row order, in each partition.
fn links<'f>(out: &Path, files: impl Iterator<Item = &'f Written>) -> Vec<(PathBuf, PathBuf)> {
    let mut counters: BTreeMap<&str, usize> = BTreeMap::new();
    let link = |file: &'f Written| {
        // Below `_data/<shard id>/` come partitions and a name.
        let inside = file.path.splitn(3, '/').nth(2).unwrap_or(&file.path);
        let (partition, name) = inside.rsplit_once('/').unwrap_or(("", inside));
        let counter = counters.entry(partition).or_default();
        let extension = name.split_once('.').map_or("", |(_, extension)| extension);
        let link = Path::new(partition).join(format!("part-{counter:05}.{extension}"));
        *counter += 1;
        (link, out.join(&file.path))
    };
    files.map(link).collect()
}

/// Puts an old view in the place of an empty directory, if it has most of these links, without its others; gives
/// those that it has.
fn take<'l>(old: &Path, attempt: &Path, links: &'l [(PathBuf, PathBuf)]) -> io::Result<BTreeSet<&'l Path>> {
    let mut found = BTreeMap::new();
    match find(old, Path::new(""), &mut found) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        done => done?,
    }
    let there = links.iter().filter(|(link, file)| found.get(link).is_some_and(|known| is_same(known, file)));
    let there: BTreeSet<&Path> = there.map(|(link, _)| link.as_path()).collect();
    // Else they have other numbers now.
    if there.len() * 2 < links.len() {
        return Ok(BTreeSet::new());
    }
    std::fs::rename(old, attempt)?;
    step("have taken", old.display());
    found.retain(|link, _| !there.contains(link.as_path()));
    for link in found.keys() {
        std::fs::remove_file(attempt.join(link))?;
        // Folders go with their last file.
        let above = link.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
        above.map(|folder| std::fs::remove_dir(attempt.join(folder))).take_while(io::Result::is_ok).count();
    }
    Ok(there)
}

/// Points `current` at a directory of an output in one step.
#[cfg(unix)]
pub(crate) fn point(link: &Path, target: &str) -> Result<()> {
    let failed = |error| Fault::disk("the link `current` cannot be made", error);
    let new = link.with_extension("new");
    let _ = std::fs::remove_file(&new);
    std::os::unix::fs::symlink(target, &new).map_err(failed)?;
    step("name", link.display());
    std::fs::rename(&new, link).map_err(failed)?;
    step("have named", link.display());
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn point(_link: &Path, _target: &str) -> Result<()> {
    Ok(())
}

/// Finds all files of a folder, by their paths below it.
fn find(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Metadata>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (meta, below) = (entry.metadata()?, below.join(entry.file_name()));
        if meta.is_dir() {
            find(&entry.path(), &below, found)?;
        } else {
            found.insert(below, meta);
        }
    }
    Ok(())
}

/// Whether a file is the one that was found by another name.
#[cfg(unix)]
fn is_same(known: &Metadata, file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(file).is_ok_and(|file| (known.dev(), known.ino()) == (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn is_same(_known: &Metadata, _file: &Path) -> bool {
    false
}

/// A second name of a file; where there is no such thing, a copy.
fn link_file(file: &Path, link: &Path) -> io::Result<()> {
    std::fs::hard_link(file, link).or_else(|_| std::fs::copy(file, link).map(drop))
}
