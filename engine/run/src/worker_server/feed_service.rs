//! Blocks of feeds, read for training hosts.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_cluster::{FeedSpec, MessageSink, TaskOutcome, encode_rows, split_batch};
use forebay_commit::Artifact;
use forebay_model::{ContentId, Fault, Result, SeriesCounts, codes};
use forebay_storage::Event;
use forebay_storage::failpoint::step;

use crate::feed::FeedSource;
use crate::session::Session;

/// Feeds that stay open: those of a training and its validation, of two jobs.
const FEEDS_MAX: usize = 4;

/// A feed that the first request opens.
type LazyFeed = Arc<Mutex<Option<Arc<FeedSource>>>>;

/// The feeds of which blocks were asked for last.
#[derive(Default)]
pub(super) struct FeedService(Mutex<Vec<(ContentId, LazyFeed)>>);

impl FeedService {
    /// Sends the rows of a block. Hands it back where `leaves` says so.
    pub fn send_block(
        &self,
        session: &Session,
        job: &FeedSpec,
        dataset: usize,
        block: u32,
        out: &MessageSink,
        leaves: &dyn Fn() -> bool,
    ) -> Result<TaskOutcome> {
        let fed = self.open_feed(session, job)?;
        step("take", "a task");
        let blocks = fed
            .blocks
            .get(dataset)
            .filter(|blocks| (block as usize) < blocks.dataset().blocks());
        let blocks = blocks.ok_or_else(|| Fault::internal("a block that there is not"))?;
        let features = match job.config.missing_numbers {
            true => Cow::Owned(fed.features.with_missing_numbers()),
            false => Cow::Borrowed(&fed.features),
        };
        let (mut first_row, mut sent) = (0, Ok(TaskOutcome::Done(SeriesCounts::default())));
        blocks.read(block, &features.columns(), &mut |batch| {
            sent = features.precast(&batch, first_row).and_then(|ahead| {
                for piece in split_batch(&ahead) {
                    step("send", "rows");
                    if !out.send_rows(encode_rows(&piece)?) {
                        return Ok(TaskOutcome::Stopped);
                    }
                }
                let rows = batch.num_rows() as u64;
                first_row += rows;
                session.watch.on_event(Event::Progress { rows, bytes: 0 });
                Ok(if leaves() {
                    TaskOutcome::HandedBack
                } else {
                    TaskOutcome::Done(SeriesCounts::default())
                })
            });
            if matches!(sent, Ok(TaskOutcome::Done(_))) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        session.watch.on_event(Event::Progress {
            rows: 0,
            bytes: blocks.dataset().block(block).bytes,
        });
        sent.map_err(|fault| blocks.locate_fault(block, fault))
    }

    /// The feed of a job, planned as the training host plans it.
    fn open_feed(&self, session: &Session, job: &FeedSpec) -> Result<Arc<FeedSource>> {
        let text =
            serde_json::to_vec(job).map_err(|error| Fault::internal("a feed").cause(error))?;
        let id = ContentId::of(&text);
        let opened = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = match known.iter().position(|(known, _)| *known == id) {
                Some(at) => known.remove(at).1,
                None => LazyFeed::default(),
            };
            known.insert(0, (id, opened.clone()));
            known.truncate(FEEDS_MAX);
            opened
        };
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fed) = opened.as_ref() {
            return Ok(fed.clone());
        }
        let load = |id| Artifact::load(&session.io, &Artifact::directory(&session.state()?, id));
        let artifact = job.artifact.map(load).transpose()?;
        let session = session.carrying(job.continues, &job.held, &job.numbering)?;
        let fed = session.plan_local_feed(
            &job.pipeline,
            artifact.as_ref(),
            &job.config,
            job.interval.as_ref(),
        )?;
        let fingerprints = fed
            .blocks
            .iter()
            .map(|blocks| blocks.dataset().fingerprint());
        if fingerprints.collect::<Vec<ContentId>>() != job.datasets {
            let fault = Fault::new(
                codes::SEES_OTHER_DATA,
                "the worker sees other rows than the training host",
            );
            return Err(fault
                .hint("give all of them the same files, at the same paths, and the same version"));
        }
        let fed = Arc::new(fed);
        *opened = Some(fed.clone());
        Ok(fed)
    }
}
