//! Reading everything that is kept, and comparing it with what was written.

use std::collections::BTreeSet;
use std::io::Read;

use forebay_model::{ContentId, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::Serialize;
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::artifact::Artifact;
use crate::fit_history::FITS;
use crate::gc::{PackFile, SHARES, StateDirectory, StateEntry};
use crate::output::Manifest;
use crate::state_store::shard_name;
use crate::token_ledger::{is_numbering_file, numbering_file_is_whole};

/// Bytes that are asked of a remote store at a time.
const READ_BYTES: u64 = 8 << 20;

/// What was read.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Files that were checked. Files that runs do not read are not counted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are not what was written.
    pub broken: Vec<CorruptFile>,
}

/// A file that is not what was written.
#[derive(Debug, Serialize)]
pub struct CorruptFile {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

impl VerifyReport {
    fn record_file(&mut self, place: &StorageLocation, bytes: u64, why: Option<&str>) {
        self.files += 1;
        self.bytes += bytes;
        self.broken.extend(why.map(|why| CorruptFile {
            path: place.shown.clone(),
            why: why.to_owned(),
        }));
    }
}

impl StateDirectory {
    /// Reads every file whose content can be told from its name, header, digest or manifest.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut verified = VerifyReport::default();
        let entries = self.entries()?;
        let mut packs: BTreeSet<&PackFile> = BTreeSet::new();
        for entry in entries.iter().filter(|entry| !entry.staged) {
            if let Some(pack) = &entry.pack {
                if packs.insert(pack) {
                    let why = self.store.check_pack(pack.kind, &pack.name, pack.bytes)?;
                    verified.record_file(&entry.place, pack.bytes, why);
                }
                continue;
            }
            match entry.kind {
                // A state in shares.
                "partials" if entry.place.shown.ends_with(SHARES) => {
                    for share in &entry.files {
                        let name = share.path.rsplit('/').next().unwrap_or_default();
                        let place = entry.place.join(name);
                        let why = self.store.check_framed(&place, &entry.name)?;
                        verified.record_file(&place, share.bytes, why);
                    }
                }
                "states" | "partials" | "carries" | "notes" | "checkpoints" => {
                    let why = self.store.check_framed(&entry.place, &entry.name)?;
                    verified.record_file(&entry.place, entry.bytes, why);
                }
                "passes" => {
                    let record = self.json(&entry.place)?;
                    let ours = record.is_some_and(|record| record["pass"] == entry.name);
                    verified.record_file(
                        &entry.place,
                        entry.bytes,
                        (!ours).then_some("it is no record of this pass"),
                    );
                }
                "shards" => {
                    let record = self.json(&entry.place)?;
                    let name = |record: &Value| {
                        Some(shard_name(
                            record["out"].as_str()?,
                            record["shard"]["id"].as_str()?,
                        ))
                    };
                    let ours = record.as_ref().and_then(name).as_ref() == Some(&entry.name);
                    verified.record_file(
                        &entry.place,
                        entry.bytes,
                        (!ours).then_some("it is no record of this shard"),
                    );
                }
                "costs" | "expected" => {
                    let why = self
                        .json(&entry.place)?
                        .is_none()
                        .then_some("it is no record of earlier runs");
                    verified.record_file(&entry.place, entry.bytes, why);
                }
                FITS => {
                    for file in &entry.files {
                        let below = file.path.split_once('/').map_or("", |(_, below)| below);
                        let place = entry.place.join(below);
                        if is_numbering_file(below) {
                            let is_whole = numbering_file_is_whole(&self.io, &place)?;
                            let why = (!is_whole).then_some("its tokens cannot be read");
                            verified.record_file(&place, file.bytes, why);
                            continue;
                        }
                        let names =
                            |record: Value| record["artifact"].as_str().and_then(ContentId::parse);
                        let why = self.json(&place)?.and_then(names).is_none();
                        verified.record_file(
                            &place,
                            file.bytes,
                            why.then_some("it names no artifact"),
                        );
                    }
                }
                "artifacts" => self.artifact(entry, &mut verified)?,
                "gathered" => {
                    let Some(id) = entry.id() else { continue };
                    let read = |record: Value| Manifest::from_record(&record).ok();
                    let manifest = self.json(&self.store.pass_location(id))?.and_then(read);
                    manifest.iter().try_for_each(|manifest| {
                        self.files(&entry.place, manifest, &mut verified)
                    })?;
                }
                _ => {}
            }
        }
        let roots = self.roots(&entries)?;
        for fault in &roots.unreadable {
            let path = fault.site().file.clone().unwrap_or_default();
            if verified.broken.iter().all(|broken| broken.path != path) {
                verified.files += 1;
                verified.broken.push(CorruptFile {
                    path,
                    why: fault.message().to_owned(),
                });
            }
        }
        for (out, manifest) in roots.outputs {
            manifest
                .iter()
                .try_for_each(|manifest| self.files(&out, manifest, &mut verified))?;
        }
        Ok(verified)
    }

    fn artifact(&self, entry: &StateEntry, verified: &mut VerifyReport) -> Result<()> {
        if entry.id().is_some() {
            let loaded = Artifact::load(&self.io, &entry.place).err();
            verified.record_file(
                &entry.place,
                entry.bytes,
                loaded.as_ref().map(|fault| fault.message()),
            );
            return Ok(());
        }
        let pointer = self.json(&entry.place)?;
        let id = pointer
            .as_ref()
            .and_then(|pointer| pointer["artifact"].as_str())
            .and_then(ContentId::parse);
        let artifact = id.map(|id| {
            self.store
                .root()
                .join(&format!("artifacts/{id}/artifact.json"))
        });
        let there = artifact
            .map(|artifact| self.io.head(&artifact))
            .transpose()?
            .flatten();
        let why = there
            .is_none()
            .then_some("it names no artifact that is there");
        verified.record_file(&entry.place, entry.bytes, why);
        Ok(())
    }

    fn files(
        &self,
        out: &StorageLocation,
        manifest: &Manifest,
        verified: &mut VerifyReport,
    ) -> Result<()> {
        for file in manifest.files() {
            let place = out.join(&file.path);
            let why = match self.io.head(&place)? {
                None => Some("it is missing"),
                Some(meta) if meta.size != file.bytes => Some("it has another size"),
                Some(_) if digest_file(&self.io, &place, file.bytes)? != file.digest => {
                    Some("it has another digest")
                }
                Some(_) => None,
            };
            verified.record_file(&place, file.bytes, why);
        }
        Ok(())
    }
}

/// XXH3 of a file's bytes, as manifests hold it.
fn digest_file(io: &StorageClient, place: &StorageLocation, bytes: u64) -> Result<String> {
    let mut digest = Xxh3::new();
    if let Some(local) = &place.local {
        let failed =
            |error| forebay_model::Fault::disk("the file cannot be read", error).file(&place.shown);
        let mut file = std::fs::File::open(local).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => digest.update(&buffer[..read]),
            }
        }
    } else {
        for start in (0..bytes).step_by(READ_BYTES as usize) {
            let range = start..bytes.min(start + READ_BYTES);
            io.get_ranges(place, &[range])?
                .iter()
                .for_each(|part| digest.update(part));
        }
    }
    Ok(format!("{:032x}", digest.digest128()))
}
