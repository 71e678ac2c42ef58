//! Stamps that distinguish the versions of a file without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_model::{ContentId, IdBuilder};
use object_store::ObjectMeta;

/// Size and version of a file from the metadata of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp {
    /// Bytes.
    pub size: u64,
    /// The object's version or etag, else the nanosecond of its last change.
    pub(crate) version: String,
    /// True if `version` alone identifies the content.
    pub(crate) strong: bool,
    /// Inode of a local file, which changes with its content even where size and time of change are
    /// set back.
    pub(crate) node: Option<InodeStamp>,
}

/// A file as its file system knows it. Links to the file that come or go change it, too, so that another node is no
/// proof of other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InodeStamp {
    /// The number of the inode.
    pub(crate) inode: u64,
    /// The nanosecond in which the inode changed last. Programs cannot set it.
    pub(crate) changed: i64,
}

/// Age below which a file may change again without a change of its stamp: clocks have a coarse
/// resolution, and those of stores differ from the machine's.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

impl FileStamp {
    /// Stamp of a local file.
    pub(crate) fn local(meta: &Metadata) -> Self {
        let modified = meta
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let version = modified
            .map(|time| time.as_nanos().to_string())
            .unwrap_or_default();
        let changed = meta
            .ctime()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(meta.ctime_nsec());
        FileStamp {
            size: meta.len(),
            version,
            strong: false,
            node: Some(InodeStamp {
                inode: meta.ino(),
                changed,
            }),
        }
    }

    /// Stamp of a file that the log of a table describes. Such a file is never written twice.
    pub fn logged(size: u64, version: String) -> Self {
        FileStamp {
            size,
            version,
            strong: true,
            node: None,
        }
    }

    /// Stamp of bytes that came in a request.
    pub(crate) fn in_memory(bytes: &[u8]) -> Self {
        FileStamp {
            size: bytes.len() as u64,
            version: String::new(),
            strong: true,
            node: None,
        }
    }

    /// Stamp of an object.
    pub(crate) fn remote(meta: &ObjectMeta) -> Self {
        // The etag comes first: listings give it as well, versions only come with single objects.
        let strong = meta.e_tag.is_some() || meta.version.is_some();
        let version = meta
            .e_tag
            .clone()
            .or_else(|| meta.version.clone())
            .unwrap_or_else(|| {
                meta.last_modified
                    .timestamp_nanos_opt()
                    .unwrap_or_default()
                    .to_string()
            });
        FileStamp {
            size: meta.size,
            version,
            strong,
            node: None,
        }
    }

    /// True if size and version equal those of another stamp; changes of links do not matter.
    pub(crate) fn same_version(&self, other: &FileStamp) -> bool {
        (self.size, &self.version, self.strong) == (other.size, &other.version, other.strong)
    }

    /// True if other content would have another stamp.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let changed = self
            .version
            .parse()
            .ok()
            .map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos));
        self.strong || changed.is_some_and(|changed| changed + SETTLED_AFTER <= now)
    }

    /// Id of the rows of a file, from its relative path, version, size, footer and the columns of its
    /// path. A file without a footer is identified by its inode's time of change, as times of
    /// modification can be set.
    pub fn fingerprint(
        &self,
        relative: &str,
        partition: &[(String, String)],
        footer: Option<ContentId>,
    ) -> ContentId {
        let mut id = IdBuilder::new("file");
        id.text(relative)
            .text(&self.version)
            .bytes(&self.size.to_le_bytes());
        for (column, value) in partition {
            id.text(column).text(value);
        }
        match (footer.filter(|_| !self.strong), self.node) {
            (Some(footer), _) => id.id(footer),
            (None, Some(node)) => id.bytes(&node.changed.to_le_bytes()),
            (None, None) => &mut id,
        };
        id.finish()
    }
}
