//! The order of a pipeline's fits in time: determines the artifact that a run continues.
//!
//! ```text
//! fits/<pipeline>/numbering/...         which tokens have which ids (`token_ledger.rs`)
//! fits/<pipeline>/t<nanoseconds>.json   the artifact of the run that knew the rows before a time
//! fits/<pipeline>/n<number>.json        the same where times are numbers
//! fits/<pipeline>/whole.json            the newest artifact of runs over all rows, and the one before it
//! ```
//! A run up to a time continues the last fit up to an earlier time, independent of fits since:
//! repeats and runs in another order have the same result. A run over all rows continues the newest
//! one, unless that one had the same input: then it is a repeat, and continues the artifact that
//! that one continued.

use std::collections::BTreeMap;

use forebay_model::{ContentId, Fault, Result, TimeCutoff, codes};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::gc::list_files;

/// The version of records.
const FORMAT: u32 = 1;

/// The directory of all records.
pub(crate) const FITS: &str = "fits";

const WHOLE: &str = "whole.json";

/// The rows that a fit learned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitRange {
    /// The rows before a time.
    Before(TimeCutoff),
    /// All rows at the time of the run. The id names them and the operations on them.
    Whole(ContentId),
}

/// Progress of the ids of tokens at the end of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitNumbering {
    /// The numbering.
    pub epoch: u64,
    /// Tokens of each vocabulary.
    pub tokens: BTreeMap<String, u64>,
}

/// Fit that a run continues from. Its artifact may have been removed.
#[derive(Debug, Clone)]
pub struct EarlierFit {
    /// The artifact.
    pub artifact: ContentId,
    /// Progress of the ids; `None` in records of versions without numberings.
    pub numbering: Option<FitNumbering>,
}

impl EarlierFit {
    /// A fit without ids of tokens.
    pub fn of_artifact(artifact: ContentId) -> EarlierFit {
        EarlierFit {
            artifact,
            numbering: None,
        }
    }
}

/// The fits of a pipeline.
pub struct FitHistory<'a> {
    /// The storage client.
    pub io: &'a StorageClient,
    /// The state directory.
    pub root: &'a StorageLocation,
    /// The pipeline's name.
    pub pipeline: &'a str,
}

#[derive(Serialize, Deserialize)]
struct WireFit {
    format: u32,
    artifact: String,
    /// Id of the input of a run over all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    /// The artifact that the fit continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// Progress of the ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    numbering: Option<FitNumbering>,
    /// Progress of the ids in the fit that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    numbering_before: Option<FitNumbering>,
}

impl WireFit {
    /// The fit as later ones see it.
    fn earlier(self) -> Option<EarlierFit> {
        Some(EarlierFit {
            artifact: ContentId::parse(&self.artifact)?,
            numbering: self.numbering,
        })
    }
}

impl FitHistory<'_> {
    fn directory(&self) -> StorageLocation {
        self.root.join(&format!("{FITS}/{}", self.pipeline))
    }

    /// The fits that a fit can go on from, the best first.
    pub fn before(&self, range: &FitRange) -> Result<Vec<EarlierFit>> {
        let id = |text: &String| ContentId::parse(text);
        let until = match range {
            FitRange::Before(until) => time_key(until)?,
            FitRange::Whole(input) => {
                let Some(newest) = self.read(WHOLE)? else {
                    return Ok(Vec::new());
                };
                let is_repeat = newest.input.as_ref().and_then(id) == Some(*input);
                let (from, numbering) = if is_repeat {
                    (newest.before, newest.numbering_before)
                } else {
                    (Some(newest.artifact), newest.numbering)
                };
                let artifact = from.as_ref().and_then(id);
                let fit = artifact.map(|artifact| EarlierFit {
                    artifact,
                    numbering,
                });
                return Ok(fit.into_iter().collect());
            }
        };
        let files = list_files(self.io, &self.directory())?;
        let keys = files
            .iter()
            .filter_map(|file| parse_key(file.path.strip_suffix(".json")?));
        let mut earlier: Vec<(char, i64)> = keys
            .filter(|key| key.0 == until.0 && key.1 < until.1)
            .collect();
        earlier.sort_unstable();
        let mut earlier_fits = Vec::new();
        for (kind, tick) in earlier.into_iter().rev().take(EARLIER_MAX) {
            let fit = self.read(&format!("{kind}{tick}.json"))?;
            earlier_fits.extend(fit.and_then(WireFit::earlier));
        }
        Ok(earlier_fits)
    }

    /// The artifacts of the newest fits, those that know the most first.
    pub fn newest(&self) -> Result<Vec<ContentId>> {
        let files = list_files(self.io, &self.directory())?;
        let keys = files
            .iter()
            .filter_map(|file| parse_key(file.path.strip_suffix(".json")?));
        let mut keys: Vec<(char, i64)> = keys.collect();
        keys.sort_unstable();
        let by_time = keys.into_iter().rev().take(NEWEST_MAX);
        let names = by_time.map(|(kind, tick)| format!("{kind}{tick}.json"));
        let mut ids = Vec::new();
        for name in names.chain([WHOLE.to_owned()]) {
            let fit = self.read(&name)?;
            ids.extend(fit.and_then(|fit| ContentId::parse(&fit.artifact)));
        }
        Ok(ids)
    }

    /// The artifacts that belong to a range or to one before it, the best first.
    pub fn up_to(&self, range: &FitRange) -> Result<Vec<ContentId>> {
        let FitRange::Before(until) = range else {
            let earlier = self.before(range)?;
            return Ok(earlier.into_iter().map(|fit| fit.artifact).collect());
        };
        let (kind, tick) = time_key(until)?;
        let fit_of_tick = self
            .read(&format!("{kind}{tick}.json"))?
            .and_then(|fit| ContentId::parse(&fit.artifact));
        let earlier = self.before(range)?.into_iter().map(|fit| fit.artifact);
        Ok(fit_of_tick.into_iter().chain(earlier).collect())
    }

    /// Records a fit that went on from another one.
    pub fn record(
        &self,
        range: &FitRange,
        artifact: ContentId,
        numbering: Option<FitNumbering>,
        previous: Option<&EarlierFit>,
    ) -> Result<()> {
        let (name, input) = match range {
            FitRange::Before(until) => {
                let (kind, tick) = time_key(until)?;
                (format!("{kind}{tick}.json"), None)
            }
            FitRange::Whole(input) => (WHOLE.to_owned(), Some(input.to_string())),
        };
        let fit = WireFit {
            format: FORMAT,
            artifact: artifact.to_string(),
            input,
            before: previous.map(|fit| fit.artifact.to_string()),
            numbering,
            numbering_before: previous.and_then(|fit| fit.numbering.clone()),
        };
        let text = serde_json::to_vec(&fit)
            .map_err(|error| Fault::internal("the record of a fit").cause(error))?;
        self.io.put_durable(&self.directory().join(&name), &text)
    }

    fn read(&self, name: &str) -> Result<Option<WireFit>> {
        let location = self.directory().join(name);
        let Some(bytes) = self.io.get(&location)? else {
            return Ok(None);
        };
        let unreadable = |code, message: &str| {
            let fault = Fault::new(code, message).file(&location.shown);
            Err(fault
                .hint("remove the file: the run then goes on from an earlier one, or from none"))
        };
        match serde_json::from_slice::<WireFit>(&bytes) {
            Ok(fit) if fit.format == FORMAT => Ok(Some(fit)),
            Ok(_) => unreadable(
                codes::STATE_VERSION,
                "the record of a fit has another version",
            ),
            Err(_) => unreadable(codes::CORRUPT, "the record of a fit cannot be read"),
        }
    }

    /// True if the artifact of a fit still exists.
    pub fn holds(&self, artifact: ContentId) -> Result<bool> {
        let file = Artifact::directory(self.root, artifact).join("artifact.json");
        Ok(self.io.head(&file)?.is_some())
    }
}

/// Earlier fits that are considered: artifacts of old ones may have been removed.
const EARLIER_MAX: usize = 32;

/// Newest fits that are considered.
const NEWEST_MAX: usize = 8;

/// A kind of times, and a time of it.
fn time_key(until: &TimeCutoff) -> Result<(char, i64)> {
    let time = until.nanoseconds();
    let number = until.text().trim().parse::<i64>();
    let wrong = || {
        let message = format!("`{}` is no time", until.text());
        Fault::new(codes::BAD_VALUE, message)
            .hint("write a date (2016-04-24), a timestamp or a whole number")
    };
    number
        .map(|number| ('n', number))
        .ok()
        .or(time.map(|time| ('t', time)))
        .ok_or_else(wrong)
}

fn parse_key(name: &str) -> Option<(char, i64)> {
    let kind = name.chars().next()?;
    let tick = name.get(1..)?;
    ['t', 'n'].contains(&kind).then_some(())?;
    Some((kind, tick.parse().ok()?))
}
