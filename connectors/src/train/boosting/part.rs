//! Groups on workers: the rows that a worker gets, and the models that come back.

use std::collections::HashMap;

use forebay_model::{Fault, Result, codes};
use forebay_run::PartContext;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::boost::BoostingState;
use super::config::BoostingConfig;
use super::encode::{FeatureCounts, decode_ensembles, encode_ensembles};
use super::fit::{FitThreads, FitWatch, FittedGroup, FittedModel, ModelFitter};
use super::model::GroupModelCard;
use super::partitions::{GroupRows, RowShape};
use super::rows::GroupName;
use super::steps::StepFeatures;
use super::table::FeatureTable;
use super::trainer;
use crate::train::tensors::{TensorFile, WORDS_KEY};

/// What is said of the rows of some groups.
#[derive(Serialize, Deserialize)]
struct PartWords {
    /// That of the trainer.
    version: u32,
    /// What models are of.
    columns: Value,
    /// For models of the horizon's steps: whether each takes each feature, and how many steps it predicts.
    steps: Vec<(Vec<bool>, u64)>,
    numbers: usize,
    ids: usize,
    weighted: bool,
    groups: Vec<PartGroup>,
}

/// A group and how many rows it has.
#[derive(Serialize, Deserialize)]
struct PartGroup {
    name: GroupName,
    learn: usize,
    validate: usize,
}

/// The models of a group, or why it has none.
pub type GroupFit = Result<Vec<FittedModel>, String>;

/// A group for a worker.
pub type NamedRows<'a> = (&'a GroupName, &'a GroupRows);

/// The rows of some groups as bytes.
pub fn encode_part(
    columns: &Value,
    steps: &[StepFeatures],
    shape: RowShape,
    groups: Vec<NamedRows<'_>>,
) -> Result<Vec<u8>> {
    let words = PartWords {
        version: trainer::VERSION,
        columns: columns.clone(),
        steps: steps
            .iter()
            .map(|own| (own.allowed.to_vec(), own.steps))
            .collect(),
        numbers: shape.numbers,
        ids: shape.ids,
        weighted: shape.weighted,
        groups: groups
            .iter()
            .map(|(name, rows)| PartGroup {
                name: (*name).clone(),
                learn: rows.learn.rows(),
                validate: rows.validate.rows(),
            })
            .collect(),
    };
    let words = serde_json::to_string(&words)
        .map_err(|error| Fault::internal("rows of groups").cause(error))?;
    let tables = || {
        groups
            .iter()
            .flat_map(|(_, rows)| [&rows.learn, &rows.validate])
    };
    let reals = |values: fn(&FeatureTable) -> &[f32]| -> Vec<u8> {
        tables()
            .flat_map(values)
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let ids: Vec<u8> = tables()
        .flat_map(|table| &table.categories)
        .flat_map(|id| id.to_le_bytes())
        .collect();
    let parts = [
        ("dense", Dtype::F32, reals(|table| &table.dense)),
        ("categories", Dtype::I32, ids),
        ("labels", Dtype::F32, reals(|table| &table.labels)),
        ("weights", Dtype::F32, reals(|table| &table.weights)),
    ];
    let fault = |error| Fault::internal("rows of groups cannot be written").cause(error);
    let mut views = Vec::new();
    for (name, data_type, bytes) in &parts {
        views.push((
            *name,
            TensorView::new(*data_type, vec![bytes.len() / 4], bytes).map_err(fault)?,
        ));
    }
    safetensors::serialize(views, Some(HashMap::from([(WORDS_KEY.to_owned(), words)])))
        .map_err(fault)
}

/// The rows of such bytes. Nothing in them is believed: there are as many numbers as they say.
fn decode_part(bytes: &[u8]) -> Result<(PartWords, Vec<GroupRows>)> {
    let words: PartWords = serde_json::from_str(&TensorFile::read(bytes)?.words)
        .map_err(|error| broken_part().cause(error))?;
    if words.version != trainer::VERSION {
        return Err(broken_part());
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| broken_part().cause(error))?;
    let numbers = |name: &str| -> Result<Vec<[u8; 4]>> {
        let tensor = file
            .tensor(name)
            .map_err(|error| broken_part().cause(error))?;
        Ok(tensor.data().as_chunks::<4>().0.to_vec())
    };
    let reals = |name: &str| -> Result<std::vec::IntoIter<f32>> {
        Ok(numbers(name)?
            .into_iter()
            .map(f32::from_le_bytes)
            .collect::<Vec<_>>()
            .into_iter())
    };
    let (mut dense, mut labels, mut weights) =
        (reals("dense")?, reals("labels")?, reals("weights")?);
    let mut categories = numbers("categories")?.into_iter().map(i32::from_le_bytes);
    let mut table = |rows: usize| {
        let table = FeatureTable {
            numbers: words.numbers,
            ids: words.ids,
            dense: dense
                .by_ref()
                .take(rows.saturating_mul(words.numbers))
                .collect(),
            categories: categories
                .by_ref()
                .take(rows.saturating_mul(words.ids))
                .collect(),
            labels: labels.by_ref().take(rows).collect(),
            weights: weights
                .by_ref()
                .take(if words.weighted { rows } else { 0 })
                .collect(),
        };
        let is_whole = table.labels.len() == rows
            && table.dense.len() == rows.saturating_mul(words.numbers)
            && table.categories.len() == rows.saturating_mul(words.ids)
            && table.weights.len() == if words.weighted { rows } else { 0 };
        is_whole.then_some(table).ok_or_else(broken_part)
    };
    let rows = words.groups.iter().map(|group| {
        Ok(GroupRows {
            learn: table(group.learn)?,
            validate: table(group.validate)?,
        })
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    Ok((words, rows))
}

/// On a worker: trains the groups of such bytes.
pub fn train_part(
    config: &BoostingConfig,
    bytes: &[u8],
    context: &PartContext<'_>,
) -> Result<Vec<u8>> {
    let (words, groups) = decode_part(bytes)?;
    let steps: Vec<StepFeatures> = words
        .steps
        .into_iter()
        .map(|(allowed, steps)| StepFeatures {
            allowed: allowed.into(),
            steps,
        })
        .collect();
    let fitter = ModelFitter::new(config, words.columns, &steps, context.memory_bytes)?;
    let shape = RowShape {
        numbers: words.numbers,
        ids: words.ids,
        weighted: words.weighted,
    };
    let mut fits: Vec<GroupFit> = Vec::with_capacity(groups.len());
    for (group, rows) in words.groups.iter().zip(&groups) {
        context.check()?;
        trainer::check_group_memory(shape, rows, context.memory_bytes / 2, &group.name)?;
        let threads = FitThreads { each: 1, groups: 1 };
        let fitted = fitter.fit_group(&group.name, rows, threads, &mut PartWatch { context })?;
        fits.push(fitted.map(|FittedGroup { models, .. }| models));
    }
    encode_fits(&fits)
}

/// Ends the training of a group when nothing waits for it.
struct PartWatch<'a> {
    context: &'a PartContext<'a>,
}

impl FitWatch for PartWatch<'_> {
    fn after_round(&mut self, _: &str, _: &BoostingState) -> Result<()> {
        self.context.check()
    }
}

fn encode_fits(fits: &[GroupFit]) -> Result<Vec<u8>> {
    let cards: Vec<Result<Vec<&GroupModelCard>, &String>> = fits
        .iter()
        .map(|fit| {
            fit.as_ref()
                .map(|models| models.iter().map(|model| &model.card).collect())
        })
        .collect();
    let words = serde_json::to_string(&cards)
        .map_err(|error| Fault::internal("models of groups").cause(error))?;
    let models = fits.iter().filter_map(|fit| fit.as_ref().ok()).flatten();
    encode_ensembles(models.map(|model| &model.ensemble), words)
}

/// What a worker made of some groups, in their order.
pub fn decode_fits(bytes: &[u8], features: FeatureCounts) -> Result<Vec<GroupFit>> {
    let words = TensorFile::read(bytes)?.words;
    let cards: Vec<Result<Vec<GroupModelCard>, String>> =
        serde_json::from_str(&words).map_err(|error| broken_part().cause(error))?;
    let mut ensembles = decode_ensembles(bytes, features)?.into_iter();
    let model = |card: GroupModelCard, ensemble| FittedModel {
        card,
        ensemble,
        losses: Vec::new(),
    };
    let fits = cards.into_iter().map(|fit| match fit {
        Err(reason) => Ok(Err(reason)),
        Ok(cards) => {
            let models = cards
                .into_iter()
                .map(|card| Some(model(card, ensembles.next()?)));
            models
                .collect::<Option<Vec<_>>>()
                .map(Ok)
                .ok_or_else(broken_part)
        }
    });
    fits.collect()
}

fn broken_part() -> Fault {
    let fault = Fault::new(codes::CORRUPT, "a part of a training cannot be read");
    fault.hint("run the same command again: the part is then trained anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(first: usize, learn: usize, validate: usize) -> GroupRows {
        let table = |from: usize, rows: usize| FeatureTable {
            numbers: 2,
            ids: 1,
            dense: (0..2 * rows)
                .map(|at| {
                    if at % 5 == 0 {
                        f32::NAN
                    } else {
                        (from + at) as f32
                    }
                })
                .collect(),
            categories: (0..rows).map(|at| at as i32 % 3 - 1).collect(),
            labels: (0..rows).map(|at| (from + at) as f32 / 3.0).collect(),
            weights: (0..rows).map(|at| at as f32 + 0.5).collect(),
        };
        GroupRows {
            learn: table(first, learn),
            validate: table(first + 100, validate),
        }
    }

    #[test]
    fn rows_come_back_from_their_bytes() {
        let shape = RowShape {
            numbers: 2,
            ids: 1,
            weighted: true,
        };
        let (names, all) = (
            [vec![Some("a".to_owned())], vec![None]],
            [rows(0, 7, 0), rows(50, 1, 4)],
        );
        let groups = names.iter().zip(&all).collect();
        let steps = [StepFeatures {
            allowed: vec![true, false, true].into(),
            steps: 3,
        }];
        let bytes = encode_part(&Value::from("columns"), &steps, shape, groups).unwrap();
        let (words, decoded) = decode_part(&bytes).unwrap();
        assert_eq!(
            words
                .groups
                .iter()
                .map(|group| &group.name)
                .collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        assert_eq!(words.steps, [(vec![true, false, true], 3)]);
        // NaN differs from itself: the texts are compared.
        assert_eq!(format!("{decoded:?}"), format!("{all:?}"));
    }

    #[test]
    fn bytes_that_hold_less_than_they_say_are_refused() {
        let shape = RowShape {
            numbers: 2,
            ids: 1,
            weighted: true,
        };
        let (name, own) = (vec![Some("a".to_owned())], rows(0, 7, 2));
        let bytes = encode_part(&Value::Null, &[], shape, vec![(&name, &own)]).unwrap();
        let claims = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
            assert!(text.contains(from), "{text}");
            let at = text.find(from).unwrap();
            let mut changed = bytes.clone();
            changed[at..at + to.len()].copy_from_slice(to.as_bytes());
            decode_part(&changed).is_err()
        };
        assert!(claims("learn\\\":7", "learn\\\":9"));
        assert!(decode_part(&bytes[..bytes.len() / 2]).is_err());
    }

    #[test]
    fn models_and_reasons_come_back_from_their_bytes() {
        let fits = [Err("too odd".to_owned()), Ok(Vec::new())];
        let decoded = decode_fits(
            &encode_fits(&fits).unwrap(),
            FeatureCounts { numbers: 2, ids: 1 },
        )
        .unwrap();
        assert!(matches!(&decoded[0], Err(reason) if reason == "too odd"));
        assert!(matches!(&decoded[1], Ok(models) if models.is_empty()));
        assert!(decode_fits(b"nothing", FeatureCounts { numbers: 2, ids: 1 }).is_err());
    }
}
