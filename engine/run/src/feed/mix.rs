//! Rows of several steps or sources, mixed.

use forebay_commit::Artifact;
use forebay_contract::FeedSource;
use forebay_feed::{DatasetMixture, FeedConfig};
use forebay_model::{Fault, Interval, Pipeline, Result, codes};

use crate::session::Session;

impl Session {
    /// Plans the feed of each member of the mixture. All members must have the same columns.
    pub(super) fn plan_mixture(
        &self,
        pipeline: &Pipeline,
        artifact: Option<&Artifact>,
        config: &FeedConfig,
        interval: Option<&Interval>,
    ) -> Result<FeedSource> {
        let bad =
            |message: String, hint: &str| Err(Fault::new(codes::BAD_VALUE, message).hint(hint));
        if let Some(from) = &config.from {
            let hint = "leave out `from`: each of the mixed rows has its own";
            return bad(format!("a feed is either from `{from}` or a mixture"), hint);
        }
        let mut sources = Vec::with_capacity(config.mix.len());
        for mixed in &config.mix {
            let source_config = FeedConfig {
                from: Some(mixed.from.clone()),
                split: mixed.split.clone().or_else(|| config.split.clone()),
                mix: Vec::new(),
                epoch_rows: None,
                ..config.clone()
            };
            sources.push(self.plan_local_feed(pipeline, artifact, &source_config, interval)?);
        }
        let mut sources = sources.into_iter();
        let mut feed = sources
            .next()
            .ok_or_else(|| Fault::internal("a mixture of nothing"))?;
        for (other, mixed) in sources.zip(&config.mix[1..]) {
            if other.features != feed.features {
                let message = format!(
                    "`{}` and `{}` have other columns",
                    config.mix[0].from, mixed.from
                );
                return bad(
                    message,
                    "name the columns under `dense`, `categorical` and `label`: all must have them",
                );
            }
            feed.blocks.extend(other.blocks);
            feed.from.extend(other.from);
            feed.caches.extend(other.caches);
        }
        let weights = config.mix.iter().map(|mixed| mixed.weight).collect();
        feed.mix = Some(DatasetMixture {
            weights,
            epoch_rows: config.epoch_rows,
        });
        feed.config = config.clone();
        Ok(feed)
    }
}
