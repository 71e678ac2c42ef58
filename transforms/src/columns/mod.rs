//! Which columns there are, and of which types.

mod cast;
mod derive;
mod drop;
mod profile;
mod rename;
mod select;

pub use cast::{CastColumns, OnCastError, TypeName, cast};
pub use derive::{DeriveColumns, derive};
pub use drop::{DropColumns, drop_columns};
pub(crate) use profile::profile_requests;
pub use profile::{ProfileColumns, profile};
pub use rename::{RenameColumns, rename};
pub use select::{SelectColumns, select};
