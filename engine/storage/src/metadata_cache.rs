//! What a source found out about its files, kept from run to run.

use std::sync::Mutex;

use forebay_model::{ContentId, IdBuilder, PipelineSource, Result};

/// Bytes of one source's notes at most; a source with more is looked at anew each time. A million
/// files have fewer.
pub const METADATA_CACHE_BYTES_MAX: usize = 512 << 20;

/// What a source noted when it was discovered before, and what it notes now. Its own business but
/// for two things: it must not rely on notes where a file may have changed since, and notes that it
/// cannot read are no notes.
pub struct MetadataCache {
    before: Box<MetadataLoader>,
    now: Mutex<Option<Vec<u8>>>,
}

/// Reads what was noted before.
type MetadataLoader = dyn Fn() -> Result<Option<Vec<u8>>> + Send + Sync;

impl Default for MetadataCache {
    /// Nothing was noted.
    fn default() -> Self {
        MetadataCache::new(|| Ok(None))
    }
}

impl MetadataCache {
    /// Notes over what was noted before.
    pub fn new(
        before: impl Fn() -> Result<Option<Vec<u8>>> + Send + Sync + 'static,
    ) -> MetadataCache {
        MetadataCache {
            before: Box::new(before),
            now: Mutex::default(),
        }
    }

    /// Reads what was noted before, if anything was.
    pub fn load(&self) -> Result<Option<Vec<u8>>> {
        (self.before)()
    }

    /// Replaces what was noted before.
    pub fn store(&self, notes: Vec<u8>) {
        if let Ok(mut now) = self.now.lock()
            && notes.len() <= METADATA_CACHE_BYTES_MAX
        {
            *now = Some(notes);
        }
    }

    /// What was noted now, if anything was.
    pub fn into_stored(self) -> Option<Vec<u8>> {
        self.now.into_inner().ok().flatten()
    }
}

/// Names the notes of a source that watches some columns.
pub fn metadata_cache_id(source: &PipelineSource, watch: &[String]) -> ContentId {
    let mut id = IdBuilder::new("notes");
    id.text(&source.format).json(&source.config);
    watch.iter().for_each(|column| {
        id.text(column);
    });
    id.finish()
}
