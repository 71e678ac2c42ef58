//! An intermediate dataset whose pieces are named by the gather that made them.
//!
//! The files of a gather are written again by each run that finds them gone, at another time. Their fingerprints as files
//! would then differ, and with them all ids behind the gather. The id of the gather determines the rows, so it names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_contract::{ChunkIterator, RowRuns, ScanRequest, Source};
use forebay_model::{ContentId, Dataset, FileRange, IdBuilder, Result, Span};
use forebay_storage::StorageClient;

/// Sets fingerprints of the pieces of a gathered dataset that follow from the gather's id, and
/// returns a source that reads them.
pub(crate) fn name_by_gather(
    gather: ContentId,
    mut dataset: Dataset,
    inner: Arc<dyn Source>,
) -> (Dataset, Arc<dyn Source>) {
    let mut files = BTreeMap::new();
    for piece in dataset.spans.iter_mut().flat_map(|span| &mut span.pieces) {
        let id = file_id(gather, piece);
        files.insert(id, std::mem::replace(&mut piece.fingerprint, id));
    }
    (dataset, Arc::new(GatheredSource { inner, files }))
}

/// The id of a file of a gather.
fn file_id(gather: ContentId, piece: &FileRange) -> ContentId {
    let mut id = IdBuilder::new("gathered");
    id.id(gather).text(&piece.relative);
    id.finish()
}

/// A source that identifies pieces by ids of a gather.
#[derive(Debug)]
struct GatheredSource {
    inner: Arc<dyn Source>,
    /// The fingerprints of files by those ids.
    files: BTreeMap<ContentId, ContentId>,
}

impl GatheredSource {
    /// The span as the inner source knows it.
    fn inner_span(&self, span: &Span) -> Span {
        let mut span = span.clone();
        for piece in &mut span.pieces {
            if let Some(file) = self.files.get(&piece.fingerprint) {
                piece.fingerprint = *file;
            }
        }
        span
    }

    /// The span with the ids of the gather again.
    fn named_span(&self, mut span: Span) -> Span {
        for piece in &mut span.pieces {
            let id = self
                .files
                .iter()
                .find(|(_, file)| **file == piece.fingerprint);
            if let Some((id, _)) = id {
                piece.fingerprint = *id;
            }
        }
        span
    }
}

impl Source for GatheredSource {
    fn discover(&self, io: &StorageClient, watched: &[String]) -> Result<Dataset> {
        self.inner.discover(io, watched)
    }

    fn paths(&self) -> Vec<String> {
        self.inner.paths()
    }

    fn open(
        &self,
        io: &StorageClient,
        span: &Span,
        request: &ScanRequest,
    ) -> Result<ChunkIterator> {
        self.inner.open(io, &self.inner_span(span), request)
    }

    fn split_spans(
        &self,
        io: &StorageClient,
        spans: &[Span],
        runs: Option<RowRuns>,
    ) -> Result<Vec<Span>> {
        let spans: Vec<Span> = spans.iter().map(|span| self.inner_span(span)).collect();
        let divided = self.inner.split_spans(io, &spans, runs)?;
        Ok(divided
            .into_iter()
            .map(|span| self.named_span(span))
            .collect())
    }
}
