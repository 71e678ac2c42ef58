//! Which columns there are, and of which types.

mod cast;
mod derive;
mod drop;
mod profile;
mod rename;
mod select;

pub use cast::{CastColumns, OnCastError, TypeName};
pub use derive::DeriveColumns;
pub use drop::DropColumns;
pub use profile::ProfileColumns;
pub(crate) use profile::profile_requests;
pub use rename::RenameColumns;
pub use select::SelectColumns;
