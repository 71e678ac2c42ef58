//! Stable ids of tokens: the tokens that have ids already, and the ids that outputs show.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cluster::{NumberingSpec, VocabularyBase};
use forebay_commit::{
    EarlierFit, FitHistory, Manifest, NumberedTokens, PublishedNumbering, TokenLedger,
    TokenNumbering,
};
use forebay_model::{ContentId, Fault, Finding, Pipeline, Result, codes};
use forebay_plan::{AnalyzerId, BoundPipeline};
use forebay_storage::Event;

use crate::analyzers_of_rows::asks_before_sink;
use crate::previous_artifact::PreviousArtifact;
use crate::run_numbering::{RunNumbering, vocabularies};
use crate::session::Session;

impl Session {
    /// Makes the session give all tokens of a pipeline new ids. Outputs may show other ones.
    pub fn renumbering(self, pipeline: &Pipeline) -> Result<Self> {
        let mut has_stable_ids = false;
        for step in pipeline.nodes.iter().flat_map(|node| &node.steps) {
            has_stable_ids |= self.registry.facts(step)?.has_stable_ids;
        }
        if !has_stable_ids {
            let message = "no step has `stable: true`, so that there are no ids to give anew";
            return Err(Fault::new(codes::BAD_VALUE, message).hint("leave `--renumber` out"));
        }
        TokenNumbering::begin_anew(&self.io, &self.state()?, &pipeline.name)?;
        Ok(Session {
            renumbers: true,
            ..self
        })
    }

    /// The numbering that a run continues, after the fit before it.
    pub(crate) fn numbering_after(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        last_fit: Option<&EarlierFit>,
    ) -> Result<RunNumbering> {
        let io = self.io.clone();
        let root = self.state()?;
        let numbering = TokenNumbering::newest(&io, &root, &pipeline.name)?;
        let epoch = numbering.epoch();
        let earlier = last_fit
            .and_then(|fit| fit.numbering.as_ref())
            .filter(|fit| fit.epoch == epoch);
        let mut bases = BTreeMap::new();
        for (key, ask) in vocabularies(bound) {
            let ledger = numbering.ledger(&key);
            let mut tokens = ledger.read()?;
            if tokens.is_empty() && epoch == 0 {
                tokens = self.adopt_earlier(pipeline, bound, ask, &ledger, tokens)?;
            }
            let length = earlier.and_then(|fit| fit.tokens.get(&key)).copied();
            let length = length.unwrap_or(0).min(tokens.len() as u64);
            let base = VocabularyBase {
                tokens: length,
                digest: digest(&tokens, length)?,
            };
            bases.insert(key, base);
        }
        Ok(RunNumbering::new(io, root, NumberingSpec { epoch, bases }))
    }

    /// Takes over the vocabulary of an artifact that a version without numberings has left.
    fn adopt_earlier(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        ask: AnalyzerId,
        ledger: &TokenLedger,
        none: NumberedTokens,
    ) -> Result<NumberedTokens> {
        let root = self.state()?;
        let history = FitHistory {
            io: &self.io,
            root: &root,
            pipeline: &pipeline.name,
        };
        let mut longest: Option<Arc<Finding>> = None;
        for id in history.newest()? {
            if !history.holds(id)? {
                continue;
            }
            let earlier: PreviousArtifact = self.earlier_artifact(id)?;
            let matches = earlier.matches(pipeline, bound)?;
            let Some(learned) = matches.get(ask).copied().flatten() else {
                continue;
            };
            let rows = longest.as_ref().map_or(0, |finding| finding.rows());
            if learned.finding.rows() > rows {
                longest = Some(learned.finding.clone());
            }
        }
        let Some(finding) = longest else {
            return Ok(none);
        };
        ledger.append(&none, finding.column("token")?.clone())?;
        ledger.read()
    }

    /// Refuses to publish where an output shows ids that this run's numbering gives to other tokens.
    pub(crate) fn check_published_ids(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
    ) -> Result<()> {
        let numbering = self
            .attempt
            .carried
            .as_ref()
            .and_then(|carried| carried.numbering.as_ref());
        let Some(run) = numbering else {
            return Ok(());
        };
        for (number, sink) in pipeline.sinks.iter().enumerate() {
            let out = self.output(pipeline, number)?;
            let Some(visible) = Manifest::read(&self.io, &out)? else {
                continue;
            };
            if visible.numbering.is_empty() {
                continue;
            }
            let used = asks_before_sink(bound, pipeline, number);
            let vocabularies = vocabularies(bound)
                .into_iter()
                .filter(|(_, ask)| used.contains(ask));
            for (key, ask) in vocabularies {
                let scheme = scheme(bound, ask);
                let stays = match visible.numbering.get(&key) {
                    Some(published) => {
                        let tokens = run.ledger(&pipeline.name, &key).read()?;
                        continues_published(published, &tokens, &scheme)?
                    }
                    None => !visible
                        .numbering
                        .keys()
                        .any(|other| is_same_column(other, &key)),
                };
                if stays {
                    continue;
                }
                let column = column_of(&key);
                if self.renumbers {
                    let intervals = visible.intervals.len();
                    if intervals > 0 {
                        let message = format!(
                            "{}: the {intervals} published intervals keep the earlier ids \
                             of `{column}` until they are run again",
                            out.shown
                        );
                        self.watch.on_event(Event::Warning { message });
                    }
                    continue;
                }
                let message = format!(
                    "`{}` shows ids of `{column}` that this run would give to other tokens: \
                     the state directory does not know them, or the step has another name, \
                     other reserved tokens or other `oov_buckets`",
                    sink.name
                );
                let hint = "use the state directory and the step with which the output was \
                            written; \
                            with `--renumber`, all tokens get new ids, \
                            and published intervals have to be run again";
                return Err(Fault::new(codes::OUTPUT_CLASH, message)
                    .file(&out.shown)
                    .column(column)
                    .hint(hint)
                    .at(sink.at.as_ref()));
            }
        }
        Ok(())
    }

    /// The numberings whose ids a sink shows.
    pub(crate) fn published_numbering(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        sink: usize,
    ) -> Result<BTreeMap<String, PublishedNumbering>> {
        let mut published_by_key = BTreeMap::new();
        let numbering = self
            .attempt
            .carried
            .as_ref()
            .and_then(|carried| carried.numbering.as_ref());
        let Some(run) = numbering else {
            return Ok(published_by_key);
        };
        let used = asks_before_sink(bound, pipeline, sink);
        for (key, ask) in vocabularies(bound) {
            if !used.contains(&ask) {
                continue;
            }
            let tokens = run.ledger(&pipeline.name, &key).read()?;
            let length = tokens.len() as u64;
            let published = PublishedNumbering {
                epoch: run.spec().epoch,
                tokens: length,
                digest: digest(&tokens, length)?.to_string(),
                scheme: scheme(bound, ask),
            };
            published_by_key.insert(key, published);
        }
        Ok(published_by_key)
    }
}

/// The column of a key.
fn column_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |(_, column)| column)
}

fn is_same_column(key: &str, other: &str) -> bool {
    column_of(key) == column_of(other)
}

/// Settings that determine ids besides the order of tokens.
fn scheme(bound: &BoundPipeline, ask: AnalyzerId) -> String {
    bound.asks[ask].ask.numbering_scheme.clone()
}

/// True if tokens keep the ids that an output shows.
fn continues_published(
    published: &PublishedNumbering,
    tokens: &NumberedTokens,
    scheme: &str,
) -> Result<bool> {
    let digest = tokens.digest(published.tokens as usize)?;
    let is_known = digest.is_some_and(|digest| digest.to_string() == published.digest);
    Ok(is_known && published.scheme == scheme)
}

/// The id of the first tokens.
fn digest(tokens: &NumberedTokens, length: u64) -> Result<ContentId> {
    let digest = tokens.digest(length as usize)?;
    digest.ok_or_else(|| Fault::internal("a numbering with fewer tokens than it had"))
}
