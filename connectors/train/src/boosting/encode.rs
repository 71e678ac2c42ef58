//! Trees as tensors in a file.

use forebay_model::{Fault, Result};
use safetensors::{Dtype, SafeTensors};

use super::tree::{RegressionTree, SplitNode, SplitRule, TreeEnsemble};
use crate::tensors::{EncodedTensor, invalid_model_fault, real_bytes, whole_bytes, write_encoded};

/// Numbers of a split: feature, kind, left, right, first category, categories.
const SPLIT_NUMBERS: usize = 6;

/// Counts of a tree: nodes, leaves, categories.
const TREE_COUNTS: usize = 3;

/// Bits of a split's kind.
const AMONG_CATEGORIES: i32 = 1;
const MISSING_LEFT: i32 = 2;

/// Numbers of ensembles by tensor.
#[derive(Default)]
struct EnsembleNumbers {
    bases: Vec<f64>,
    /// Trees of each ensemble.
    trees: Vec<i32>,
    /// Nodes, leaves and categories of each tree.
    counts: Vec<i32>,
    splits: Vec<i32>,
    thresholds: Vec<f32>,
    categories: Vec<i32>,
    leaves: Vec<f32>,
    /// Rows of each leaf; 0 where they are not known.
    leaf_rows: Vec<i32>,
}

impl EnsembleNumbers {
    fn add_ensemble(&mut self, ensemble: &TreeEnsemble) {
        self.bases.push(ensemble.base);
        self.trees.push(ensemble.trees.len() as i32);
        for tree in &ensemble.trees {
            self.add_tree(tree);
        }
    }

    fn add_tree(&mut self, tree: &RegressionTree) {
        let counts = [tree.nodes.len(), tree.leaves.len(), tree.categories.len()];
        self.counts.extend(counts.map(|count| count as i32));
        self.leaves.extend(&tree.leaves);
        for leaf in 0..tree.leaves.len() {
            let rows = tree.leaf_rows.get(leaf).copied().unwrap_or_default();
            self.leaf_rows.push(i32::try_from(rows).unwrap_or(i32::MAX));
        }
        self.categories.extend(&tree.categories);
        for node in &tree.nodes {
            self.add_node(node);
        }
    }

    fn add_node(&mut self, node: &SplitNode) {
        let (mut kind, threshold, first, count) = match node.rule {
            SplitRule::Threshold(threshold) => (0, threshold, 0, 0),
            SplitRule::Categories { first, count } => {
                (AMONG_CATEGORIES, 0.0, first as i32, count as i32)
            }
        };
        if node.missing_left {
            kind |= MISSING_LEFT;
        }
        let feature = node.feature as i32;
        self.splits
            .extend([feature, kind, node.left, node.right, first, count]);
        self.thresholds.push(threshold);
    }

    fn into_tensors(self) -> [EncodedTensor; 8] {
        let mut bases = Vec::with_capacity(self.bases.len() * 8);
        for base in &self.bases {
            bases.extend_from_slice(&base.to_le_bytes());
        }
        let splits_size = vec![self.thresholds.len(), SPLIT_NUMBERS];
        let counts_size = vec![self.counts.len() / TREE_COUNTS, TREE_COUNTS];
        [
            EncodedTensor {
                name: "bases".to_owned(),
                data_type: Dtype::F64,
                size: vec![self.bases.len()],
                bytes: bases,
            },
            whole_tensor("ensembles", vec![self.trees.len()], &self.trees),
            whole_tensor("trees", counts_size, &self.counts),
            whole_tensor("splits", splits_size, &self.splits),
            real_tensor("thresholds", &self.thresholds),
            real_tensor("leaves", &self.leaves),
            whole_tensor("leaf_rows", vec![self.leaf_rows.len()], &self.leaf_rows),
            whole_tensor("categories", vec![self.categories.len()], &self.categories),
        ]
    }
}

fn whole_tensor(name: &str, size: Vec<usize>, values: &[i32]) -> EncodedTensor {
    EncodedTensor {
        name: name.to_owned(),
        data_type: Dtype::I32,
        size,
        bytes: whole_bytes(values),
    }
}

fn real_tensor(name: &str, values: &[f32]) -> EncodedTensor {
    EncodedTensor {
        name: name.to_owned(),
        data_type: Dtype::F32,
        size: vec![values.len()],
        bytes: real_bytes(values),
    }
}

/// A file of ensembles, one after another, and words.
pub fn encode_ensembles<'a>(
    ensembles: impl Iterator<Item = &'a TreeEnsemble>,
    words: String,
) -> Result<Vec<u8>> {
    let mut numbers = EnsembleNumbers::default();
    for ensemble in ensembles {
        numbers.add_ensemble(ensemble);
    }
    write_encoded(&numbers.into_tensors(), words)
        .map_err(|error| Fault::internal("a model cannot be written").cause(error))
}

/// Numbers of numeric features and of ids in a row.
#[derive(Clone, Copy)]
pub struct FeatureCounts {
    pub numbers: usize,
    pub ids: usize,
}

/// Decodes the ensembles of a file. Its content is validated: references must lead to existing
/// entries, and downwards in each tree.
pub fn decode_ensembles(bytes: &[u8], features: FeatureCounts) -> Result<Vec<TreeEnsemble>> {
    let file =
        SafeTensors::deserialize(bytes).map_err(|error| invalid_model_fault().cause(error))?;
    let (bases, _) = tensor_bytes(&file, "bases", Dtype::F64)?.as_chunks::<8>();
    let tree_counts = whole_numbers(&file, "ensembles")?;
    let counts = whole_numbers(&file, "trees")?;
    let splits = whole_numbers(&file, "splits")?;
    let categories = whole_numbers(&file, "categories")?;
    let thresholds = real_numbers(&file, "thresholds")?;
    let leaves = real_numbers(&file, "leaves")?;
    let leaf_rows = match file.tensor("leaf_rows") {
        Ok(_) => whole_numbers(&file, "leaf_rows")?,
        // A file of an earlier version.
        Err(_) => vec![0; leaves.len()],
    };
    if bases.len() < tree_counts.len() {
        return Err(invalid_model_fault());
    }
    let mut trees = TreeDecoder {
        counts: &counts,
        splits: &splits,
        thresholds: &thresholds,
        leaves: &leaves,
        leaf_rows: &leaf_rows,
        categories: &categories,
    };
    let mut ensembles = Vec::new();
    for (base, tree_count) in bases.iter().zip(&tree_counts) {
        let mut ensemble = TreeEnsemble {
            base: f64::from_le_bytes(*base),
            trees: Vec::new(),
        };
        for _ in 0..*tree_count {
            let tree = trees.next_tree()?;
            if !is_sound(&tree, features) {
                return Err(invalid_model_fault());
            }
            ensemble.trees.push(tree);
        }
        ensembles.push(ensemble);
    }
    Ok(ensembles)
}

/// Numbers of the trees that are not decoded yet.
struct TreeDecoder<'n> {
    counts: &'n [i32],
    splits: &'n [i32],
    thresholds: &'n [f32],
    leaves: &'n [f32],
    leaf_rows: &'n [i32],
    categories: &'n [i32],
}

impl TreeDecoder<'_> {
    fn next_tree(&mut self) -> Result<RegressionTree> {
        let counts = take(&mut self.counts, TREE_COUNTS as i32)?;
        let mut leaf_rows = Vec::new();
        for rows in take(&mut self.leaf_rows, counts[1])? {
            leaf_rows.push(rows.unsigned_abs());
        }
        if leaf_rows.contains(&0) {
            leaf_rows.clear();
        }
        let mut tree = RegressionTree {
            nodes: Vec::new(),
            leaves: take(&mut self.leaves, counts[1])?.to_vec(),
            leaf_rows,
            categories: take(&mut self.categories, counts[2])?.to_vec(),
        };
        for _ in 0..counts[0] {
            let numbers = take(&mut self.splits, SPLIT_NUMBERS as i32)?;
            let threshold = take(&mut self.thresholds, 1)?[0];
            tree.nodes.push(decode_split(numbers, threshold));
        }
        Ok(tree)
    }
}

fn tensor_bytes<'b>(file: &SafeTensors<'b>, name: &str, data_type: Dtype) -> Result<&'b [u8]> {
    let view = file
        .tensor(name)
        .map_err(|error| invalid_model_fault().cause(error))?;
    if view.dtype() != data_type {
        return Err(invalid_model_fault());
    }
    Ok(view.data())
}

fn whole_numbers(file: &SafeTensors<'_>, name: &str) -> Result<Vec<i32>> {
    let (chunks, _) = tensor_bytes(file, name, Dtype::I32)?.as_chunks::<4>();
    Ok(chunks
        .iter()
        .map(|bytes| i32::from_le_bytes(*bytes))
        .collect())
}

fn real_numbers(file: &SafeTensors<'_>, name: &str) -> Result<Vec<f32>> {
    let (chunks, _) = tensor_bytes(file, name, Dtype::F32)?.as_chunks::<4>();
    Ok(chunks
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect())
}

fn take<'a, T>(values: &mut &'a [T], count: i32) -> Result<&'a [T]> {
    let count = usize::try_from(count).map_err(|_| invalid_model_fault())?;
    let (head, tail) = values
        .split_at_checked(count)
        .ok_or_else(invalid_model_fault)?;
    *values = tail;
    Ok(head)
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
            leaf_rows: vec![20, 30, 25],
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
