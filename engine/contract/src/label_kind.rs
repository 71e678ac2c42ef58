//! Kinds of labels that trainings learn.

use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes, logical_type, type_words};

/// The kind of labels that a training learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelKind {
    /// Numbers, and booleans as 0 and 1.
    Numbers,
    /// Classes: texts, whole numbers or booleans.
    Classes,
}

impl LabelKind {
    /// Refuses a label of another kind.
    pub fn check(self, label: &Field) -> Result<()> {
        let label_type = logical_type(label.data_type());
        let hint = match self {
            LabelKind::Numbers if label_type == DataType::Utf8 => {
                "predict its classes with `loss: softmax` of `gbdt`, `mlp` or `linear`, or make \
                 numbers of it before"
            }
            LabelKind::Classes if !is_class_type(&label_type) => {
                "name a column of texts, whole numbers or booleans, or choose a `loss` of numbers"
            }
            LabelKind::Numbers | LabelKind::Classes => return Ok(()),
        };
        let learned = match self {
            LabelKind::Numbers => "numbers",
            LabelKind::Classes => "classes",
        };
        let message = format!(
            "the label `{}` is {}, and the training learns {learned}",
            label.name(),
            type_words(label.data_type())
        );
        Err(Fault::new(codes::COLUMN_TYPE, message)
            .column(label.name())
            .hint(hint))
    }
}

/// True for types whose values are classes.
fn is_class_type(label_type: &DataType) -> bool {
    label_type.is_integer() || matches!(label_type, DataType::Utf8 | DataType::Boolean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_of_the_kind_that_is_learned() {
        let text_ids = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let cases = [
            (DataType::Utf8, false, true),
            (DataType::Utf8View, false, true),
            (text_ids, false, true),
            (DataType::Int64, true, true),
            (DataType::UInt8, true, true),
            (DataType::Boolean, true, true),
            (DataType::Float32, true, false),
            (DataType::Float64, true, false),
        ];
        for (data_type, is_number, is_class) in cases {
            let label = Field::new("y", data_type.clone(), true);
            let checked = [LabelKind::Numbers, LabelKind::Classes].map(|kind| kind.check(&label));
            assert_eq!(
                checked.each_ref().map(|result| result.is_ok()),
                [is_number, is_class],
                "{data_type}"
            );
            for result in checked {
                let code = result.err().map(|fault| fault.code());
                assert!(code.is_none_or(|code| code == codes::COLUMN_TYPE));
            }
        }
    }
}
