//! Invariants that hold after every change of the store.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_commit::{Manifest, OutputFile, Shard};
use forebay_model::RelativePath;
use object_store::path::Path;
use serde_json::Value;

use crate::simulation::request::{ActorId, StoreRequest};

pub const OUT: &str = "out";
const MANIFEST: &str = "out/_manifest.json";

/// An attempt at a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedAttempt {
    pub run: u64,
    pub number: u64,
}

#[derive(Default)]
pub struct InvariantChecks {
    /// Current attempt of each actor.
    pub attempts: BTreeMap<ActorId, SimulatedAttempt>,
    /// The manifests that readers see, and saw before.
    visible: Option<Manifest>,
    before: Option<Manifest>,
    /// The latest attempt that published, by run.
    published: BTreeMap<u64, u64>,
    /// Turn since which the record of a shard names whole files, by shard.
    committed: BTreeMap<String, (u64, Shard)>,
    /// The directories that any manifest named as being removed.
    removed: BTreeSet<RelativePath>,
    /// Publications in order: the turn, the actor, and its attempt.
    pub publications: Vec<(u64, ActorId, SimulatedAttempt)>,
    pub computations: usize,
}

fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

/// A finished file with these bytes.
pub fn written_file(path: RelativePath, bytes: &[u8]) -> OutputFile {
    OutputFile {
        path,
        rows: 1,
        bytes: bytes.len() as u64,
        digest: digest(bytes),
    }
}

fn missing_file<'f>(
    objects: &BTreeMap<Path, Bytes>,
    files: impl Iterator<Item = &'f OutputFile>,
) -> Option<&'f OutputFile> {
    let is_whole = |file: &OutputFile| {
        let there = objects.get(&Path::from(format!("{OUT}/{}", file.path)));
        there.is_some_and(|bytes| bytes.len() as u64 == file.bytes && digest(bytes) == file.digest)
    };
    { files }.find(|file| !is_whole(file))
}

impl InvariantChecks {
    /// A change was made.
    pub fn check_write(
        &mut self,
        request: &StoreRequest,
        objects: &BTreeMap<Path, Bytes>,
        turn: u64,
    ) -> Result<(), String> {
        let path = request.path.as_ref();
        match &request.bytes {
            Some(bytes) if path == MANIFEST => self.check_publication(turn, request.by, bytes)?,
            Some(bytes) if path.starts_with("state/shards/") => {
                let record: Value =
                    serde_json::from_slice(bytes).map_err(|error| format!("{path}: {error}"))?;
                let shard: Shard = serde_json::from_value(record["shard"].clone())
                    .map_err(|error| error.to_string())?;
                self.committed
                    .entry(shard.id.clone())
                    .and_modify(|known| known.1 = shard.clone())
                    .or_insert((turn, shard));
            }
            _ => {}
        }
        // A record may arrive after its directory was given up.
        let removed = &self.removed;
        let is_removed = |file: &OutputFile| {
            file.path
                .parent_of(2)
                .is_some_and(|of| removed.contains(&of))
        };
        self.committed.retain(|_, (_, shard)| {
            !shard.files.iter().any(is_removed)
                && missing_file(objects, shard.files.iter()).is_none()
        });
        let readers = [
            ("see", &self.visible),
            ("may still be reading", &self.before),
        ];
        for (what, manifest) in readers {
            if let Some(manifest) = manifest
                && let Some(file) = missing_file(objects, manifest.files())
            {
                return Err(format!(
                    "turn {turn}: actor {} left {} missing, which readers {what}",
                    request.by, file.path
                ));
            }
        }
        Ok(())
    }

    fn check_publication(&mut self, turn: u64, by: ActorId, bytes: &Bytes) -> Result<(), String> {
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|error| format!("a manifest: {error}"))?;
        let attempt = *self
            .attempts
            .get(&by)
            .ok_or("an actor without an attempt published")?;
        let SimulatedAttempt { run, number } = attempt;
        let latest = self.published.entry(run).or_default();
        if *latest > number {
            return Err(format!(
                "attempt {number} of run {run} published after attempt {latest}"
            ));
        }
        *latest = number;
        self.publications.push((turn, by, attempt));
        self.removed.extend(manifest.removed.iter().cloned());
        self.before = self.visible.replace(manifest);
        Ok(())
    }

    /// Checks that an actor which looked for the rows of a shard at a turn may compute them.
    pub fn check_computation(&mut self, shard: &str, looked: u64) -> Result<(), String> {
        self.computations += 1;
        match self.committed.get(shard) {
            Some((turn, _)) if *turn < looked => Err(format!(
                "{shard} is computed at turn {looked} though it was committed at turn {turn}"
            )),
            _ => Ok(()),
        }
    }

    /// The manifest that readers see.
    pub fn visible(&self) -> Option<&Manifest> {
        self.visible.as_ref()
    }
}
