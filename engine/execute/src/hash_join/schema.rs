//! Schema of the outputs of a join by equal keys.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_plan::{GatherOp, JoinOp};

/// The outputs of a join of which each row has one: the flag, the columns, the row's position.
pub fn join_schema(join: &JoinOp) -> SchemaRef {
    let outputs = join.writes().map(|field| field.clone().with_nullable(true));
    Arc::new(Schema::new(
        outputs
            .chain([Field::new(GatherOp::ROW, DataType::UInt64, false)])
            .collect::<Vec<_>>(),
    ))
}
