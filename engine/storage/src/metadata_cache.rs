//! Notes of a source about its files, kept from run to run.

use std::sync::Mutex;

use forebay_model::{ContentId, IdBuilder, PipelineSource, Result};

/// Maximum bytes of one source's notes; a source with more is inspected again in each run. A
/// million files have fewer.
pub const METADATA_CACHE_BYTES_MAX: usize = 512 << 20;

/// Notes of a source from its last discovery, and its new notes. Their form is the source's own,
/// with two rules: it must not rely on notes if a file may have changed since, and notes that it
/// cannot read count as none.
pub struct MetadataCache {
    before: Box<MetadataLoader>,
    now: Mutex<Option<Vec<u8>>>,
}

/// Reads the notes of earlier runs.
type MetadataLoader = dyn Fn() -> Result<Option<Vec<u8>>> + Send + Sync;

impl Default for MetadataCache {
    /// Creates a cache without notes.
    fn default() -> Self {
        MetadataCache::new(|| Ok(None))
    }
}

impl MetadataCache {
    /// Creates a cache over the notes of earlier runs.
    pub fn new(
        read_stored: impl Fn() -> Result<Option<Vec<u8>>> + Send + Sync + 'static,
    ) -> MetadataCache {
        MetadataCache {
            before: Box::new(read_stored),
            now: Mutex::default(),
        }
    }

    /// Reads the notes of earlier runs, if there are any.
    pub fn load(&self) -> Result<Option<Vec<u8>>> {
        (self.before)()
    }

    /// Replaces the notes.
    pub fn store(&self, notes: Vec<u8>) {
        if let Ok(mut now) = self.now.lock()
            && notes.len() <= METADATA_CACHE_BYTES_MAX
        {
            *now = Some(notes);
        }
    }

    /// The new notes, if any.
    pub fn into_stored(self) -> Option<Vec<u8>> {
        self.now.into_inner().ok().flatten()
    }
}

/// Id of the notes of a source that watches some columns.
pub fn metadata_cache_id(source: &PipelineSource, watched_columns: &[String]) -> ContentId {
    let mut id = IdBuilder::new("notes");
    id.text(&source.format).json(&source.config);
    watched_columns.iter().for_each(|column| {
        id.text(column);
    });
    id.finish()
}
