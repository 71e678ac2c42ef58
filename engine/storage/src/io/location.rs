//! Locations: resolved paths and URLs of the user.

use std::path::{Component, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::{Path, PathPart};

use super::object_url::StoreKind;

/// Location in a store.
#[derive(Clone)]
pub struct StorageLocation {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The object or prefix inside it.
    pub path: Path,
    /// The file system's path, when it is local.
    pub local: Option<PathBuf>,
    /// The location as people write it; never holds credentials.
    pub shown: String,
}

impl StorageLocation {
    /// Location below this one. The name is not encoded: names are encoded when they are made, and
    /// a second encoding would change them.
    pub fn join(&self, relative: &str) -> StorageLocation {
        let mut path = self.path.clone();
        for part in relative.split('/').filter(|part| !part.is_empty()) {
            path = path.join(PathPart::parse(part).unwrap_or_else(|_| PathPart::from(part)));
        }
        StorageLocation {
            store: self.store.clone(),
            path,
            local: self.local.as_ref().map(|local| local.join(relative)),
            shown: format!("{}/{relative}", self.shown.trim_end_matches('/')),
        }
    }

    /// A place of another name in the same directory; `None` for a root.
    pub fn sibling(&self, name: &str) -> Option<StorageLocation> {
        let parts: Vec<PathPart<'_>> = self.path.parts().collect();
        let (_, above) = parts.split_last()?;
        let path = Path::from_iter(above.iter().cloned());
        let path = path.join(PathPart::parse(name).unwrap_or_else(|_| PathPart::from(name)));
        let local = self.local.as_ref().map(|local| local.with_file_name(name));
        let location_text = match (self.shown.trim_end_matches('/').rsplit_once('/'), &local) {
            // The text may end otherwise than the place: `.`, or a link.
            (_, Some(local)) if !self.is_shown_by_name() => local.display().to_string(),
            (Some((above, _)), _) => format!("{above}/{name}"),
            (None, _) => name.to_owned(),
        };
        Some(StorageLocation {
            store: self.store.clone(),
            path,
            local,
            shown: location_text,
        })
    }

    fn is_shown_by_name(&self) -> bool {
        let name = self.local.as_ref().and_then(|local| local.file_name());
        name.is_some_and(|name| {
            self.shown
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .is_some_and(|last| *last == *name)
        })
    }

    /// The URL of the bucket, container or host; `None` for a local place.
    pub fn root(&self) -> Option<&str> {
        let key = self.shown.find("://").filter(|_| self.local.is_none())? + "://".len();
        Some(
            self.shown[key..]
                .find('/')
                .map_or(self.shown.as_str(), |end| &self.shown[..key + end]),
        )
    }

    /// The kind of store; `None` for a local place.
    pub(super) fn kind(&self) -> Option<StoreKind> {
        StoreKind::of_scheme(self.root()?.split("://").next()?)
    }

    /// True for a file of a web server, which can be read but neither listed nor written.
    pub fn is_web(&self) -> bool {
        self.kind() == Some(StoreKind::Http)
    }

    /// Another object of the same store, as listed.
    pub fn at(&self, location: &Path) -> StorageLocation {
        let local = self
            .local
            .as_ref()
            .map(|_| PathBuf::from(format!("/{location}")));
        let location_text = match (&local, self.root()) {
            (Some(local), _) => local.display().to_string(),
            (None, Some(root)) => format!("{root}/{location}"),
            (None, None) => location.to_string(),
        };
        StorageLocation {
            store: self.store.clone(),
            path: location.clone(),
            local,
            shown: location_text,
        }
    }
}

/// The path without `..`, which object stores do not know; links before it are followed.
pub fn without_parents(path: &std::path::Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain = plain.canonicalize().unwrap_or(plain);
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}
