//! Temporary files of a training, and the signal that ends work on them.

use std::sync::Arc;

use forebay_contract::TrainingContext;
use forebay_model::{Result, ScratchSpace};

/// Ends long reads when their result is not needed any more.
pub trait StopCheck: Sync {
    /// Fails when the work should stop.
    fn check(&self) -> Result<()>;
}

impl StopCheck for TrainingContext<'_> {
    fn check(&self) -> Result<()> {
        TrainingContext::check(self)
    }
}

/// Temporary files of a training.
#[derive(Clone)]
pub struct TrainingFiles<'a> {
    pub scratch: Arc<dyn ScratchSpace>,
    /// Asked before each block.
    pub stop: &'a dyn StopCheck,
    /// Bytes of the features of a block of rows, about; a block has a row at least.
    pub block_bytes: u64,
}
