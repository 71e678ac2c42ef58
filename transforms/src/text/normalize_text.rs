//! `normalize_text`: one form for texts that mean the same.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type};
use forebay_model::{Result, StringColumn, TextRef};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::categorical::with_element_type;
use crate::shared::{each_element, element_field, is_text_or_list, output_field};

/// Texts in one form: Unicode normal form, case, accents, punctuation and white space, in this order.
///
/// In: strings, or lists of strings (other types: as their text). Out: `string`, in lists where the input has lists.
/// Null stays null; a text of which nothing stays is the empty string. Lower case is that of Unicode without a
/// language: `I` is `i` in Turkish as well. Punctuation is Unicode's (general category P), to which `$`, `+` and `<`
/// do not belong. Learns nothing. `form: nfc` and `case: lower` are Python's
/// `unicodedata.normalize("NFC", text.lower())`.
///
/// ```yaml
/// - normalize_text: { columns: [event], accents: strip, punctuation: space }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn normalize_text(columns),
    example = r#"normalize_text(["title"]).punctuation(PunctuationPolicy::Space)"#
)]
pub struct NormalizeText {
    /// Columns of strings, or of lists of strings.
    pub columns: ColumnSelector,
    /// The normal form.
    #[serde(default)]
    pub form: UnicodeForm,
    /// The case of letters.
    #[serde(default)]
    pub case: LetterCase,
    /// Treatment of accents.
    #[serde(default)]
    pub accents: AccentPolicy,
    /// Treatment of punctuation.
    #[serde(default)]
    pub punctuation: PunctuationPolicy,
    /// Makes one space of each run of white space, and none at both ends.
    #[serde(default = "yes")]
    pub collapse_spaces: bool,
    /// Writes `<column><suffix>` instead of replacing the column.
    #[serde(default)]
    pub suffix: Option<String>,
}

fn yes() -> bool {
    true
}

/// A normal form of Unicode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnicodeForm {
    /// Letters and their accents are one character where there is one.
    #[default]
    Nfc,
    /// As `nfc`, and ligatures, wide letters and the like become what they stand for.
    Nfkc,
    /// As they are.
    Keep,
}

/// The case of letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LetterCase {
    /// Lower case.
    #[default]
    Lower,
    /// As they are.
    Keep,
}

/// Treatment of accents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccentPolicy {
    /// They stay.
    #[default]
    Keep,
    /// They are taken off their letters: `é` is `e`. `ø` and `ß` have none.
    Strip,
}

/// Treatment of punctuation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PunctuationPolicy {
    /// It stays.
    #[default]
    Keep,
    /// Each character becomes a space.
    Space,
    /// It is removed.
    Remove,
}

impl ConfiguredTransform for NormalizeText {
    const NAME: &'static str = "normalize_text";
}

impl Transform for NormalizeText {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let fields = scope.typed_columns(
            &self.columns,
            "a string or a list of strings",
            is_text_or_list,
        )?;
        let mut ops = Vec::new();
        for field in fields {
            ops.push(self.column_op(field));
        }
        Ok(ops)
    }
}

impl NormalizeText {
    fn column_op(&self, field: &Field) -> PlanOp {
        let is_list = element_field(field.data_type()).is_some();
        let out_type = if is_list {
            with_element_type(field.data_type(), &DataType::Utf8)
        } else {
            DataType::Utf8
        };
        let output = output_field(field, &self.suffix, out_type);
        let config = self.clone();
        PlanOp::Map(MapOp::new([field.name()], [output], move |inputs, _| {
            let mut outputs = Vec::new();
            for input in inputs {
                outputs.push(each_element(input, |values| {
                    let normalized = config.normalize_column(values)?;
                    // The elements of lists have one layout.
                    if is_list {
                        return Ok(cast(&normalized, &DataType::Utf8)?);
                    }
                    Ok(normalized)
                })?);
            }
            Ok(outputs)
        }))
    }

    /// Each distinct text of a dictionary is normalized once.
    fn normalize_column(&self, column: &ArrayRef) -> Result<ArrayRef> {
        let strings = StringColumn::of(column)?;
        let normalized = self.normalize_all(strings.values()?);
        let StringColumn::Dictionary(keys, _) = &strings else {
            return Ok(normalized);
        };
        let dictionary = DictionaryArray::<Int32Type>::try_new(keys.clone(), normalized)?;
        Ok(Arc::new(dictionary))
    }

    fn normalize_all(&self, texts: TextRef<'_>) -> ArrayRef {
        let mut normalized = StringBuilder::new();
        for text in texts.iter() {
            normalized.append_option(text.map(|text| self.normalize(text)));
        }
        Arc::new(normalized.finish())
    }

    fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_plain = text.is_ascii();
        let mut text = Cow::Borrowed(text);
        if !is_plain {
            text = self.form.apply(text);
            if self.accents == AccentPolicy::Strip {
                text = Cow::Owned(strip_accents(&text));
            }
        }
        if self.case == LetterCase::Lower {
            text = Cow::Owned(text.to_lowercase());
        }
        if !is_plain {
            // Lower case may have left the form.
            text = self.form.apply(text);
        }
        if self.punctuation != PunctuationPolicy::Keep {
            text = Cow::Owned(self.without_punctuation(&text));
        }
        if self.collapse_spaces {
            let words: Vec<&str> = text.split_whitespace().collect();
            text = Cow::Owned(words.join(" "));
        }
        text
    }

    fn without_punctuation(&self, text: &str) -> String {
        let categories = CodePointMapData::<GeneralCategory>::new();
        let mut letters = String::with_capacity(text.len());
        for letter in text.chars() {
            if !GeneralCategoryGroup::Punctuation.contains(categories.get(letter)) {
                letters.push(letter);
            } else if self.punctuation == PunctuationPolicy::Space {
                letters.push(' ');
            }
        }
        letters
    }
}

impl UnicodeForm {
    fn apply<'a>(self, text: Cow<'a, str>) -> Cow<'a, str> {
        let normalizer = match self {
            UnicodeForm::Nfc => ComposingNormalizerBorrowed::new_nfc(),
            UnicodeForm::Nfkc => ComposingNormalizerBorrowed::new_nfkc(),
            UnicodeForm::Keep => return text,
        };
        if normalizer.is_normalized(&text) {
            return text;
        }
        Cow::Owned(normalizer.normalize(&text).into_owned())
    }
}

/// Letters without the marks that combine with them, composed again.
fn strip_accents(text: &str) -> String {
    let categories = CodePointMapData::<GeneralCategory>::new();
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(text);
    let is_mark = |letter: &char| categories.get(*letter) == GeneralCategory::NonspacingMark;
    let letters: String = decomposed
        .chars()
        .filter(|letter| !is_mark(letter))
        .collect();
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(&letters);
    composed.into_owned()
}
