//! Blocks of feeds, read for training hosts.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_cluster::{FeedSpec, MessageSink, TaskOutcome, encode_rows, split_batch};
use forebay_commit::Artifact;
use forebay_contract::FeedSource;
use forebay_model::{ContentId, Fault, Result, SeriesCounts, codes};
use forebay_storage::Event;
use forebay_storage::failpoint::step;

use crate::session::Session;

/// Number of feeds that stay open: those of a training and its validation, of two jobs.
const FEEDS_MAX: usize = 4;

/// A feed that the first request opens.
type LazyFeed = Arc<Mutex<Option<Arc<FeedSource>>>>;

/// The feeds whose blocks were requested last.
#[derive(Default)]
pub(super) struct FeedService(Mutex<Vec<(ContentId, LazyFeed)>>);

impl FeedService {
    /// Sends the rows of a block. Hands the block back if `leaves` is set.
    pub fn send_block(
        &self,
        session: &Session,
        feed_spec: &FeedSpec,
        dataset: usize,
        block: u32,
        out: &MessageSink,
        leaves: &dyn Fn() -> bool,
    ) -> Result<TaskOutcome> {
        let feed = self.open_feed(session, feed_spec)?;
        step("take", "a task");
        let blocks = feed
            .blocks
            .get(dataset)
            .filter(|blocks| (block as usize) < blocks.dataset().blocks());
        let blocks = blocks.ok_or_else(|| Fault::internal("a block that there is not"))?;
        let features = if feed_spec.config.missing_numbers {
            Cow::Owned(feed.features.with_missing_numbers())
        } else {
            Cow::Borrowed(&feed.features)
        };
        let mut first_row = 0;
        let mut sent = Ok(TaskOutcome::Done(SeriesCounts::default()));
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
    fn open_feed(&self, session: &Session, feed_spec: &FeedSpec) -> Result<Arc<FeedSource>> {
        let text = serde_json::to_vec(feed_spec)
            .map_err(|error| Fault::internal("a feed").cause(error))?;
        let id = ContentId::of(&text);
        let opened = {
            let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = match feeds.iter().position(|(feed, _)| *feed == id) {
                Some(at) => feeds.remove(at).1,
                None => LazyFeed::default(),
            };
            feeds.insert(0, (id, opened.clone()));
            feeds.truncate(FEEDS_MAX);
            opened
        };
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = opened.as_ref() {
            return Ok(feed.clone());
        }
        let load = |id| Artifact::load(&session.io, &Artifact::directory(&session.state()?, id));
        let artifact = feed_spec.artifact.map(load).transpose()?;
        let session =
            session.carrying(feed_spec.continues, &feed_spec.held, &feed_spec.numbering)?;
        let feed = session.plan_local_feed(
            &feed_spec.pipeline,
            artifact.as_ref(),
            &feed_spec.config,
            feed_spec.interval.as_ref(),
        )?;
        let fingerprints = feed
            .blocks
            .iter()
            .map(|blocks| blocks.dataset().fingerprint());
        if fingerprints.collect::<Vec<ContentId>>() != feed_spec.datasets {
            let fault = Fault::new(
                codes::SEES_OTHER_DATA,
                "the worker sees other rows than the training host",
            );
            return Err(fault
                .hint("give all of them the same files, at the same paths, and the same version"));
        }
        let feed = Arc::new(feed);
        *opened = Some(feed.clone());
        Ok(feed)
    }
}
