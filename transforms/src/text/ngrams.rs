//! `ngrams`: runs of words or characters.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeListArray, ListBuilder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, StringColumn, TextRef};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, GrowingOutput, MapOp, PlanOp, Transform,
    admit_output,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, element_field, is_text_or_list, output_field};

/// The words of a text, its characters, and runs of `min` to `max` of them that follow each other.
///
/// In: strings (other types: as their text), or lists of strings, whose elements are the words. Out: a list of
/// strings: the shortest runs first, each length in the order of the text; runs that come twice are there twice. A
/// word is a run of letters, digits and `_`; a character is a Unicode code point, white space and punctuation
/// included. Case and accents stay: `normalize_text` before. Null stays null, and null elements of lists are no
/// words; a text without words gives an empty list. Learns nothing. `vocabulary`, `hash_bucket`, `multi_hot` and
/// `bag_of_tokens` take the lists. Follows the analyzers `word` and `char` of scikit-learn's `CountVectorizer`, whose
/// words have two letters (`min_length: 2`), and tf.Transform's `ngrams`.
///
/// ```yaml
/// - ngrams: { columns: [event], max: 2, suffix: _words }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn ngrams(columns),
    example = r#"ngrams(["title"]).by(NgramUnit::Characters).min(3).max(4)"#
)]
pub struct Ngrams {
    /// Columns of strings, or of lists of strings.
    pub columns: ColumnSelector,
    /// The parts of runs.
    #[serde(default)]
    pub by: NgramUnit,
    /// The length of the shortest runs; at least 1.
    #[serde(default = "one")]
    pub min: usize,
    /// The length of the longest runs; at most 32.
    #[serde(default = "one")]
    pub max: usize,
    /// Words of fewer characters are left out.
    #[serde(default = "one")]
    pub min_length: usize,
    /// The text between the words of a run.
    #[serde(default = "space")]
    pub separator: String,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn one() -> usize {
    1
}

fn space() -> String {
    " ".to_owned()
}

/// The parts of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NgramUnit {
    /// Words.
    #[default]
    Words,
    /// Characters of the text.
    Characters,
}

/// Length of the longest runs. A text has as many runs of each length as words.
const LENGTH_MAX: usize = 32;

impl ConfiguredTransform for Ngrams {
    const NAME: &'static str = "ngrams";
}

impl Transform for Ngrams {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(1 <= self.min && self.min <= self.max && self.max <= LENGTH_MAX) {
            let message = format!(
                "`min` {} and `max` {} are not lengths from 1 to {LENGTH_MAX}, `min` at most `max`",
                self.min, self.max
            );
            return Err(bad_value(message));
        }
        let fields = scope.typed_columns(
            &self.columns,
            "a string or a list of strings",
            is_text_or_list,
        )?;
        let mut ops = Vec::new();
        for field in fields {
            let is_list = element_field(field.data_type()).is_some();
            if is_list && self.by == NgramUnit::Characters {
                let message = format!("`{}` holds lists, whose elements are words", field.name());
                return Err(bad_value(message)
                    .column(field.name())
                    .hint("leave `by: characters` out, or take the column of texts"));
            }
            let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
            let output = output_field(field, &self.suffix, DataType::List(item));
            let config = self.clone();
            ops.push(PlanOp::Map(MapOp::new(
                [field.name()],
                [output],
                move |inputs, _| {
                    let mut outputs = Vec::new();
                    for input in inputs {
                        outputs.push(config.column(input, is_list)?);
                    }
                    Ok(outputs)
                },
            )));
        }
        Ok(ops)
    }
}

/// The runs of rows, as far as they are made.
#[derive(Default)]
struct RunLists {
    lists: ListBuilder<StringBuilder>,
    /// The run that is put together.
    run: String,
    output: GrowingOutput,
}

impl Ngrams {
    fn column(&self, column: &ArrayRef, is_list: bool) -> Result<ArrayRef> {
        let mut runs = RunLists::default();
        if is_list {
            self.push_lists(column, &mut runs)?;
        } else {
            let strings = StringColumn::of(column)?;
            let values = strings.values()?;
            match &strings {
                StringColumn::Plain(_) => {
                    for text in values.iter() {
                        self.push_text(text, &mut runs)?;
                    }
                }
                StringColumn::Dictionary(keys, _) => {
                    for key in keys.iter() {
                        let text = key.and_then(|key| values.get(key as usize));
                        self.push_text(text, &mut runs)?;
                    }
                }
            }
        }
        Ok(Arc::new(runs.lists.finish()))
    }

    fn push_text(&self, text: Option<&str>, runs: &mut RunLists) -> Result<()> {
        let Some(text) = text else {
            runs.lists.append_null();
            return Ok(());
        };
        // Each character may be a part.
        admit_output(text.len().saturating_mul(2 * size_of::<&str>()))?;
        match self.by {
            NgramUnit::Words => {
                let is_between = |letter: char| !(letter.is_alphanumeric() || letter == '_');
                let words: Vec<&str> = text.split(is_between).collect();
                self.push_runs(&words, &self.separator, runs)?;
            }
            NgramUnit::Characters => {
                let ends = text.char_indices().map(|(start, letter)| {
                    let end = start + letter.len_utf8();
                    &text[start..end]
                });
                let letters: Vec<&str> = ends.collect();
                self.push_runs(&letters, "", runs)?;
            }
        }
        runs.lists.append(true);
        Ok(())
    }

    fn push_lists(&self, column: &ArrayRef, runs: &mut RunLists) -> Result<()> {
        let item = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let column = cast(column, &DataType::LargeList(item))?;
        let column: &LargeListArray = column.as_list();
        for row in 0..column.len() {
            if column.is_null(row) {
                runs.lists.append_null();
                continue;
            }
            let elements = column.value(row);
            let texts = TextRef::new(&elements);
            let texts = texts.ok_or_else(|| Fault::internal("elements of a list are not text"))?;
            let words: Vec<&str> = texts.iter().flatten().collect();
            self.push_runs(&words, &self.separator, runs)?;
            runs.lists.append(true);
        }
        Ok(())
    }

    /// Adds the runs of all lengths to the current list.
    fn push_runs(&self, parts: &[&str], separator: &str, runs: &mut RunLists) -> Result<()> {
        let mut parts = parts.to_vec();
        if self.by == NgramUnit::Words {
            let shortest = self.min_length.max(1);
            parts.retain(|word| word.chars().take(shortest).count() == shortest);
        }
        runs.output.grow(self.run_bytes(&parts, separator))?;
        for length in self.min..=self.max {
            for run_parts in parts.windows(length) {
                runs.run.clear();
                for (position, part) in run_parts.iter().enumerate() {
                    if position > 0 {
                        runs.run.push_str(separator);
                    }
                    runs.run.push_str(part);
                }
                runs.lists.values().append_value(runs.run.as_str());
            }
        }
        Ok(())
    }

    /// Most bytes of the runs of all lengths: each part is in at most as many runs of a length as they have parts.
    fn run_bytes(&self, parts: &[&str], separator: &str) -> usize {
        let part_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let with_separators = part_bytes + parts.len() * (separator.len() + size_of::<i32>());
        let lengths = self.min..=self.max;
        lengths.fold(0, |bytes: usize, length| {
            bytes.saturating_add(length.saturating_mul(with_separators))
        })
    }
}
