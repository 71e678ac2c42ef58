//! Devices of trainings in a spec.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Device that a model is trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TrainingDevice {
    /// The processor.
    #[default]
    Cpu,
    /// The first GPU, where there is one that computes as the processor does; else the processor.
    Auto,
    /// A GPU by its number.
    Cuda(u32),
}

impl fmt::Display for TrainingDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainingDevice::Cpu => out.write_str("cpu"),
            TrainingDevice::Auto => out.write_str("auto"),
            TrainingDevice::Cuda(0) => out.write_str("cuda"),
            TrainingDevice::Cuda(number) => write!(out, "cuda:{number}"),
        }
    }
}

impl From<TrainingDevice> for String {
    fn from(on: TrainingDevice) -> String {
        on.to_string()
    }
}

/// The number in `cuda:1`.
fn cuda_number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("cuda:")?;
    // A parsed number may have a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

impl TryFrom<String> for TrainingDevice {
    type Error = String;

    fn try_from(text: String) -> Result<TrainingDevice, String> {
        let device = match text.as_str() {
            "cpu" => Some(TrainingDevice::Cpu),
            "auto" => Some(TrainingDevice::Auto),
            "cuda" => Some(TrainingDevice::Cuda(0)),
            _ => cuda_number(&text).map(TrainingDevice::Cuda),
        };
        device.ok_or_else(|| format!("`{text}` is not one of `cpu`, `auto`, `cuda`, `cuda:1`"))
    }
}

impl JsonSchema for TrainingDevice {
    fn schema_name() -> Cow<'static, str> {
        "TrainOn".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(cpu|auto|cuda|cuda:[0-9]+)$",
            "description": "What a model is trained on: `cpu`, `auto`, `cuda`, or a GPU by its \
                            number, as `cuda:1`."
        })
    }
}
