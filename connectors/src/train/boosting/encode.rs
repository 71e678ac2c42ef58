//! Trees as tensors in a file.

use std::collections::HashMap;

use forebay_model::Result;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::tree::{RegressionTree, SplitNode, SplitRule, TreeEnsemble};
use crate::train::tensors::{WORDS_KEY, invalid_model_fault};

/// Numbers of a split: feature, kind, left, right, first category, categories.
const SPLIT_NUMBERS: usize = 6;

/// Bits of a split's kind.
const AMONG_CATEGORIES: i32 = 1;
const MISSING_LEFT: i32 = 2;

/// A file of ensembles, one after another, and words.
pub fn encode_ensembles<'a>(
    ensembles: impl Iterator<Item = &'a TreeEnsemble>,
    words: String,
) -> Result<Vec<u8>> {
    let (mut bases, mut trees) = (Vec::<f64>::new(), Vec::<i32>::new());
    let (mut counts, mut splits, mut categories) =
        (Vec::<i32>::new(), Vec::<i32>::new(), Vec::<i32>::new());
    let (mut thresholds, mut leaves) = (Vec::<f32>::new(), Vec::<f32>::new());
    for ensemble in ensembles {
        bases.push(ensemble.base);
        trees.push(ensemble.trees.len() as i32);
        for tree in &ensemble.trees {
            counts.extend(
                [tree.nodes.len(), tree.leaves.len(), tree.categories.len()]
                    .map(|count| count as i32),
            );
            leaves.extend(&tree.leaves);
            categories.extend(&tree.categories);
            for node in &tree.nodes {
                let (kind, threshold, first, count) = match node.rule {
                    SplitRule::Threshold(threshold) => (0, threshold, 0, 0),
                    SplitRule::Categories { first, count } => {
                        (AMONG_CATEGORIES, 0.0, first as i32, count as i32)
                    }
                };
                let kind = kind | if node.missing_left { MISSING_LEFT } else { 0 };
                splits.extend([
                    node.feature as i32,
                    kind,
                    node.left,
                    node.right,
                    first,
                    count,
                ]);
                thresholds.push(threshold);
            }
        }
    }
    let bytes_of = |numbers: &[i32]| {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let bytes_of_reals = |numbers: &[f32]| {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let bases_bytes: Vec<u8> = bases.iter().flat_map(|base| base.to_le_bytes()).collect();
    let parts = [
        ("bases", Dtype::F64, vec![bases.len()], bases_bytes),
        ("ensembles", Dtype::I32, vec![trees.len()], bytes_of(&trees)),
        (
            "trees",
            Dtype::I32,
            vec![counts.len() / 3, 3],
            bytes_of(&counts),
        ),
        (
            "splits",
            Dtype::I32,
            vec![thresholds.len(), SPLIT_NUMBERS],
            bytes_of(&splits),
        ),
        (
            "thresholds",
            Dtype::F32,
            vec![thresholds.len()],
            bytes_of_reals(&thresholds),
        ),
        (
            "leaves",
            Dtype::F32,
            vec![leaves.len()],
            bytes_of_reals(&leaves),
        ),
        (
            "categories",
            Dtype::I32,
            vec![categories.len()],
            bytes_of(&categories),
        ),
    ];
    let fault = |error| forebay_model::Fault::internal("a model cannot be written").cause(error);
    let mut views = Vec::new();
    for (name, data_type, size, bytes) in &parts {
        views.push((
            *name,
            TensorView::new(*data_type, size.clone(), bytes).map_err(fault)?,
        ));
    }
    safetensors::serialize(views, Some(HashMap::from([(WORDS_KEY.to_owned(), words)])))
        .map_err(fault)
}

/// How many numbers and ids a row has.
#[derive(Clone, Copy)]
pub struct FeatureCounts {
    pub numbers: usize,
    pub ids: usize,
}

/// The ensembles of such a file. Nothing in it is believed: references go to what is there, and down each tree.
pub fn decode_ensembles(bytes: &[u8], features: FeatureCounts) -> Result<Vec<TreeEnsemble>> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| invalid_model_fault().cause(error))?;
    let tensor = |name: &str, data_type: Dtype| {
        let found = file
            .tensor(name)
            .map_err(|error| invalid_model_fault().cause(error))?;
        if found.dtype() != data_type {
            return Err(invalid_model_fault());
        }
        Ok(found.data().to_vec())
    };
    let wholes = |name: &str| -> Result<Vec<i32>> {
        Ok(tensor(name, Dtype::I32)?
            .chunks_exact(4)
            .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    };
    let reals = |name: &str| -> Result<Vec<f32>> {
        Ok(tensor(name, Dtype::F32)?
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    };
    let bases = tensor("bases", Dtype::F64)?;
    let bases = bases
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes));
    let (ensembles, counts) = (wholes("ensembles")?, wholes("trees")?);
    let (splits, categories) = (wholes("splits")?, wholes("categories")?);
    let (thresholds, leaves) = (reals("thresholds")?, reals("leaves")?);
    let mut nodes = splits.chunks_exact(SPLIT_NUMBERS).zip(thresholds.iter());
    let mut counts = counts.chunks_exact(3);
    let (mut leaves, mut categories) = (leaves.as_slice(), categories.as_slice());
    let mut found = Vec::new();
    for (base, trees) in bases.zip(&ensembles) {
        let mut ensemble = TreeEnsemble {
            base,
            trees: Vec::new(),
        };
        for _ in 0..*trees {
            let counts = counts.next().ok_or_else(invalid_model_fault)?;
            let own_leaves = take(&mut leaves, counts[1])?.to_vec();
            let own_categories = take(&mut categories, counts[2])?.to_vec();
            let mut tree = RegressionTree {
                nodes: Vec::new(),
                leaves: own_leaves,
                categories: own_categories,
            };
            for _ in 0..counts[0] {
                let (numbers, threshold) = nodes.next().ok_or_else(invalid_model_fault)?;
                tree.nodes.push(decode_split(numbers, *threshold));
            }
            if !is_sound(&tree, features) {
                return Err(invalid_model_fault());
            }
            ensemble.trees.push(tree);
        }
        found.push(ensemble);
    }
    if found.len() != ensembles.len() {
        return Err(invalid_model_fault());
    }
    Ok(found)
}

fn take<'a, T>(rest: &mut &'a [T], count: i32) -> Result<&'a [T]> {
    let count = usize::try_from(count).map_err(|_| invalid_model_fault())?;
    let (taken, after) = rest
        .split_at_checked(count)
        .ok_or_else(invalid_model_fault)?;
    *rest = after;
    Ok(taken)
}

fn decode_split(numbers: &[i32], threshold: f32) -> SplitNode {
    let rule = match numbers[1] & AMONG_CATEGORIES {
        0 => SplitRule::Threshold(threshold),
        _ => SplitRule::Categories {
            first: numbers[4] as u32,
            count: numbers[5] as u32,
        },
    };
    let missing_left = numbers[1] & MISSING_LEFT != 0;
    SplitNode {
        feature: numbers[0] as u32,
        rule,
        missing_left,
        left: numbers[2],
        right: numbers[3],
    }
}

fn is_sound(tree: &RegressionTree, FeatureCounts { numbers, ids }: FeatureCounts) -> bool {
    let goes_on = |at: usize, side: i32| match usize::try_from(side) {
        Ok(node) => node > at && node < tree.nodes.len(),
        Err(_) => (!side as usize) < tree.leaves.len(),
    };
    let split_is_sound = |(at, node): (usize, &SplitNode)| {
        let feature = node.feature as usize;
        let rule = match node.rule {
            SplitRule::Threshold(_) => feature < numbers,
            SplitRule::Categories { first, count } => {
                let end = first as usize + count as usize;
                (numbers..numbers + ids).contains(&feature) && end <= tree.categories.len()
            }
        };
        rule && goes_on(at, node.left) && goes_on(at, node.right)
    };
    !tree.leaves.is_empty() && tree.nodes.iter().enumerate().all(split_is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensembles() -> Vec<TreeEnsemble> {
        let tree = RegressionTree {
            nodes: vec![
                SplitNode {
                    feature: 1,
                    rule: SplitRule::Threshold(0.5),
                    missing_left: true,
                    left: 1,
                    right: !0,
                },
                SplitNode {
                    feature: 2,
                    rule: SplitRule::Categories { first: 0, count: 2 },
                    missing_left: false,
                    left: !1,
                    right: !2,
                },
            ],
            leaves: vec![1.0, 2.0, -3.5],
            categories: vec![4, 9],
        };
        let leaf = RegressionTree {
            leaves: vec![0.25],
            ..RegressionTree::default()
        };
        vec![
            TreeEnsemble {
                base: 0.1,
                trees: vec![tree.clone(), leaf],
            },
            TreeEnsemble {
                base: -7.0,
                trees: Vec::new(),
            },
            TreeEnsemble {
                base: 1.0 / 3.0,
                trees: vec![tree],
            },
        ]
    }

    #[test]
    fn ensembles_come_back_from_a_file() {
        let bytes = encode_ensembles(ensembles().iter(), "{}".into()).unwrap();
        assert_eq!(
            decode_ensembles(&bytes, FeatureCounts { numbers: 2, ids: 1 }).unwrap(),
            ensembles()
        );
    }

    #[test]
    fn references_to_nothing_are_refused() {
        let refused = |change: &dyn Fn(&mut RegressionTree)| {
            let mut all = ensembles();
            change(&mut all[0].trees[0]);
            let bytes = encode_ensembles(all.iter(), "{}".into()).unwrap();
            decode_ensembles(&bytes, FeatureCounts { numbers: 2, ids: 1 }).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(
            refused(&|tree| tree.nodes[0].left = 0),
            "a tree that goes in circles"
        );
        assert!(refused(&|tree| tree.nodes[0].left = 2));
        assert!(refused(&|tree| tree.nodes[1].right = !3));
        assert!(refused(&|tree| tree.nodes[0].feature = 2));
        assert!(refused(&|tree| tree.nodes[1].feature = 3));
        assert!(refused(&|tree| tree.categories.truncate(1)));
        assert!(refused(&|tree| tree.leaves.clear()));
    }
}
