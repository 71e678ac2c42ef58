//! `derive`: columns computed by SQL expressions.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use forebay_model::{Fault, Result, RowChange};
use forebay_plan::{
    BindScope, ComputedNulls, ConfiguredTransform, MapOp, PlanOp, Transform, ValueCount,
    WrittenNulls,
};
use forebay_setters::Setters;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// New columns by name, each a SQL expression; later ones may use earlier ones.
///
/// A name that exists already is replaced if its own expression reads it, else it is a fault.
/// Types follow SQL: integers stay integers (`1 / 2` is 0), null in gives null out, integer
/// overflow and division by zero of integers are faults, of floats infinities and NaN, which are
/// counted, as are nulls that `coalesce` of a column fills. Expressions see one row, and -0.0 as
/// 0.0; functions that change from run to run (`random`, `now`) are refused.
///
/// ```yaml
/// - derive: { revenue: "qty * price" }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(transparent)]
#[schemars(extend("additionalProperties" = {"type": "string", "format": "sql"}))]
#[setters(fn derive(expressions), example = r#"derive([("revenue", "qty * price")])"#)]
pub struct DeriveColumns(pub IndexMap<String, String>);

impl ConfiguredTransform for DeriveColumns {
    const NAME: &'static str = "derive";
}

impl Transform for DeriveColumns {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let mut schema = scope.schema.clone();
        let mut ops = Vec::new();
        let mut faults: Vec<Fault> = Vec::new();
        let mut failed: Vec<&String> = Vec::new();
        for (name, text) in &self.0 {
            let expression = match scope.sql.expression(text, &schema) {
                Ok(expression) => expression,
                Err(fault) => {
                    // A column whose own expression failed is missing for that reason.
                    if !failed
                        .iter()
                        .any(|name| fault.site().column.as_ref() == Some(name))
                    {
                        faults.push(fault.field(name));
                    }
                    failed.push(name);
                    continue;
                }
            };
            let field = expression.field.with_name(name);
            schema = with_field(&schema, &field);
            let kernel = expression.kernel;
            let nulls = ComputedNulls {
                logical: expression.logical,
                tried: expression.tried,
            };
            let filled = nulls.filled_column();
            let filled =
                filled.and_then(|column| expression.reads.iter().position(|read| read == column));
            let mut map = MapOp::new(expression.reads, [field], move |inputs, rows| {
                kernel(inputs, rows)
            });
            if let Some(read) = filled {
                map = map.counting(ValueCount {
                    before: read,
                    ..ValueCount::new(RowChange::Imputed, count_filled)
                });
            }
            ops.push(PlanOp::Map(
                map.moving(expression.moved)
                    .written_nulls(WrittenNulls::Computed(Box::new(nulls))),
            ));
        }
        Fault::combine(faults).map_or(Ok(ops), Err)
    }
}

/// Counts the nulls of a column that an expression fills.
fn count_filled(column: &ArrayRef, filled: &ArrayRef) -> Result<u64> {
    let nulls = column.logical_null_count();
    Ok(nulls.saturating_sub(filled.logical_null_count()) as u64)
}

fn with_field(schema: &Schema, field: &Field) -> Schema {
    let mut fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|existing| existing.as_ref().clone())
        .collect();
    let mut existing_fields = fields.iter_mut();
    match existing_fields.find(|existing| existing.name() == field.name()) {
        Some(existing) => *existing = field.clone(),
        None => fields.push(field.clone()),
    }
    Schema::new(fields)
}
