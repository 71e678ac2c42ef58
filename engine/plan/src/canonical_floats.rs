//! Canonical float keys in the query engine: -0.0 equals 0.0, and all NaN are equal.

use std::sync::LazyLock;

use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::common::ExprSchema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use forebay_model::{canonical_keys, contains_floats};

static CANONICAL: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::new_from_impl(CanonicalKeyUdf {
        signature: Signature::any(1, Volatility::Immutable),
    })
});

/// The function that canonicalizes keys.
pub(crate) fn canonical_key_function() -> &'static ScalarUDF {
    &CANONICAL
}

/// Wraps a key expression that contains floats in a canonicalizing function; other keys are returned unchanged. The
/// query engine compares floats by bits in some operators and by value in others.
pub fn canonical_key(key: Expr, data_type: &DataType) -> Expr {
    if contains_floats(data_type) {
        CANONICAL.call(vec![key])
    } else {
        key
    }
}

/// Like [`canonical_key`], with the type from the schema.
pub(crate) fn canonical_key_in(
    key: Expr,
    schema: &dyn ExprSchema,
) -> Result<Expr, DataFusionError> {
    let data_type = key.get_type(schema)?;
    Ok(canonical_key(key, &data_type))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CanonicalKeyUdf {
    signature: Signature,
}

impl ScalarUDFImpl for CanonicalKeyUdf {
    fn name(&self) -> &str {
        "canonical_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        let missing = || DataFusionError::Internal("a key without a type".to_owned());
        arguments.first().cloned().ok_or_else(missing)
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        let column = columns
            .first()
            .ok_or_else(|| DataFusionError::Internal("a key without a column".to_owned()))?;
        canonical_keys(column)
            .map(ColumnarValue::Array)
            .map_err(|fault| DataFusionError::External(Box::new(fault)))
    }
}
