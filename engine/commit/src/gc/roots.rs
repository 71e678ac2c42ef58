//! What is in use: whatever the newest artifact of a pipeline, or an output as its readers see it,
//! was made of, and the next night goes on from.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::StorageLocation;
use serde_json::Value;

use crate::fit_history::FITS;
use crate::gc::{StateDirectory, StateEntry};
use crate::output::Manifest;
use crate::state_store::shard_name;

/// What may not go.
#[derive(Default)]
pub struct GcRoots {
    names: BTreeSet<(&'static str, String)>,
    /// Outputs that passes and shards were written to, each with its manifest.
    pub outputs: Vec<(StorageLocation, Option<Manifest>)>,
    /// Files that tell what is in use, and cannot be read: what they name is not known.
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

    fn unreadable(&mut self, place: &StorageLocation, message: &str) {
        let fault = Fault::new(codes::CORRUPT, message).file(&place.shown);
        self.unreadable
            .push(fault.hint("restore the file, or run its pipeline again"));
    }

    fn add(&mut self, kind: &'static str, names: &Value) {
        let names = names
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        self.names.extend(names.map(|name| (kind, name.to_owned())));
    }
}

impl StateDirectory {
    pub(crate) fn roots(&self, entries: &[StateEntry]) -> Result<GcRoots> {
        let mut roots = GcRoots::default();
        for pointer in entries
            .iter()
            .filter(|entry| entry.kind == "artifacts" && entry.id().is_none())
        {
            // What its runs cost tells how long the next one will take.
            roots.names.insert(("costs", pointer.name.clone()));
            // What expectations compare with.
            roots.names.insert(("expected", pointer.name.clone()));
            // What was written for its trainings, the next one goes on from.
            roots.names.insert(("rows", pointer.name.clone()));
            let newest = self.json(&pointer.place)?;
            let Some(id) =
                newest.and_then(|newest| newest["artifact"].as_str().and_then(ContentId::parse))
            else {
                roots.unreadable(&pointer.place, "the newest artifact's name cannot be read");
                continue;
            };
            roots.names.insert(("artifacts", id.to_string()));
            let place = self
                .store
                .root()
                .join(&format!("artifacts/{id}/lineage.json"));
            let lineage = self.json(&place)?;
            if lineage.is_none() && self.io.head(&place)?.is_some() {
                roots.unreadable(&place, "the lineage of an artifact cannot be read");
            }
            if let Some(lineage) = lineage {
                roots.add("states", &lineage["states"]);
                roots.add("passes", &lineage["passes"]);
                // What a step that is at rest learned from: it goes on from there once it learns anew.
                let by_step = lineage["learned_by"].as_object();
                by_step
                    .into_iter()
                    .flatten()
                    .for_each(|(_, passes)| roots.add("passes", passes));
                roots.add("gathered", &lineage["passes"]);
            }
        }
        let mut manifests: BTreeMap<String, Option<Manifest>> = BTreeMap::new();
        for entry in entries
            .iter()
            .filter(|entry| ["passes", "shards"].contains(&entry.kind) && !entry.staged)
        {
            let Some(record) = self.json(&entry.place)? else {
                continue;
            };
            let Some(out) = record["out"].as_str() else {
                continue;
            };
            if !manifests.contains_key(out) {
                let place = self.io.resolve(out)?;
                let read = Manifest::read(&self.io, &place);
                let manifest = match read {
                    Err(fault)
                        if [codes::CORRUPT, codes::STATE_VERSION].contains(&fault.code()) =>
                    {
                        roots.unreadable.push(fault);
                        None
                    }
                    read => {
                        let manifest = read?;
                        roots.outputs.push((place, manifest.clone()));
                        manifest
                    }
                };
                manifests.insert(out.to_owned(), manifest);
            }
            let Some(Some(visible)) = manifests.get(out) else {
                continue;
            };
            let mut passes = visible
                .intervals
                .iter()
                .map(|stretch| &stretch.pass)
                .chain([&visible.pass]);
            if entry.kind == "passes" && passes.any(|pass| *pass == entry.name) {
                roots.names.insert(("passes", entry.name.clone()));
                roots.names.extend(
                    visible
                        .shards
                        .iter()
                        .map(|shard| ("shards", shard_name(out, &shard.id))),
                );
            }
        }
        for entry in entries.iter().filter(|entry| entry.kind == "passes") {
            if roots.is_in_use(entry)
                && let Some(record) = self.json(&entry.place)?
            {
                roots.add("partials", &record["partials"]);
                roots.add("carries", &record["carries"]);
            }
        }
        Ok(roots)
    }

    /// What a file of JSON says, if it can be read.
    pub fn json(&self, place: &StorageLocation) -> Result<Option<Value>> {
        Ok(self
            .io
            .get(place)?
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}
