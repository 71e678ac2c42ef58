//! Precision of products of matrices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Precision of products of matrices on a GPU. Sums, parameters and the state of AdamW are always
/// `f32`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Single precision, as the processor does.
    F32,
    /// Brain floating point: eight bits of precision, half the bytes.
    Bf16,
}
