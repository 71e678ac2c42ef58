//! The way to storage: local paths and URLs, blocking calls over one async runtime.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::Runtime;

/// Bytes of one part of an upload: S3 wants at least 5 MiB and at most 10,000 parts.
const UPLOAD_PART_BYTES: usize = 16 << 20;

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long this thread has waited for remote storage so far.
pub(crate) fn waited() -> Duration {
    WAITED.get()
}

/// Storage and the runtime that serves it. Cheap to clone.
#[derive(Clone)]
pub struct Io {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Runtime,
    stores: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
}

/// Something in a store: what a path or URL of the user comes to.
#[derive(Clone)]
pub struct Place {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The object or prefix inside it.
    pub path: Path,
    /// The file system's path, when it is local.
    pub local: Option<PathBuf>,
    /// How people write it; never holds credentials.
    pub shown: String,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Io")
    }
}

impl Io {
    /// An own runtime with a few threads: storage waits, it does not compute.
    pub fn new() -> Result<Io> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-io")
            .enable_all()
            .build()
            .map_err(|error| Fault::new(codes::STORAGE, "the I/O threads cannot be started").cause(error))?;
        Ok(Io { inner: Arc::new(Inner { runtime, stores: Mutex::new(BTreeMap::new()) }) })
    }

    /// Waits for a future. Must not be called from inside the runtime.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let begin = Instant::now();
        let done = self.inner.runtime.block_on(future);
        WAITED.set(waited() + begin.elapsed());
        done
    }

    /// The runtime, for those who serve or spawn.
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.inner.runtime.handle().clone()
    }

    /// Resolves a local path or an `s3://bucket/key` URL. Endpoint, region, path style and
    /// credentials of S3 come from the environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, ...).
    pub fn place(&self, text: &str) -> Result<Place> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            let path = Path::parse(key.trim_end_matches('/'))
                .map_err(|error| Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid URL")).cause(error))?;
            let store = self.store(&format!("s3://{bucket}"), || {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                if std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://")) {
                    builder = builder.with_allow_http(true);
                }
                let store = builder.build().map_err(|error| {
                    Fault::new(codes::ACCESS, format!("S3 is not configured for `{bucket}`"))
                        .cause(error)
                        .hint("set AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
                })?;
                Ok(Arc::new(store))
            })?;
            return Ok(Place { store, path, local: None, shown: text.to_owned() });
        }
        if let Some((scheme, _)) = text.split_once("://")
            && scheme != "file"
        {
            return Err(Fault::new(codes::UNSUPPORTED, format!("`{scheme}://` is not a storage that Forebay knows"))
                .hint("use a local path or s3://"));
        }
        let plain = text.strip_prefix("file://").unwrap_or(text);
        let local = std::path::absolute(plain)
            .map_err(|error| Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid path")).cause(error))?;
        let local = without_parents(&local);
        let store = self.store("file://", || Ok(Arc::new(LocalFileSystem::new())))?;
        let path = Path::from_absolute_path(&local)
            .map_err(|error| Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid path")).cause(error))?;
        Ok(Place { store, path, local: Some(local), shown: text.to_owned() })
    }

    /// Serves URLs that begin with `prefix` (such as `s3://lake`) from this store, instead of
    /// one made from the environment.
    pub fn with_store(self, prefix: &str, store: Arc<dyn ObjectStore>) -> Result<Io> {
        self.store(prefix, || Ok(store))?;
        Ok(self)
    }

    fn store(&self, key: &str, build: impl FnOnce() -> Result<Arc<dyn ObjectStore>>) -> Result<Arc<dyn ObjectStore>> {
        let mut stores =
            self.inner.stores.lock().map_err(|_| Fault::internal("another thread failed while it held the stores"))?;
        if let Some(store) = stores.get(key) {
            return Ok(store.clone());
        }
        let store = build()?;
        stores.insert(key.to_owned(), store.clone());
        Ok(store)
    }

    /// All objects below a prefix, in the order of their paths.
    pub fn list(&self, place: &Place) -> Result<Vec<ObjectMeta>> {
        let listed = self.wait(place.store.list(Some(&place.path)).try_collect::<Vec<_>>());
        let mut objects = listed.map_err(|error| storage_fault(&place.shown, error))?;
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// What the store knows of one object; `None` when it is not there.
    pub fn head(&self, place: &Place) -> Result<Option<ObjectMeta>> {
        match self.wait(place.store.head(&place.path)) {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(storage_fault(&place.shown, error)),
        }
    }

    /// A whole object; `None` when it is not there.
    pub fn get(&self, place: &Place) -> Result<Option<Bytes>> {
        let got = self.wait(async { place.store.get(&place.path).await?.bytes().await });
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(storage_fault(&place.shown, error)),
        }
    }

    /// Some ranges of an object.
    pub fn get_ranges(&self, place: &Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.wait(place.store.get_ranges(&place.path, ranges)).map_err(|error| storage_fault(&place.shown, error))
    }

    /// Writes an object whole, replacing what was there.
    pub fn put(&self, place: &Place, bytes: Bytes) -> Result<()> {
        self.wait(place.store.put(&place.path, bytes.into())).map_err(|error| storage_fault(&place.shown, error))?;
        Ok(())
    }

    /// Writes an object only if nothing is there. `Ok(false)`: something else is there. A write
    /// whose outcome is in doubt is read back: identical bytes are our own success.
    pub fn put_if_absent(&self, place: &Place, bytes: Bytes) -> Result<bool> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let mut attempts = 0;
        loop {
            let put = self.wait(place.store.put_opts(&place.path, bytes.clone().into(), options.clone()));
            let doubt = match put {
                Ok(_) => return Ok(true),
                Err(error) => error,
            };
            attempts += 1;
            match self.get(place)? {
                Some(there) if there == bytes => return Ok(true),
                Some(_) => return Ok(false),
                None if attempts < 3 => {}
                None => return Err(storage_fault(&place.shown, doubt)),
            }
        }
    }

    /// Uploads a local file, in parts where it is large.
    pub fn put_from(&self, place: &Place, file: &std::path::Path) -> Result<()> {
        let failed = |error| Fault::disk("a temporary file cannot be read", error);
        let mut file = std::fs::File::open(file).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes <= UPLOAD_PART_BYTES as u64 {
            let mut all = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut all).map_err(failed)?;
            return self.put(place, all.into());
        }
        let fault = |error| storage_fault(&place.shown, error);
        let mut upload = self.wait(place.store.put_multipart(&place.path)).map_err(fault)?;
        loop {
            let mut part = Vec::with_capacity(UPLOAD_PART_BYTES);
            let read = (&mut file).take(UPLOAD_PART_BYTES as u64).read_to_end(&mut part).map_err(failed)?;
            if read == 0 {
                break;
            }
            if let Err(error) = self.wait(upload.put_part(part.into())) {
                // What is left of the upload is invisible; that it cannot be aborted changes nothing.
                let _ = self.wait(upload.abort());
                return Err(fault(error));
            }
        }
        self.wait(upload.complete()).map_err(fault)?;
        Ok(())
    }

    /// Deletes an object; that it is gone already is fine.
    pub fn delete(&self, place: &Place) -> Result<()> {
        match self.wait(place.store.delete(&place.path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(storage_fault(&place.shown, error)),
        }
    }
}

impl Place {
    /// Something below this place.
    pub fn join(&self, relative: &str) -> Place {
        let mut path = self.path.clone();
        for part in relative.split('/').filter(|part| !part.is_empty()) {
            path = path.join(part);
        }
        Place {
            store: self.store.clone(),
            path,
            local: self.local.as_ref().map(|local| local.join(relative)),
            shown: format!("{}/{relative}", self.shown.trim_end_matches('/')),
        }
    }

    /// Another object of the same store, as listed.
    pub fn at(&self, location: &Path) -> Place {
        let local = self.local.as_ref().map(|_| PathBuf::from(format!("/{location}")));
        let shown = match (&local, self.shown.strip_prefix("s3://")) {
            (Some(local), _) => local.display().to_string(),
            (None, Some(rest)) => format!("s3://{}/{location}", rest.split('/').next().unwrap_or_default()),
            (None, None) => location.to_string(),
        };
        Place { store: self.store.clone(), path: location.clone(), local, shown }
    }
}

/// The path without `..`, which object stores do not know; links before it are followed.
fn without_parents(path: &std::path::Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            plain = plain.canonicalize().unwrap_or(plain);
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The error of the operating system that led to this one.
fn disk_error(error: &object_store::Error) -> Option<std::io::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(disk) = inner.downcast_ref::<std::io::Error>() {
            return Some(std::io::Error::new(disk.kind(), disk.to_string()));
        }
        cause = inner.source();
    }
    None
}

/// A fault for what storage answered.
pub fn storage_fault(shown: &str, error: object_store::Error) -> Fault {
    use object_store::Error as E;
    let (code, message) = match &error {
        E::NotFound { .. } => (codes::NOT_FOUND, "the file is not there"),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => (codes::ACCESS, "storage refused access"),
        E::AlreadyExists { .. } => (codes::STORAGE, "the file is there already"),
        _ => match disk_error(&error).map(|disk| Fault::disk("the file cannot be read or written", disk)) {
            Some(fault) if fault.code() != codes::STORAGE => return fault.file(shown),
            _ => (codes::STORAGE, "storage did not do what it was asked"),
        },
    };
    Fault::new(code, message).file(shown).cause(error)
}
