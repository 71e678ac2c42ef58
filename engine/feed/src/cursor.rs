//! The position of a feed: a few numbers from which it resumes.

use forebay_model::{ContentId, Fault, Result, codes};
use serde::{Deserialize, Serialize};

use crate::{RowSequence, SampleOrder};

/// The version of the cursor and of the order: both must be known to go on.
pub const ORDER_VERSION: u32 = 6;

/// The largest cursor.
pub const CURSOR_BYTES_MAX: usize = 4096;

/// The position of a feed. It holds nothing about ranks, threads and prefetch, so that a feed resumes
/// under others with the same global sequence of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedCursor {
    version: u32,
    /// The fingerprint of the data.
    dataset: String,
    /// The order, with the window that it was made for.
    pub order: SampleOrder,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Positions of the epoch that all ranks together have delivered.
    pub position: u64,
}

impl FeedCursor {
    /// The beginning of a sequence.
    pub fn start(sequence: &RowSequence) -> FeedCursor {
        let dataset = sequence.fingerprint().to_string();
        FeedCursor {
            version: ORDER_VERSION,
            dataset,
            order: sequence.order().clone(),
            epoch: 0,
            position: 0,
        }
    }

    /// A position of the same sequence.
    pub fn at(&self, epoch: u64, position: u64) -> FeedCursor {
        FeedCursor {
            epoch,
            position,
            ..self.clone()
        }
    }

    /// Encodes the cursor for a checkpoint.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Fault::internal("a cursor cannot be written").cause(error))
    }

    /// Decodes a cursor from the bytes of a checkpoint.
    pub fn decode(bytes: &[u8]) -> Result<FeedCursor> {
        #[derive(Deserialize)]
        struct CursorVersion {
            version: u32,
        }
        let corrupt = |error| {
            Fault::new(codes::CORRUPT, "this is no cursor of a feed")
                .cause(error)
                .hint(
                    "take the cursor from the checkpoint that was written with the model, \
                     or begin anew",
                )
        };
        let bytes = &bytes[..bytes.len().min(CURSOR_BYTES_MAX + 1)];
        let CursorVersion { version } = serde_json::from_slice(bytes).map_err(corrupt)?;
        if version != ORDER_VERSION {
            return Err(Fault::new(
                codes::STATE_VERSION,
                format!("a cursor of version {version}, not {ORDER_VERSION}"),
            )
            .hint("go on with the version of Forebay that wrote the checkpoint, or begin anew"));
        }
        serde_json::from_slice(bytes).map_err(corrupt)
    }

    /// Checks that the cursor belongs to these data and lies within them.
    pub fn check(&self, sequence: &RowSequence) -> Result<()> {
        let dataset: ContentId = sequence.fingerprint();
        if self.dataset != dataset.to_string() {
            let ours = self.dataset.get(..8).unwrap_or(&self.dataset);
            let message = format!(
                "the cursor belongs to dataset {ours}, and this is dataset {}",
                dataset.short()
            );
            return Err(Fault::new(codes::OTHER_DATA, message).hint(
                "resume with the data and `window_rows` that the cursor was made for, \
                 or begin anew without a cursor",
            ));
        }
        if self.order != *sequence.order() {
            let fault = Fault::new(
                codes::BAD_VALUE,
                "the cursor belongs to another order of the same data",
            );
            return Err(fault.hint(
                "resume with the cursor's own order (seed, mode, window, mix), \
                 or begin anew without a cursor",
            ));
        }
        if self.position > sequence.epoch_rows() {
            let message = format!(
                "the cursor stands at row {} of an epoch of {}",
                self.position,
                sequence.epoch_rows()
            );
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        Ok(())
    }
}
