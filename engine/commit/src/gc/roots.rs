//! Entries in use: the inputs of the newest artifact of a pipeline, or of an output as its readers
//! see it, which the next run continues.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::StorageLocation;
use serde_json::Value;

use crate::fit_history::FITS;
use crate::gc::{StateDirectory, StateEntry};
use crate::output::Manifest;
use crate::state_store::shard_name;

/// Entries that must not be removed.
#[derive(Default)]
pub struct GcRoots {
    names: BTreeSet<(&'static str, String)>,
    /// Outputs that passes and shards were written to, each with its manifest.
    pub outputs: Vec<(StorageLocation, Option<Manifest>)>,
    /// Unreadable files that name entries in use: their references are not known.
    pub unreadable: Vec<Fault>,
}

impl GcRoots {
    pub(crate) fn is_in_use(&self, entry: &StateEntry) -> bool {
        // A pointer names the newest artifact of its pipeline.
        let pointer = entry.kind == "artifacts" && entry.id().is_none();
        // Ids that outputs show are never given to other tokens: the records of them are small, and stay.
        let is_record = entry.kind == FITS;
        !entry.staged
            && (pointer || is_record || self.names.contains(&(entry.kind, entry.name.clone())))
    }

    fn unreadable(&mut self, location: &StorageLocation, message: &str) {
        let fault = Fault::new(codes::CORRUPT, message).file(&location.shown);
        self.unreadable
            .push(fault.hint("restore the file, or run its pipeline again"));
    }

    fn add(&mut self, kind: &'static str, names: &Value) {
        for name in names.as_array().into_iter().flatten() {
            if let Some(name) = name.as_str() {
                self.names.insert((kind, name.to_owned()));
            }
        }
    }
}

impl StateDirectory {
    pub(crate) fn roots(&self, entries: &[StateEntry]) -> Result<GcRoots> {
        let mut roots = GcRoots::default();
        for entry in entries {
            if entry.kind == "artifacts" && entry.id().is_none() {
                self.add_newest_artifact(&mut roots, entry)?;
            }
        }
        let mut manifests: BTreeMap<String, Option<Manifest>> = BTreeMap::new();
        for entry in entries {
            let is_output = entry.kind == "passes" || entry.kind == "shards";
            if is_output && !entry.staged {
                self.add_visible_shards(&mut roots, &mut manifests, entry)?;
            }
        }
        for entry in entries {
            if entry.kind != "passes" || !roots.is_in_use(entry) {
                continue;
            }
            if let Some(record) = self.json(&entry.place)? {
                roots.add("partials", &record["partials"]);
                roots.add("carries", &record["carries"]);
            }
        }
        Ok(roots)
    }

    /// Adds the newest artifact of a pipeline, which a pointer names, and its inputs.
    fn add_newest_artifact(&self, roots: &mut GcRoots, pointer: &StateEntry) -> Result<()> {
        // The costs of its runs predict the duration of the next one.
        roots.names.insert(("costs", pointer.name.clone()));
        // Expectations compare with these rows.
        roots.names.insert(("expected", pointer.name.clone()));
        // Runs without trainings combine models by these weights.
        roots.names.insert(("ensembles", pointer.name.clone()));
        // The next run continues the rows that were written for its trainings.
        roots.names.insert(("rows", pointer.name.clone()));
        let newest = self.json(&pointer.place)?.unwrap_or_default();
        let Some(id) = newest["artifact"].as_str().and_then(ContentId::parse) else {
            roots.unreadable(&pointer.place, "the newest artifact's name cannot be read");
            return Ok(());
        };
        roots.names.insert(("artifacts", id.to_string()));
        let name = format!("artifacts/{id}/lineage.json");
        let location = self.store.root().join(&name);
        let Some(lineage) = self.json(&location)? else {
            if self.io.head(&location)?.is_some() {
                roots.unreadable(&location, "the lineage of an artifact cannot be read");
            }
            return Ok(());
        };
        roots.add("states", &lineage["states"]);
        roots.add("passes", &lineage["passes"]);
        // Inputs of a held fit: the step continues from them when it is refitted.
        for (_, passes) in lineage["learned_by"].as_object().into_iter().flatten() {
            roots.add("passes", passes);
        }
        roots.add("gathered", &lineage["passes"]);
        Ok(())
    }

    /// Adds a pass that readers of its output see, and the shards of that output.
    fn add_visible_shards(
        &self,
        roots: &mut GcRoots,
        manifests: &mut BTreeMap<String, Option<Manifest>>,
        entry: &StateEntry,
    ) -> Result<()> {
        let Some(record) = self.json(&entry.place)? else {
            return Ok(());
        };
        let Some(out) = record["out"].as_str() else {
            return Ok(());
        };
        if !manifests.contains_key(out) {
            manifests.insert(out.to_owned(), self.manifest(roots, out)?);
        }
        let Some(Some(visible)) = manifests.get(out) else {
            return Ok(());
        };
        let mut intervals = visible.intervals.iter();
        let is_visible =
            visible.pass == entry.name || intervals.any(|interval| interval.pass == entry.name);
        if entry.kind == "passes" && is_visible {
            roots.names.insert(("passes", entry.name.clone()));
            for shard in &visible.shards {
                let name = shard_name(out, &shard.id);
                roots.names.insert(("shards", name));
            }
        }
        Ok(())
    }

    /// The manifest of an output; `None` if there is none, or if it cannot be read.
    fn manifest(&self, roots: &mut GcRoots, out: &str) -> Result<Option<Manifest>> {
        let location = self.io.resolve(out)?;
        match Manifest::read(&self.io, &location) {
            Ok(manifest) => {
                roots.outputs.push((location, manifest.clone()));
                Ok(manifest)
            }
            Err(fault) if [codes::CORRUPT, codes::STATE_VERSION].contains(&fault.code()) => {
                roots.unreadable.push(fault);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Value of a JSON file, if it can be read.
    pub fn json(&self, location: &StorageLocation) -> Result<Option<Value>> {
        let Some(bytes) = self.io.get(location)? else {
            return Ok(None);
        };
        Ok(serde_json::from_slice(&bytes).ok())
    }
}
