//! Groups on workers: the rows that a worker gets, and the models that come back.

use forebay_contract::PartContext;
use forebay_model::{Fault, Result, codes};

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::boost::BoostingState;
use super::config::BoostingConfig;
use super::encode::{FeatureCounts, decode_ensembles, encode_ensembles};
use super::fit::{FitThreads, FitWatch, FittedGroup, FittedModel, ModelFitter};
use super::memory::check_group_memory;
use super::model::GroupModelCard;
use super::partitions::{GroupRows, RowShape};
use super::steps::StepFeatures;
use super::table::FeatureTable;
use crate::group_names::GroupName;
use crate::tensors::{EncodedTensor, TensorFile, append_reals, append_wholes, write_encoded};

/// Bytes of each number of a part.
const NUMBER_BYTES: usize = 4;

/// Description of the rows of some groups.
#[derive(Serialize, Deserialize)]
struct PartWords {
    /// Version of the trainer.
    version: u32,
    /// Columns and names of groups of the models.
    columns: Value,
    /// For each model of the horizon's steps, the features that it takes, and the number of steps
    /// that it predicts.
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
    let mut part_groups = Vec::with_capacity(groups.len());
    for (name, rows) in &groups {
        part_groups.push(PartGroup {
            name: (*name).clone(),
            learn: rows.learn.rows(),
            validate: rows.validate.rows(),
        });
    }
    let words = PartWords {
        version: super::VERSION,
        columns: columns.clone(),
        steps: steps
            .iter()
            .map(|features| (features.allowed.to_vec(), features.steps))
            .collect(),
        numbers: shape.numbers,
        ids: shape.ids,
        weighted: shape.weighted,
        groups: part_groups,
    };
    let words = serde_json::to_string(&words)
        .map_err(|error| Fault::internal("rows of groups").cause(error))?;
    let mut dense = Vec::new();
    let mut categories = Vec::new();
    let mut labels = Vec::new();
    let mut weights = Vec::new();
    for (_, rows) in &groups {
        for table in [&rows.learn, &rows.validate] {
            append_reals(&table.dense, &mut dense);
            append_wholes(&table.categories, &mut categories);
            append_reals(&table.labels, &mut labels);
            append_reals(&table.weights, &mut weights);
        }
    }
    let tensors = [
        part_tensor("dense", Dtype::F32, dense),
        part_tensor("categories", Dtype::I32, categories),
        part_tensor("labels", Dtype::F32, labels),
        part_tensor("weights", Dtype::F32, weights),
    ];
    write_encoded(&tensors, words)
        .map_err(|error| Fault::internal("rows of groups cannot be written").cause(error))
}

fn part_tensor(name: &str, data_type: Dtype, bytes: Vec<u8>) -> EncodedTensor {
    EncodedTensor {
        name: name.to_owned(),
        data_type,
        size: vec![bytes.len() / NUMBER_BYTES],
        bytes,
    }
}

/// Decodes the rows of a part. Their content is validated: the counts must match the numbers.
fn decode_part(bytes: &[u8]) -> Result<(PartWords, Vec<GroupRows>)> {
    let words: PartWords = serde_json::from_str(&TensorFile::read(bytes)?.words)
        .map_err(|error| broken_part().cause(error))?;
    if words.version != super::VERSION {
        return Err(broken_part());
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| broken_part().cause(error))?;
    let mut tables = PartTables {
        words: &words,
        dense: part_numbers(&file, "dense")?,
        categories: part_numbers(&file, "categories")?,
        labels: part_numbers(&file, "labels")?,
        weights: part_numbers(&file, "weights")?,
    };
    let mut rows = Vec::with_capacity(words.groups.len());
    for group in &words.groups {
        rows.push(GroupRows {
            learn: tables.next_table(group.learn)?,
            validate: tables.next_table(group.validate)?,
        });
    }
    Ok((words, rows))
}

/// Numbers of the tables that are not decoded yet.
struct PartTables<'b> {
    words: &'b PartWords,
    dense: &'b [[u8; NUMBER_BYTES]],
    categories: &'b [[u8; NUMBER_BYTES]],
    labels: &'b [[u8; NUMBER_BYTES]],
    weights: &'b [[u8; NUMBER_BYTES]],
}

impl PartTables<'_> {
    fn next_table(&mut self, rows: usize) -> Result<FeatureTable> {
        let PartWords { numbers, ids, .. } = *self.words;
        let weights = if self.words.weighted { rows } else { 0 };
        let mut table = FeatureTable::new(numbers, ids);
        for bytes in take_numbers(&mut self.dense, rows.saturating_mul(numbers))? {
            table.dense.push(f32::from_le_bytes(*bytes));
        }
        for bytes in take_numbers(&mut self.categories, rows.saturating_mul(ids))? {
            table.categories.push(i32::from_le_bytes(*bytes));
        }
        for bytes in take_numbers(&mut self.labels, rows)? {
            table.labels.push(f32::from_le_bytes(*bytes));
        }
        for bytes in take_numbers(&mut self.weights, weights)? {
            table.weights.push(f32::from_le_bytes(*bytes));
        }
        Ok(table)
    }
}

fn part_numbers<'b>(file: &SafeTensors<'b>, name: &str) -> Result<&'b [[u8; NUMBER_BYTES]]> {
    let tensor = file
        .tensor(name)
        .map_err(|error| broken_part().cause(error))?;
    let (numbers, _) = tensor.data().as_chunks();
    Ok(numbers)
}

fn take_numbers<'b>(
    numbers: &mut &'b [[u8; NUMBER_BYTES]],
    count: usize,
) -> Result<&'b [[u8; NUMBER_BYTES]]> {
    let (head, tail) = numbers.split_at_checked(count).ok_or_else(broken_part)?;
    *numbers = tail;
    Ok(head)
}

/// Trains the groups of an encoded part, on a worker.
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
        check_group_memory(shape, rows, context.memory_bytes / 2, &group.name)?;
        let threads = FitThreads { each: 1, groups: 1 };
        let fitted = fitter.fit_group(
            &group.name,
            rows.fit_rows(),
            threads,
            &mut PartWatch { context },
        )?;
        fits.push(fitted.map(|FittedGroup { models, .. }| models));
    }
    encode_fits(&fits)
}

/// Ends the training of a group if its result is not needed any more.
struct PartWatch<'a> {
    context: &'a PartContext<'a>,
}

impl FitWatch for PartWatch<'_> {
    fn after_round(&mut self, _: &str, _: &BoostingState) -> Result<()> {
        self.context.check()
    }
}

fn encode_fits(fits: &[GroupFit]) -> Result<Vec<u8>> {
    let mut cards: Vec<Result<Vec<&GroupModelCard>, &String>> = Vec::new();
    let mut ensembles = Vec::new();
    for fit in fits {
        match fit {
            Ok(models) => {
                cards.push(Ok(models.iter().map(|model| &model.card).collect()));
                ensembles.extend(models.iter().map(|model| &model.ensemble));
            }
            Err(reason) => cards.push(Err(reason)),
        }
    }
    let words = serde_json::to_string(&cards)
        .map_err(|error| Fault::internal("models of groups").cause(error))?;
    encode_ensembles(ensembles.into_iter(), words)
}

/// Decodes the fits of some groups from a worker, in their order.
pub fn decode_fits(bytes: &[u8], features: FeatureCounts) -> Result<Vec<GroupFit>> {
    let words = TensorFile::read(bytes)?.words;
    let all_cards: Vec<Result<Vec<GroupModelCard>, String>> =
        serde_json::from_str(&words).map_err(|error| broken_part().cause(error))?;
    let mut ensembles = decode_ensembles(bytes, features)?.into_iter();
    let mut fits = Vec::with_capacity(all_cards.len());
    for cards in all_cards {
        let cards = match cards {
            Ok(cards) => cards,
            Err(reason) => {
                fits.push(Err(reason));
                continue;
            }
        };
        let mut models = Vec::with_capacity(cards.len());
        for card in cards {
            models.push(FittedModel {
                card,
                ensemble: ensembles.next().ok_or_else(broken_part)?,
                losses: Vec::new(),
            });
        }
        fits.push(Ok(models));
    }
    Ok(fits)
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
        let names = [vec![Some("a".to_owned())], vec![None]];
        let all = [rows(0, 7, 0), rows(50, 1, 4)];
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
        let name = vec![Some("a".to_owned())];
        let own = rows(0, 7, 2);
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
