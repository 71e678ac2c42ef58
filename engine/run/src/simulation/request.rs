//! Requests of actors to the store.

use bytes::Bytes;
use object_store::path::Path;

/// Number of an actor.
pub type ActorId = usize;

/// A write or a removal, as the store gets it.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    pub by: ActorId,
    pub path: Path,
    /// The new content; none removes the object.
    pub bytes: Option<Bytes>,
    pub on: PutCondition,
}

/// Condition of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum PutCondition {
    Always,
    Absent,
    Version(String),
}
