//! Objects and the versions that a store gives them.

use bytes::Bytes;
use object_store::UpdateVersion;

/// An object with its version.
#[derive(Clone)]
pub struct VersionedObject {
    /// Content of the object.
    pub bytes: Bytes,
    /// The store's version of this content.
    pub version: ObjectVersion,
}

/// The store's version of an object's content: an etag, and on Google's store a generation, too.
/// Empty if the store has no versions.
pub type ObjectVersion = UpdateVersion;
