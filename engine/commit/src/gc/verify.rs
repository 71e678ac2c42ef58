//! Verification of everything that is kept: every file is read, and compared with its digest.

use std::collections::BTreeSet;
use std::io::Read;

use forebay_model::{ContentId, Result};
use forebay_storage::{StorageClient, StorageLocation};
use serde::Serialize;
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::artifact::Artifact;
use crate::fit_history::FITS;
use crate::gc::{HISTORY, PackFile, SHARES, StateDirectory, StateEntry};
use crate::output::Manifest;
use crate::state_store::shard_name;
use crate::token_ledger::{is_numbering_file, numbering_file_is_whole};

/// Bytes of a single read of a remote store.
const READ_BYTES: u64 = 8 << 20;

/// Result of a verification.
#[derive(Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Files that were checked. Files that runs do not read are not counted.
    pub files: u64,
    /// Bytes of the checked files.
    pub bytes: u64,
    /// Files whose content differs from the one that was written.
    pub broken: Vec<CorruptFile>,
}

/// File whose content differs from what was written.
#[derive(Debug, Serialize)]
pub struct CorruptFile {
    /// The file.
    pub path: String,
    /// Defect of the file.
    pub why: String,
}

impl VerifyReport {
    fn record_file(&mut self, location: &StorageLocation, bytes: u64, why: Option<&str>) {
        self.files += 1;
        self.bytes += bytes;
        self.broken.extend(why.map(|why| CorruptFile {
            path: location.shown.clone(),
            why: why.to_owned(),
        }));
    }
}

impl StateDirectory {
    /// Reads every file whose content can be verified by its name, header, digest or manifest.
    pub fn verify(&self) -> Result<VerifyReport> {
        let mut verified = VerifyReport::default();
        let entries = self.entries()?;
        let mut packs: BTreeSet<&PackFile> = BTreeSet::new();
        for entry in entries.iter().filter(|entry| !entry.staged) {
            let Some(pack) = &entry.pack else {
                self.verify_entry(entry, &mut verified)?;
                continue;
            };
            // A pack holds many entries, and is read once.
            if packs.insert(pack) {
                let why = self.store.check_pack(pack.kind, &pack.name, pack.bytes)?;
                verified.record_file(&entry.place, pack.bytes, why);
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

    fn verify_entry(&self, entry: &StateEntry, verified: &mut VerifyReport) -> Result<()> {
        match entry.kind {
            "partials" if entry.place.shown.ends_with(SHARES) => self.shares(entry, verified),
            "states" | "partials" | "carries" | "notes" | "checkpoints" => {
                let why = self.store.check_framed(&entry.place, &entry.name)?;
                verified.record_file(&entry.place, entry.bytes, why);
                Ok(())
            }
            "passes" => {
                let record = self.json(&entry.place)?;
                let ours = record.is_some_and(|record| record["pass"] == entry.name);
                let why = (!ours).then_some("it is no record of this pass");
                verified.record_file(&entry.place, entry.bytes, why);
                Ok(())
            }
            "shards" => {
                let record = self.json(&entry.place)?;
                let name = record.as_ref().and_then(recorded_shard_name);
                let ours = name.as_ref() == Some(&entry.name);
                let why = (!ours).then_some("it is no record of this shard");
                verified.record_file(&entry.place, entry.bytes, why);
                Ok(())
            }
            "costs" | "expected" | "ensembles" | HISTORY => {
                let is_broken = self.json(&entry.place)?.is_none();
                let why = is_broken.then_some("it is no record of earlier runs");
                verified.record_file(&entry.place, entry.bytes, why);
                Ok(())
            }
            FITS => self.fits(entry, verified),
            "artifacts" => self.artifact(entry, verified),
            "gathered" => self.gathered_files(entry, verified),
            _ => Ok(()),
        }
    }

    /// Verifies the shares of a large state.
    fn shares(&self, entry: &StateEntry, verified: &mut VerifyReport) -> Result<()> {
        for share in &entry.files {
            let name = share.path.rsplit('/').next().unwrap_or_default();
            let location = entry.place.join(name);
            let why = self.store.check_framed(&location, &entry.name)?;
            verified.record_file(&location, share.bytes, why);
        }
        Ok(())
    }

    fn fits(&self, entry: &StateEntry, verified: &mut VerifyReport) -> Result<()> {
        for file in &entry.files {
            let below = file.path.split_once('/').map_or("", |(_, below)| below);
            let location = entry.place.join(below);
            if is_numbering_file(below) {
                let is_whole = numbering_file_is_whole(&self.io, &location)?;
                let why = (!is_whole).then_some("its tokens cannot be read");
                verified.record_file(&location, file.bytes, why);
                continue;
            }
            let record = self.json(&location)?;
            let artifact = record
                .as_ref()
                .and_then(|record| record["artifact"].as_str());
            let names_none = artifact.and_then(ContentId::parse).is_none();
            let why = names_none.then_some("it names no artifact");
            verified.record_file(&location, file.bytes, why);
        }
        Ok(())
    }

    /// Verifies the files of a dataset that the run materialized, as far as its pass recorded them.
    fn gathered_files(&self, entry: &StateEntry, verified: &mut VerifyReport) -> Result<()> {
        let Some(id) = entry.id() else {
            return Ok(());
        };
        let Some(record) = self.json(&self.store.pass_location(id))? else {
            return Ok(());
        };
        match Manifest::from_record(&record) {
            Ok(manifest) => self.files(&entry.place, &manifest, verified),
            Err(_) => Ok(()),
        }
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
        let head = artifact
            .map(|artifact| self.io.head(&artifact))
            .transpose()?
            .flatten();
        let why = head
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
            let location = out.join(&file.path);
            let why = match self.io.head(&location)? {
                None => Some("it is missing"),
                Some(meta) if meta.size != file.bytes => Some("it has another size"),
                Some(_) if digest_file(&self.io, &location, file.bytes)? != file.digest => {
                    Some("it has another digest")
                }
                Some(_) => None,
            };
            verified.record_file(&location, file.bytes, why);
        }
        Ok(())
    }
}

fn recorded_shard_name(record: &Value) -> Option<String> {
    let out = record["out"].as_str()?;
    let id = record["shard"]["id"].as_str()?;
    Some(shard_name(out, id))
}

/// XXH3 of a file's bytes, as manifests hold it.
fn digest_file(io: &StorageClient, location: &StorageLocation, bytes: u64) -> Result<String> {
    let mut digest = Xxh3::new();
    if let Some(local) = &location.local {
        let failed = |error| {
            forebay_model::Fault::disk("the file cannot be read", error).file(&location.shown)
        };
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
            io.get_ranges(location, &[range])?
                .iter()
                .for_each(|part| digest.update(part));
        }
    }
    Ok(format!("{:032x}", digest.digest128()))
}
