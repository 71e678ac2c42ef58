//! Views: on local disks, a directory with the files of all shards of an output, in row order, for tools that read
//! directories.
//!
//! Its files are links. Creating a link costs ten times as much as checking one, and most files of a nightly run are
//! those of earlier runs: the next view is made from an old view that no manifest names any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result};
use forebay_storage::failpoint::step;

use crate::output::{OutputFile, attempt_dir};

/// Where the views of an output lie.
pub const VIEWS: &str = "_views/";

/// Makes a view of some files, reusing the links of `old`. The caller keeps other runs from making views meanwhile.
pub fn make_view<'f>(
    out: &Path,
    name: &str,
    files: impl Iterator<Item = &'f OutputFile>,
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
    let there = match old {
        Some(old) => take_over_view(&views.join(old), attempt.path()).map_err(failed)?,
        None => BTreeMap::new(),
    };
    fill_view(attempt.path(), &links(out, files), there).map_err(failed)?;
    std::fs::rename(attempt.keep(), &whole).map_err(failed)?;
    step("have named", whole.display());
    Ok(())
}

/// The links of a view, seen from there, to files: numbered in row order, in each partition.
fn links<'f>(out: &Path, files: impl Iterator<Item = &'f OutputFile>) -> Vec<(PathBuf, PathBuf)> {
    let mut counters: BTreeMap<&str, usize> = BTreeMap::new();
    let link = |file: &'f OutputFile| {
        // Below `_data/<shard id>/` come partitions and a name.
        let inside = file.path.splitn(3, '/').nth(2).unwrap_or(&file.path);
        let (partition, name) = inside.rsplit_once('/').unwrap_or(("", inside));
        let counter = counters.entry(partition).or_default();
        let extension = name.split_once('.').map_or("", |(_, extension)| extension);
        let link = Path::new(partition).join(format!("part-{counter:05}.{extension}"));
        *counter += 1;
        (link, out.join(&*file.path))
    };
    files.map(link).collect()
}

/// Puts an old view in the place of an empty directory; gives its links, and the files that they are of.
fn take_over_view(old: &Path, attempt: &Path) -> io::Result<BTreeMap<PathBuf, FileId>> {
    let mut found = BTreeMap::new();
    match list_links(old, Path::new(""), &mut found) {
        // Where files cannot be told apart, it is of no use.
        Ok(true) => {
            std::fs::rename(old, attempt)?;
            step("have taken", old.display());
            Ok(found)
        }
        Ok(false) => Ok(BTreeMap::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

/// Makes the links of a view, as far as possible of those that are there.
fn fill_view(view: &Path, links: &[(PathBuf, PathBuf)], mut there: BTreeMap<PathBuf, FileId>) -> io::Result<()> {
    let mut names: BTreeMap<FileId, PathBuf> = there.iter().map(|(link, file)| (*file, link.clone())).collect();
    let old_folders: BTreeSet<PathBuf> = there.keys().filter_map(|link| Some(link.parent()?.to_owned())).collect();
    let mut folders: BTreeSet<&Path> = BTreeSet::from([Path::new("")]);
    // Where files went, those behind them move down, each to where one has just moved away; where some came, up.
    let mut turn: Vec<&(PathBuf, PathBuf)> = links.iter().collect();
    if links.len() > there.len() {
        turn.reverse();
    }
    for (link, file) in turn {
        let id = if names.is_empty() { None } else { std::fs::metadata(file).ok().and_then(|meta| file_id(&meta)) };
        match there.remove(link) {
            Some(known) if Some(known) == id => {
                names.remove(&known);
                continue;
            }
            Some(other) => {
                names.remove(&other);
                std::fs::remove_file(view.join(link))?;
            }
            None => {}
        }
        if let Some(folder) = link.parent().filter(|folder| folders.insert(folder)) {
            std::fs::create_dir_all(view.join(folder))?;
        }
        match id.and_then(|id| names.remove(&id)) {
            Some(before) => {
                std::fs::rename(view.join(&before), view.join(link))?;
                there.remove(&before);
            }
            None => link_file(file, &view.join(link))?,
        }
        step("have linked", "a file of rows");
    }
    for link in there.keys() {
        std::fs::remove_file(view.join(link))?;
    }
    // Folders go with their last file.
    for folder in old_folders.iter().filter(|folder| !folders.contains(folder.as_path())) {
        let above = folder.ancestors().filter(|folder| *folder != Path::new(""));
        above.map(|folder| std::fs::remove_dir(view.join(folder))).take_while(io::Result::is_ok).count();
    }
    Ok(())
}

/// Points `current` at a directory of an output in one step.
#[cfg(unix)]
pub fn point(link: &Path, target: &str) -> Result<()> {
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
pub fn point(_link: &Path, _target: &str) -> Result<()> {
    Ok(())
}

/// Finds all files of a folder, by their paths below it; false where they cannot be told apart.
fn list_links(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, FileId>) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (meta, below) = (entry.metadata()?, below.join(entry.file_name()));
        if meta.is_dir() {
            if !list_links(&entry.path(), &below, found)? {
                return Ok(false);
            }
            continue;
        }
        let Some(id) = file_id(&meta) else { return Ok(false) };
        found.insert(below, id);
    }
    Ok(true)
}

/// What tells a file from others, by whatever name: its device and its number there.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(file: &Metadata) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    Some((file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn file_id(_file: &Metadata) -> Option<FileId> {
    None
}

/// A second name of a file; where there is no such thing, a copy.
fn link_file(file: &Path, link: &Path) -> io::Result<()> {
    std::fs::hard_link(file, link).or_else(|_| std::fs::copy(file, link).map(drop))
}
