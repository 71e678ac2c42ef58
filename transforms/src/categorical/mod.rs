//! Text and other categories: ids, indicator vectors, hashes.

mod one_hot;
mod vocabulary;

pub use one_hot::{OneHot, OneHotAs};
pub use vocabulary::{IdType, Order, Vocabulary};
