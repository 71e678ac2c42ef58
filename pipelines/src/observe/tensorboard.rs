//! Event files for TensorBoard: the scalars of trainings. A training has a directory, named after
//! its sink and its id, so that a resumed training continues there.
//!
//! A file is a sequence of records of TFRecord (length, checksum, bytes, checksum), each an `Event` of TensorFlow.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use forebay_model::{Fault, Result};
use forebay_storage::{Event as RunEvent, EventListener};
use prost::Message;

use super::run_observer::{ObservedSession, RunObserver};

/// Content of the first record of a file.
const FILE_VERSION: &str = "brain.Event:2";

/// Digits of a training's id in the name of its directory.
const ID_DIGITS: usize = 12;

/// Writes events of trainings.
pub(super) struct TensorBoardObserver {
    directory: PathBuf,
    watch: OnceLock<Arc<dyn EventListener>>,
    state: Mutex<BoardState>,
}

#[derive(Default)]
struct BoardState {
    /// Id of the current pass: that of the training, if it trains.
    pass: String,
    /// Files by sink and id.
    files: BTreeMap<(String, String), File>,
    has_failed: bool,
}

/// A record: `tensorflow.Event`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<SummaryValue>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The checksum of TFRecord: CRC-32C, rotated and moved, since data may hold checksums themselves.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// An event as a record.
fn record(event: &Event) -> Vec<u8> {
    let body = event.encode_to_vec();
    let length = (body.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(body.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_crc(&length).to_le_bytes());
    record.extend_from_slice(&body);
    record.extend_from_slice(&masked_crc(&body).to_le_bytes());
    record
}

/// A new file of events: TensorBoard reads all files of a directory in the order of their names.
fn create(directory: &Path) -> std::io::Result<File> {
    std::fs::create_dir_all(directory)?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let now = seconds_since_1970();
    let process = std::process::id();
    let name = format!(
        "events.out.tfevents.{:010}.{}.{process}",
        now as u64,
        host.trim()
    );
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(directory.join(name))?;
    let first = Event {
        wall_time: now,
        file_version: Some(FILE_VERSION.to_owned()),
        ..Event::default()
    };
    file.write_all(&record(&first))?;
    Ok(file)
}

impl TensorBoardObserver {
    pub fn new(directory: PathBuf) -> TensorBoardObserver {
        TensorBoardObserver {
            directory,
            watch: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes scalars of a step of a sink's training.
    fn write(&self, sink: &str, step: u64, scalars: &[(&str, f64)]) {
        let mut state = self.state();
        if state.has_failed {
            return;
        }
        let value = |(tag, value): &(&str, f64)| SummaryValue {
            tag: (*tag).to_owned(),
            simple_value: Some(*value as f32),
        };
        let summary = Summary {
            value: scalars.iter().map(value).collect(),
        };
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let event = Event {
            wall_time: seconds_since_1970(),
            step,
            summary: Some(summary),
            file_version: None,
        };
        let written = state
            .file(&self.directory, sink)
            .and_then(|file| file.write_all(&record(&event)));
        if let Err(error) = written {
            state.has_failed = true;
            drop(state);
            let fault = Fault::disk("the event file for TensorBoard cannot be written", error);
            if let Some(watch) = self.watch.get() {
                watch.on_event(RunEvent::Warning {
                    message: fault.to_string(),
                });
            }
        }
    }
}

impl BoardState {
    fn file(&mut self, directory: &Path, sink: &str) -> std::io::Result<&mut File> {
        let id = self.pass[..self.pass.len().min(ID_DIGITS)].to_owned();
        let path = directory.join(sink).join(&id);
        match self.files.entry((sink.to_owned(), id)) {
            std::collections::btree_map::Entry::Occupied(file) => Ok(file.into_mut()),
            std::collections::btree_map::Entry::Vacant(empty) => Ok(empty.insert(create(&path)?)),
        }
    }
}

impl RunObserver for TensorBoardObserver {
    fn begin(&self, observed: &ObservedSession<'_>) -> Result<()> {
        let _ = self.watch.set(observed.watch.clone());
        Ok(())
    }

    fn on_event(&self, event: &RunEvent) {
        match event {
            RunEvent::PassStarted { id, .. } => self.state().pass.clone_from(id),
            RunEvent::TrainingStep {
                sink,
                step,
                loss,
                learning_rate,
                ..
            } => {
                self.write(
                    sink,
                    *step,
                    &[("loss", *loss), ("learning_rate", *learning_rate)],
                );
            }
            RunEvent::TrainingEpoch {
                sink,
                epoch,
                wait_seconds,
                starved_steps,
                ..
            } => {
                let validation: Vec<(String, f64)> = epoch
                    .validation
                    .iter()
                    .map(|(name, value)| (format!("validation/{name}"), *value))
                    .collect();
                let mut scalars = vec![
                    ("epoch/loss", epoch.loss),
                    ("epoch/wait_seconds", *wait_seconds),
                    ("epoch/starved_steps", *starved_steps as f64),
                ];
                scalars.extend(validation.iter().map(|(tag, value)| (tag.as_str(), *value)));
                self.write(sink, epoch.step, &scalars);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record that TensorFlow 2.19 writes first, but for the time.
    #[test]
    fn records_are_as_tensorflow_writes_them() {
        let event = Event {
            wall_time: 1.0,
            file_version: Some(FILE_VERSION.to_owned()),
            ..Event::default()
        };
        let written = record(&event);
        let (length, rest) = written.split_at(8);
        assert_eq!(length, 24u64.to_le_bytes());
        assert_eq!(rest[..4], masked_crc(length).to_le_bytes());
        assert_eq!(rest[4..13], [9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(rest[13..28], *b"\x1a\x0dbrain.Event:2");
        assert_eq!(rest[28..], masked_crc(&rest[4..28]).to_le_bytes());
        // From RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
