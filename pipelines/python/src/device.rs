//! Destinations of batches: the host's memory, page-locked or not, or a GPU.

use std::sync::Arc;
use std::time::Duration;

use forebay::connectors::{CudaDevice, DeviceFeed, describe_cuda, with_saved_context};
use forebay::feed::{Feed, FeedCursor, FeedOptions, FeedStats};
use forebay::model::{Fault, codes};

use crate::batch_rows::BatchRows;

/// Batches that are copied ahead at most.
const PREFETCH_MAX: usize = 64;

/// Destination of batches, as the caller requests it.
pub(crate) struct PlacementRequest<'a> {
    pub device: &'a str,
    pub format: &'a str,
    pub pin_memory: bool,
    pub prefetch: usize,
    /// The GPU that `cuda` is, and that memory is locked for.
    pub current: usize,
}

/// Destination of batches.
pub(crate) enum BatchPlacement {
    /// The host's memory.
    Host,
    /// Page-locked memory of the host.
    Pinned(Arc<CudaDevice>),
    /// A GPU, with this number of batches copied ahead.
    Device(Arc<CudaDevice>, usize),
}

impl BatchPlacement {
    /// Checks a request; a fault if the machine does not have the device.
    pub fn new(request: &PlacementRequest) -> Result<BatchPlacement, Fault> {
        let PlacementRequest {
            device,
            format,
            pin_memory,
            prefetch,
            current,
        } = *request;
        let wrong =
            |message: String, hint: &str| Err(Fault::new(codes::BAD_VALUE, message).hint(hint));
        if prefetch == 0 || prefetch > PREFETCH_MAX {
            return wrong(
                format!("`prefetch` is {prefetch}, not between 1 and {PREFETCH_MAX}"),
                "2 is the default",
            );
        }
        let number = match device {
            "cpu" if !pin_memory => return Ok(BatchPlacement::Host),
            "cpu" | "cuda" => current,
            _ => match device
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok())
            {
                Some(number) => number,
                None => {
                    return wrong(
                        format!("`{device}` is not a device"),
                        "give `cpu`, `cuda`, or `cuda:1`",
                    );
                }
            },
        };
        if pin_memory && device != "cpu" {
            let hint =
                "leave out `pin_memory`: batches reach the GPU through page-locked memory anyhow";
            return wrong("`pin_memory` is for tensors of the CPU".to_owned(), hint);
        }
        if device != "cpu" && !matches!(format, "torch" | "raw") {
            let hint = "take `torch` or `raw`, or leave out `device`";
            return wrong(
                format!("`format=\"{format}\"` lies in the CPU's memory, not on `{device}`"),
                hint,
            );
        }
        let Some(cuda) = CudaDevice::open(number)? else {
            let option = if pin_memory {
                "`pin_memory=True`".to_owned()
            } else {
                format!("`device=\"{device}\"`")
            };
            let message = format!(
                "{option} asks for a GPU that this machine does not have: {}",
                describe_cuda()
            );
            let hint =
                "run where there is one (`forebay doctor` says what is found), or leave it out";
            return Err(Fault::new(codes::UNSUPPORTED, message).hint(hint));
        };
        let cuda = Arc::new(cuda);
        Ok(if pin_memory {
            BatchPlacement::Pinned(cuda)
        } else {
            BatchPlacement::Device(cuda, prefetch)
        })
    }

    /// Sets the allocator of a feed's slots for the destination.
    pub fn pin(&self, config: &mut FeedOptions) {
        if let BatchPlacement::Pinned(cuda) = self {
            config.allocator = Arc::new(cuda.lent_pinned());
        }
    }

    /// Starts a feed.
    pub fn start(&self, config: FeedOptions) -> Result<PlacedFeed, Fault> {
        match self {
            BatchPlacement::Device(cuda, prefetch) => Ok(PlacedFeed::Device(Box::new(
                DeviceFeed::start(cuda.clone(), config, *prefetch)?,
            ))),
            BatchPlacement::Host | BatchPlacement::Pinned(_) => {
                Ok(PlacedFeed::Host(Box::new(Feed::start(config)?)))
            }
        }
    }

    /// Works, and leaves the thread's CUDA context as it was.
    pub fn keeping_cuda_context<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            BatchPlacement::Host => work(),
            BatchPlacement::Pinned(_) | BatchPlacement::Device(..) => with_saved_context(work),
        }
    }

    /// Leaves the memory of the device allocated: after a fork it belongs to the parent process.
    pub fn leak_after_fork(&mut self) {
        std::mem::forget(std::mem::replace(self, BatchPlacement::Host));
    }
}

/// A feed, and where its batches are.
pub(crate) enum PlacedFeed {
    Host(Box<Feed>),
    Device(Box<DeviceFeed>),
}

impl PlacedFeed {
    /// Position after the last batch that was handed over.
    pub fn cursor(&self) -> &FeedCursor {
        match self {
            PlacedFeed::Host(feed) => feed.cursor(),
            PlacedFeed::Device(feed) => feed.cursor(),
        }
    }

    pub fn steps(&self, epoch: u64) -> u64 {
        match self {
            PlacedFeed::Host(feed) => feed.steps(epoch),
            PlacedFeed::Device(feed) => feed.steps(epoch),
        }
    }

    pub fn next_within(&mut self, patience: Duration) -> Option<Result<Option<BatchRows>, Fault>> {
        match self {
            PlacedFeed::Host(feed) => Some(
                feed.next_within(patience)?
                    .map(|batch| batch.map(BatchRows::Host)),
            ),
            PlacedFeed::Device(feed) => Some(
                feed.next_within(patience)?
                    .map(|batch| batch.map(BatchRows::Device)),
            ),
        }
    }

    /// Statistics since the last call, and the bytes that were copied to a device.
    pub fn take_stats(&mut self) -> (FeedStats, Option<u64>) {
        match self {
            PlacedFeed::Host(feed) => (feed.take_stats(), None),
            PlacedFeed::Device(feed) => {
                let stats = feed.take_stats();
                (stats.feed, Some(stats.copied_bytes))
            }
        }
    }
}
