//! Where batches are delivered: in the host's memory, page-locked or not, or on a GPU.

use std::sync::Arc;
use std::time::Duration;

use forebay::connectors::{Cuda, DeviceFeed, found_cuda, keeping_context};
use forebay::feed::{Config, Cursor, Feed, Stats};
use forebay::model::{Fault, codes};

use crate::batch::Rows;

/// Batches that are copied ahead at most.
const PREFETCH_MAX: usize = 64;

/// What a caller says of where batches are to be.
pub(crate) struct Asked<'a> {
    pub device: &'a str,
    pub format: &'a str,
    pub pin_memory: bool,
    pub prefetch: usize,
    /// The GPU that `cuda` is, and that memory is locked for.
    pub current: usize,
}

/// Where batches are delivered.
pub(crate) enum Placement {
    /// In the host's memory.
    Host,
    /// In page-locked memory of the host.
    Pinned(Arc<Cuda>),
    /// On a GPU, with so many batches copied ahead.
    Device(Arc<Cuda>, usize),
}

impl Placement {
    /// Checks what a caller asks for; a fault where the machine does not have it.
    pub fn new(asked: &Asked) -> Result<Placement, Fault> {
        let Asked { device, format, pin_memory, prefetch, current } = *asked;
        let wrong = |message: String, hint: &str| Err(Fault::new(codes::BAD_VALUE, message).hint(hint));
        if prefetch == 0 || prefetch > PREFETCH_MAX {
            return wrong(format!("`prefetch` is {prefetch}, not between 1 and {PREFETCH_MAX}"), "2 is the default");
        }
        let number = match device {
            "cpu" if !pin_memory => return Ok(Placement::Host),
            "cpu" | "cuda" => current,
            _ => match device.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
                Some(number) => number,
                None => return wrong(format!("`{device}` is not a device"), "give `cpu`, `cuda`, or `cuda:1`"),
            },
        };
        if pin_memory && device != "cpu" {
            let hint = "leave out `pin_memory`: batches reach the GPU through page-locked memory anyhow";
            return wrong("`pin_memory` is for tensors of the CPU".to_owned(), hint);
        }
        if device != "cpu" && !matches!(format, "torch" | "raw") {
            let hint = "take `torch` or `raw`, or leave out `device`";
            return wrong(format!("`format=\"{format}\"` lies in the CPU's memory, not on `{device}`"), hint);
        }
        let Some(cuda) = Cuda::open(number)? else {
            let asked = if pin_memory { "`pin_memory=True`".to_owned() } else { format!("`device=\"{device}\"`") };
            let message = format!("{asked} asks for a GPU that this machine does not have: {}", found_cuda());
            let hint = "run where there is one (`forebay doctor` says what is found), or leave it out";
            return Err(Fault::new(codes::UNSUPPORTED, message).hint(hint));
        };
        let cuda = Arc::new(cuda);
        Ok(if pin_memory { Placement::Pinned(cuda) } else { Placement::Device(cuda, prefetch) })
    }

    /// Lets a feed have its slots where the consumer wants them.
    pub fn pin(&self, config: &mut Config) {
        if let Placement::Pinned(cuda) = self {
            config.allocator = Arc::new(cuda.lent_pinned());
        }
    }

    /// Starts a feed.
    pub fn start(&self, config: Config) -> Result<Batches, Fault> {
        match self {
            Placement::Device(cuda, prefetch) => {
                Ok(Batches::Device(Box::new(DeviceFeed::start(cuda.clone(), config, *prefetch)?)))
            }
            Placement::Host | Placement::Pinned(_) => Ok(Batches::Host(Box::new(Feed::start(config)?))),
        }
    }

    /// Works, and leaves the thread's CUDA context as it was.
    pub fn apart<T>(&self, work: impl FnOnce() -> T) -> T {
        match self {
            Placement::Host => work(),
            Placement::Pinned(_) | Placement::Device(..) => keeping_context(work),
        }
    }

    /// Leaves the device as it is: after a fork it is the parent's.
    pub fn forget(&mut self) {
        std::mem::forget(std::mem::replace(self, Placement::Host));
    }
}

/// A feed, and where its batches are.
pub(crate) enum Batches {
    Host(Box<Feed>),
    Device(Box<DeviceFeed>),
}

impl Batches {
    /// Where it stands after the last batch that was handed over.
    pub fn cursor(&self) -> &Cursor {
        match self {
            Batches::Host(feed) => feed.cursor(),
            Batches::Device(feed) => feed.cursor(),
        }
    }

    pub fn steps(&self, epoch: u64) -> u64 {
        match self {
            Batches::Host(feed) => feed.steps(epoch),
            Batches::Device(feed) => feed.steps(epoch),
        }
    }

    pub fn next_within(&mut self, patience: Duration) -> Option<Result<Option<Rows>, Fault>> {
        match self {
            Batches::Host(feed) => Some(feed.next_within(patience)?.map(|batch| batch.map(Rows::Host))),
            Batches::Device(feed) => Some(feed.next_within(patience)?.map(|batch| batch.map(Rows::Device))),
        }
    }

    /// What it did since this was asked last, and the bytes that were copied to a device.
    pub fn take_stats(&mut self) -> (Stats, Option<u64>) {
        match self {
            Batches::Host(feed) => (feed.take_stats(), None),
            Batches::Device(feed) => {
                let stats = feed.take_stats();
                (stats.feed, Some(stats.copied_bytes))
            }
        }
    }
}
