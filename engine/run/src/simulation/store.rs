//! The store of a simulation, as one actor sees it: every request is a turn.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

use crate::simulation::request::{PutCondition, StoreRequest};
use crate::simulation::world::{ActorHandle, NetworkFailure, StoreAnswer, version};

pub struct SimulatedStore(pub ActorHandle);

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated store")
    }
}

impl fmt::Display for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

fn failed(what: &str) -> Error {
    Error::Generic {
        store: "simulated",
        source: what.into(),
    }
}

fn meta(path: &Path, bytes: &Bytes) -> ObjectMeta {
    ObjectMeta {
        location: path.clone(),
        last_modified: Default::default(),
        size: bytes.len() as u64,
        e_tag: Some(version(bytes)),
        version: None,
    }
}

impl SimulatedStore {
    fn ask(&self, path: &Path, bytes: Option<Bytes>, on: PutCondition) -> Result<()> {
        self.0.yield_turn();
        let mut state = self.0.world.state();
        let request = StoreRequest {
            by: self.0.id,
            path: path.clone(),
            bytes,
            on,
        };
        let trouble = state.trouble();
        match trouble {
            NetworkFailure::Lost => return Err(failed("the request was lost")),
            NetworkFailure::Late => {
                state.postpone(request);
                return Err(failed("no answer in time"));
            }
            NetworkFailure::None | NetworkFailure::Unanswered => {}
        }
        let answer = state.apply(&request);
        let path = path.to_string();
        match answer {
            _ if trouble == NetworkFailure::Unanswered => Err(failed("the answer was lost")),
            StoreAnswer::Done => Ok(()),
            StoreAnswer::Exists => Err(Error::AlreadyExists {
                path,
                source: "it is there".into(),
            }),
            StoreAnswer::Changed => Err(Error::Precondition {
                path,
                source: "it was replaced".into(),
            }),
        }
    }

    fn look(&self) -> Result<()> {
        self.0.yield_turn();
        if self.0.world.state().goes_wrong(0.03) {
            Err(failed("the answer was lost"))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl ObjectStore for SimulatedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let on = match options.mode {
            PutMode::Overwrite => PutCondition::Always,
            PutMode::Create => PutCondition::Absent,
            PutMode::Update(update) => PutCondition::Version(update.e_tag.unwrap_or_default()),
        };
        let bytes = Bytes::from(payload);
        let e_tag = Some(version(&bytes));
        self.ask(location, Some(bytes), on).map(|()| PutResult {
            e_tag,
            version: None,
        })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented {
            operation: "multipart".into(),
            implementer: "a simulation".into(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.look()?;
        let bytes = self.0.world.state().objects.get(location).cloned();
        let bytes = bytes.ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: "it is not there".into(),
        })?;
        let meta = meta(location, &bytes);
        options.check_preconditions(&meta)?;
        let range = 0..meta.size;
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        Ok(GetResult {
            payload,
            meta,
            range,
            attributes: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = SimulatedStore(self.0.clone());
        locations
            .map(move |path| {
                path.and_then(|path| store.ask(&path, None, PutCondition::Always).map(|()| path))
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.look() {
            return stream::iter([Err(error)]).boxed();
        }
        let state = self.0.world.state();
        let below = |path: &Path| prefix.is_none_or(|prefix| path.prefix_matches(prefix));
        let found: Vec<_> = state
            .objects
            .iter()
            .filter(|(path, _)| below(path))
            .map(|(path, bytes)| Ok(meta(path, bytes)))
            .collect();
        stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(Error::NotImplemented {
            operation: "listing of folders".into(),
            implementer: "a simulation".into(),
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented {
            operation: "copies".into(),
            implementer: "a simulation".into(),
        })
    }
}
