//! Validated relative paths, as stored in files and exchanged between processes.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::{Fault, Result, codes};

/// A path below some root, such as `_data/0123/part-00000.parquet`. Joining it never leaves the root.
///
/// It is not absolute. No component is empty, `.`, `..` or contains NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

impl RelativePath {
    /// Validates a path; refuses any that could leave its root.
    pub fn new(path: impl Into<String>) -> Result<RelativePath> {
        let path = path.into();
        // `..` could leave the root, and an empty component at the start would make the path absolute.
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if path.split('/').all(is_plain) {
            return Ok(RelativePath(path));
        }
        let message = format!(
            "`{}` is not a path below its directory",
            path.escape_debug()
        );
        Err(Fault::new(codes::CORRUPT, message).hint(
            "such a path is absolute, or has an empty component, `.`, `..` or NUL; \
             Forebay writes none",
        ))
    }

    /// Appends a path.
    pub fn join(&self, below: &RelativePath) -> RelativePath {
        RelativePath(format!("{self}/{below}"))
    }

    /// The first `components` components, if the path has more than that many.
    pub fn parent_of(&self, components: usize) -> Option<RelativePath> {
        let (end, _) = self.0.match_indices('/').nth(components.checked_sub(1)?)?;
        Some(RelativePath(self.0[..end].to_owned()))
    }
}

impl TryFrom<String> for RelativePath {
    type Error = Fault;

    fn try_from(path: String) -> Result<RelativePath> {
        RelativePath::new(path)
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> String {
        path.0
    }
}

impl Deref for RelativePath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Only tests are here.

    use super::*;

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        for path in [
            "a",
            "_data/0123/part-00000.parquet",
            "day=2016-01-01/a..b",
            "...",
            "a b",
        ] {
            assert_eq!(&*RelativePath::new(path).unwrap(), path);
        }
        for path in [
            "", "/", "/etc", "a/", "a//b", "..", "../a", "a/../b", ".", "./a", "a/.", "a\0b",
        ] {
            assert_eq!(
                RelativePath::new(path).unwrap_err().code(),
                codes::CORRUPT,
                "{path:?}"
            );
            assert!(
                serde_json::from_value::<RelativePath>(path.into()).is_err(),
                "{path:?}"
            );
        }
    }

    #[test]
    fn components_are_counted_from_the_root() {
        let path = RelativePath::new("_data/0123/a=1/part-00000.parquet").unwrap();
        assert_eq!(
            path.parent_of(2).unwrap(),
            RelativePath::new("_data/0123").unwrap()
        );
        assert_eq!(path.parent_of(4), None);
        assert_eq!(path.parent_of(0), None);
    }
}
