//! Which columns there are, and of which types.

mod cast;
mod derive;
mod drop;
mod rename;
mod select;

pub use cast::{Cast, OnError, TypeName};
pub use derive::Derive;
pub use drop::DropColumns;
pub use rename::Rename;
pub use select::Select;
