//! Depth of nested types: encoders walk them by recursion.

use arrow::datatypes::{DataType, Schema};

use crate::{Fault, Result, TYPE_LEVELS_MAX, codes};

/// Refuses columns whose types nest deeper than [`TYPE_LEVELS_MAX`].
pub fn check_type_levels(schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        let levels = type_levels(field.data_type());
        if levels > TYPE_LEVELS_MAX {
            let message = format!(
                "the type of `{}` nests {levels} levels; at most {TYPE_LEVELS_MAX} can be written",
                field.name()
            );
            let hint = "drop the column, or take values out of it in a step before";
            return Err(Fault::new(codes::LIMIT, message)
                .column(field.name())
                .hint(hint));
        }
    }
    Ok(())
}

/// Levels of lists, structs and maps in a type.
fn type_levels(data_type: &DataType) -> usize {
    let mut deepest = 0;
    let mut open = vec![(data_type, 0)];
    while let Some((data_type, level)) = open.pop() {
        deepest = deepest.max(level);
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => open.push((item.data_type(), level + 1)),
            DataType::Struct(fields) => {
                open.extend(fields.iter().map(|field| (field.data_type(), level + 1)));
            }
            DataType::Dictionary(_, values) => open.push((values.as_ref(), level)),
            DataType::RunEndEncoded(_, values) => open.push((values.data_type(), level)),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Field;

    use super::*;

    /// Lists and structs by turns.
    fn nested(levels: usize) -> Schema {
        let mut data_type = DataType::Int64;
        for level in 0..levels {
            let field = Arc::new(Field::new("item", data_type, true));
            data_type = if level % 2 == 0 {
                DataType::List(field)
            } else {
                DataType::Struct(vec![field].into())
            };
        }
        Schema::new(vec![Field::new("n", data_type, true)])
    }

    #[test]
    fn deep_types_are_refused_with_their_levels() {
        assert!(check_type_levels(&nested(0)).is_ok());
        assert!(check_type_levels(&nested(TYPE_LEVELS_MAX)).is_ok());
        let fault = check_type_levels(&nested(TYPE_LEVELS_MAX + 1)).unwrap_err();
        assert_eq!(fault.code(), codes::LIMIT);
        assert!(fault.message().contains("nests 33 levels"), "{fault}");
    }
}
