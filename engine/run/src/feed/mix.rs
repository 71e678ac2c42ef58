//! Rows of several steps or sources, mixed.

use forebay_commit::Artifact;
use forebay_feed::{DatasetMixture, FeedConfig};
use forebay_model::{Fault, Interval, Pipeline, Result, codes};

use crate::feed::FeedSource;
use crate::session::Session;

impl Session {
    /// Each of the mixture's rows, which must have the same columns.
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
        let one = |mixed: &super::MixSource| {
            let (from, split) = (
                Some(mixed.from.clone()),
                mixed.split.clone().or_else(|| config.split.clone()),
            );
            let own = FeedConfig {
                from,
                split,
                mix: Vec::new(),
                epoch_rows: None,
                ..config.clone()
            };
            self.plan_local_feed(pipeline, artifact, &own, interval)
        };
        let mut all = config
            .mix
            .iter()
            .map(one)
            .collect::<Result<Vec<FeedSource>>>()?
            .into_iter();
        let mut fed = all
            .next()
            .ok_or_else(|| Fault::internal("a mixture of nothing"))?;
        for (other, mixed) in all.zip(&config.mix[1..]) {
            if other.features != fed.features {
                let message = format!(
                    "`{}` and `{}` have other columns",
                    config.mix[0].from, mixed.from
                );
                return bad(
                    message,
                    "name the columns under `dense`, `categorical` and `label`: all must have them",
                );
            }
            fed.blocks.extend(other.blocks);
            fed.from.extend(other.from);
            fed.caches.extend(other.caches);
        }
        let weights = config.mix.iter().map(|mixed| mixed.weight).collect();
        fed.mix = Some(DatasetMixture {
            weights,
            epoch_rows: config.epoch_rows,
        });
        fed.config = config.clone();
        Ok(fed)
    }
}
