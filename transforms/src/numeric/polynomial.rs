//! `polynomial`: products and powers of columns.

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes};
use forebay_plan::{BindScope, ColumnSelector, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{bad_value, doubles, float_type, to_float_type};

/// The products of 2 to `degree` columns, with repetition: `a * a`, `a * b`, `b * b`, ...
///
/// In: columns of numbers. Out: a column for each product, called after its factors: `a_2` is `a * a`, `a_2_x_b` is
/// `a * a * b`; `float64` if a factor is, else `float32`, computed in doubles and rounded once. The columns stay. Null
/// in a factor gives null, NaN gives NaN; a product beyond the type is infinite. `standardize` before keeps products of
/// large numbers apart. Learns nothing. More than 4,096 products are a fault. Follows scikit-learn's
/// `PolynomialFeatures`, which has the columns and a column of ones as well.
///
/// ```yaml
/// - polynomial: { columns: [price, qty], degree: 2 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn polynomial(columns),
    example = r#"polynomial(["price", "qty"]).degree(3).interactions_only(true)"#
)]
pub struct PolynomialProducts {
    /// Columns of numbers.
    pub columns: ColumnSelector,
    /// Most factors of a product, 2 to 8.
    #[serde(default = "two")]
    pub degree: usize,
    /// Leaves out products in which a column comes twice.
    #[serde(default)]
    pub interactions_only: bool,
}

fn two() -> usize {
    2
}

/// Most factors of a product.
const DEGREE_MAX: usize = 8;

/// Most columns that are written.
const PRODUCTS_MAX: usize = 4096;

impl ConfiguredTransform for PolynomialProducts {
    const NAME: &'static str = "polynomial";
}

impl Transform for PolynomialProducts {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(2..=DEGREE_MAX).contains(&self.degree) {
            let message = format!("`degree` {} is not between 2 and {DEGREE_MAX}", self.degree);
            return Err(bad_value(message).field("degree"));
        }
        let fields = scope.numeric_columns(&self.columns)?;
        if self.interactions_only && fields.len() < 2 {
            let fault = bad_value("one column has no products with others");
            return Err(fault.hint("leave out `interactions_only`, or name more `columns`"));
        }
        let mut ops = Vec::new();
        for factors in self.products(fields.len())? {
            let factors: Vec<&Field> = factors.iter().map(|index| fields[*index]).collect();
            ops.push(product_op(&factors));
        }
        Ok(ops)
    }
}

impl PolynomialProducts {
    /// The factors of each product as positions of columns: shorter ones first, then in the order of columns.
    fn products(&self, width: usize) -> Result<Vec<Vec<usize>>> {
        let mut products = Vec::new();
        let mut shorter: Vec<Vec<usize>> = (0..width).map(|index| vec![index]).collect();
        for _ in 2..=self.degree {
            let mut longer = Vec::new();
            for factors in &shorter {
                let last = factors.last().copied().unwrap_or_default();
                let first = last + usize::from(self.interactions_only);
                for index in first..width {
                    longer.push([&factors[..], &[index]].concat());
                }
                if products.len() + longer.len() > PRODUCTS_MAX {
                    let message = format!("{width} columns have more than {PRODUCTS_MAX} products");
                    return Err(Fault::new(codes::LIMIT, message)
                        .hint("lower `degree`, or name fewer `columns`"));
                }
            }
            products.extend_from_slice(&longer);
            shorter = longer;
        }
        Ok(products)
    }
}

/// Multiplies columns; equal ones stand side by side.
fn product_op(factors: &[&Field]) -> PlanOp {
    let is_double = |field: &&Field| float_type(field.data_type()) == DataType::Float64;
    let out_type = if factors.iter().any(is_double) {
        DataType::Float64
    } else {
        DataType::Float32
    };
    let mut names = Vec::new();
    let mut powers: Vec<usize> = Vec::new();
    let mut reads = Vec::new();
    for same in factors.chunk_by(|field, next| field.name() == next.name()) {
        let name = same[0].name();
        names.push(if same.len() > 1 {
            format!("{name}_{}", same.len())
        } else {
            name.clone()
        });
        powers.push(same.len());
        reads.push(name.clone());
    }
    let is_nullable = factors.iter().any(|field| field.is_nullable());
    let output = Field::new(names.join("_x_"), out_type.clone(), is_nullable);
    PlanOp::Map(MapOp::new(reads, [output], move |inputs, rows| {
        Ok(vec![multiply(inputs, &powers, rows, &out_type)?])
    }))
}

fn multiply(
    inputs: &[ArrayRef],
    powers: &[usize],
    rows: usize,
    out_type: &DataType,
) -> Result<ArrayRef> {
    let mut products = vec![1.0; rows];
    let mut nulls = None;
    for (input, power) in inputs.iter().zip(powers) {
        let column = doubles(input)?;
        nulls = NullBuffer::union(nulls.as_ref(), column.nulls());
        for _ in 0..*power {
            for (product, value) in products.iter_mut().zip(column.values()) {
                *product *= value;
            }
        }
    }
    let products = Float64Array::new(products.into(), nulls);
    Ok(to_float_type(products, out_type))
}
