//! Operations over single rows that write values where columns that they read are null.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Operator};

use crate::nulls::{FIRST_VALUES, NULL_AS_EMPTY, is_null_test};
use crate::{BoundPipeline, ComputedNulls, MapOp, OpStream, PlanOp, WrittenNulls};

/// Functions that fill the nulls of their first argument.
const FILLING: &[&str] = &["coalesce", "nvl", "ifnull"];

/// The values that an operation writes for nulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullValue {
    /// One that the step is there to fill in, as `impute` does, and `coalesce` of a column.
    Filled,
    /// One that another SQL expression computes, by `CASE` say.
    Computed,
    /// One that looks like those of other rows: the zeros of `one_hot`, say.
    Encoded,
}

/// Columns of an operation whose nulls do not show in what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenNulls<'a> {
    /// The columns, which it reads.
    pub columns: Vec<&'a String>,
    /// The values that it writes for nulls.
    pub value: NullValue,
}

/// The columns of an operation of a stream that may have nulls in front of it, and whose nulls do not show in what it
/// writes. `None` for an operation without such columns.
pub fn hidden_nulls<'b>(
    bound: &'b BoundPipeline,
    stream: &OpStream,
    position: usize,
) -> Option<HiddenNulls<'b>> {
    let PlanOp::Map(map) = &bound.ops[stream.ops[position]].op else {
        return None;
    };
    let mut hidden = replaced_nulls(map)?;
    hidden
        .columns
        .retain(|column| may_be_null(bound, stream, position, column));
    (!hidden.columns.is_empty()).then_some(hidden)
}

/// False for a column in which the first operations of a stream have left no null, such as those that fill it.
fn may_be_null(bound: &BoundPipeline, stream: &OpStream, op_count: usize, column: &str) -> bool {
    let mut name = column;
    for position in (0..op_count).rev() {
        match &bound.ops[stream.ops[position]].op {
            PlanOp::Map(map) => {
                if let Some(field) = map.writes.iter().find(|field| *field.name() == name) {
                    return field.is_nullable();
                }
            }
            PlanOp::Project(columns) => {
                if let Some((from, _)) = columns.iter().find(|(_, to)| *to == name) {
                    name = from;
                }
            }
            op if op.is_written(name) => return true,
            _ => {}
        }
    }
    true
}

/// The columns of an operation whose nulls do not show in what it writes; `None` for an operation that is null where a
/// column is.
fn replaced_nulls(map: &MapOp) -> Option<HiddenNulls<'_>> {
    let all_columns = map.reads.as_slice();
    let (columns, value) = match &map.nulls {
        // The others are keys.
        WrittenNulls::Filled => (all_columns.get(..1)?, NullValue::Filled),
        WrittenNulls::Computed(nulls) => {
            if let Some(filled) = nulls.filled_column() {
                let position = all_columns.iter().position(|column| column == filled)?;
                (all_columns.get(position..=position)?, NullValue::Filled)
            } else if has_values_of_nulls(nulls.logical.as_ref()?) {
                (all_columns, NullValue::Computed)
            } else {
                return None;
            }
        }
        WrittenNulls::MadeOfOthers(_) => (all_columns, NullValue::Encoded),
        WrittenNulls::Read | WrittenNulls::Of(_) | WrittenNulls::Made(_) => {
            if !is_encoding(map) {
                return None;
            }
            (all_columns, NullValue::Encoded)
        }
    };
    Some(HiddenNulls {
        columns: columns.iter().collect(),
        value,
    })
}

impl ComputedNulls {
    /// The column whose nulls the expression is there to fill: the first one of `coalesce`.
    pub fn filled_column(&self) -> Option<&str> {
        let mut expression = self.logical.as_ref()?;
        loop {
            expression = match expression {
                Expr::Alias(alias) => alias.expr.as_ref(),
                Expr::Cast(cast) => cast.expr.as_ref(),
                Expr::ScalarFunction(call) if FILLING.contains(&call.name()) => {
                    return match call.args.first()? {
                        Expr::Column(column) => Some(&column.name),
                        _ => None,
                    };
                }
                _ => return None,
            };
        }
    }
}

/// True for columns without nulls that do not tell of those that were read, as a Boolean `missing` does.
fn is_encoding(map: &MapOp) -> bool {
    let mut has_code = false;
    for field in &map.writes {
        if field.is_nullable() {
            return false;
        }
        has_code |= *field.data_type() != DataType::Boolean;
    }
    has_code
}

/// True for an expression that may have a value where a column is null.
fn has_values_of_nulls(expression: &Expr) -> bool {
    let mut has_values = false;
    // The closure gives no error.
    let _ = expression.apply(|part| {
        has_values |= match part {
            Expr::Case(_) => true,
            test if is_null_test(test) => true,
            Expr::ScalarFunction(call) => {
                FIRST_VALUES.contains(&call.name()) || NULL_AS_EMPTY.contains(&call.name())
            }
            Expr::BinaryExpr(operation) => matches!(
                operation.op,
                Operator::And
                    | Operator::Or
                    | Operator::IsDistinctFrom
                    | Operator::IsNotDistinctFrom
            ),
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    has_values
}

#[cfg(test)]
mod tests {
    use arrow::array::ArrayRef;
    use arrow::datatypes::{Field, Schema};
    use forebay_model::Result;

    use super::*;
    use crate::{ComputedNulls, SqlCompiler};

    fn copy(columns: &[ArrayRef], _: usize) -> Result<Vec<ArrayRef>> {
        Ok(columns.to_vec())
    }

    fn number(is_nullable: bool) -> Field {
        Field::new("w", DataType::Float32, is_nullable)
    }

    fn map(written: Field) -> MapOp {
        MapOp::new(["x", "key"], [written], copy)
    }

    #[test]
    fn columns_without_nulls_hide_those_that_are_read() {
        let both: &[&str] = &["x", "key"];
        let cases = [
            (map(number(true)), None),
            (map(number(false)), Some((both, NullValue::Encoded))),
            (map(Field::new("w", DataType::Boolean, false)), None),
            (
                map(number(true)).written_nulls(WrittenNulls::Of("x".to_owned())),
                None,
            ),
            (
                map(number(true)).written_nulls(WrittenNulls::Made("has too few")),
                None,
            ),
            (
                map(number(true)).written_nulls(WrittenNulls::MadeOfOthers("has no others")),
                Some((both, NullValue::Encoded)),
            ),
            (
                map(number(true)).written_nulls(WrittenNulls::Filled),
                Some((&both[..1], NullValue::Filled)),
            ),
        ];
        for (map, expected) in cases {
            let hidden = replaced_nulls(&map);
            let columns = hidden.as_ref().map(|hidden| hidden.columns.clone());
            let expected_columns = expected.map(|(columns, _)| columns);
            assert_eq!(columns.is_some(), expected_columns.is_some());
            assert_eq!(
                columns.unwrap_or_default(),
                expected_columns.unwrap_or_default()
            );
            let value = hidden.map(|hidden| hidden.value);
            assert_eq!(value, expected.map(|(_, value)| value));
        }
    }

    #[test]
    fn expressions_hide_nulls_that_they_replace() {
        let schema = Schema::new(vec![Field::new("x", DataType::Float64, true)]);
        let cases = [
            ("x * 2", None),
            ("sqrt(x)", None),
            ("coalesce(x, 0.0)", Some(NullValue::Filled)),
            ("CAST(ifnull(x, 0.0) AS INT)", Some(NullValue::Filled)),
            ("coalesce(x, 0.0) * 2", Some(NullValue::Computed)),
            ("coalesce(x + 1, 0.0)", Some(NullValue::Computed)),
            (
                "CASE WHEN x > 0 THEN 1 ELSE 0 END",
                Some(NullValue::Computed),
            ),
            ("x IS NULL", Some(NullValue::Computed)),
            ("x > 1 OR x < -1", Some(NullValue::Computed)),
        ];
        for (text, expected) in cases {
            let compiled = SqlCompiler::default().expression(text, &schema).unwrap();
            let nulls = ComputedNulls {
                logical: compiled.logical,
                tried: compiled.tried,
            };
            let map = MapOp::new(compiled.reads, [compiled.field], copy)
                .written_nulls(WrittenNulls::Computed(Box::new(nulls)));
            let value = replaced_nulls(&map).map(|hidden| hidden.value);
            assert_eq!(value, expected, "{text}");
        }
    }
}
