//! What tells one version of a file from another without reading it.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_model::{Id, IdBuilder};
use object_store::ObjectMeta;

/// Size and version of a file as its store tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Bytes.
    pub(crate) size: u64,
    /// The object's version or etag, else the nanosecond of its last change.
    pub(crate) version: String,
    /// Whether `version` alone vouches for the content.
    pub(crate) strong: bool,
}

/// A file that changed so short a time ago may change again and keep its stamp: clocks tick slowly,
/// and those of stores go by themselves.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

impl Stamp {
    /// Of a local file.
    pub(crate) fn local(meta: &Metadata) -> Self {
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let version = modified.map(|time| time.as_nanos().to_string()).unwrap_or_default();
        Stamp { size: meta.len(), version, strong: false }
    }

    /// Of an object.
    pub(crate) fn remote(meta: &ObjectMeta) -> Self {
        // The etag comes first: listings give it as well, versions only come with single objects.
        let strong = meta.e_tag.is_some() || meta.version.is_some();
        let version = meta
            .e_tag
            .clone()
            .or_else(|| meta.version.clone())
            .unwrap_or_else(|| meta.last_modified.timestamp_nanos_opt().unwrap_or_default().to_string());
        Stamp { size: meta.size, version, strong }
    }

    /// Whether other content would have another stamp.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let changed = self.version.parse().ok().map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos));
        self.strong || changed.is_some_and(|changed| changed + SETTLED_AFTER <= now)
    }

    /// The id of the rows that a file gives: its content, and what its path adds to it.
    pub(crate) fn fingerprint(&self, relative: &str, partition: &[(String, String)], footer: Option<Id>) -> Id {
        let mut id = IdBuilder::new("file");
        id.text(relative).text(&self.version).bytes(&self.size.to_le_bytes());
        for (column, value) in partition {
            id.text(column).text(value);
        }
        if let Some(footer) = footer.filter(|_| !self.strong) {
            id.id(footer);
        }
        id.finish()
    }
}
