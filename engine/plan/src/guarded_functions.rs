//! Functions of SQL that are checked before and behind each call, and whose results may be corrected.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::bounded_functions::BOUNDED;
use crate::checked_times::CHECKED_TIMES;
use crate::function_guard::{FunctionGuard, argument_columns, column_of};
use crate::list_elements::LIST_ELEMENTS;

/// The guards of all functions that have one.
fn guards() -> impl Iterator<Item = (&'static str, &'static dyn FunctionGuard)> {
    BOUNDED
        .into_iter()
        .chain(CHECKED_TIMES)
        .chain(LIST_ELEMENTS)
}

/// Puts guards before functions of the registry.
pub(crate) fn register_guarded(registry: &mut dyn FunctionRegistry) -> Result<(), DataFusionError> {
    for (name, _) in guards() {
        let function = registry.udf(name)?;
        if let Some(function) = guarded(&function) {
            registry.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}

/// A function with its guard; `None` if it needs none, or has one.
fn guarded(function: &ScalarUDF) -> Option<ScalarUDF> {
    if function.inner().downcast_ref::<GuardedFunction>().is_some() {
        return None;
    }
    let guard = guards().find(|(name, _)| *name == function.name());
    guard.map(|(name, guard)| {
        ScalarUDF::new_from_impl(GuardedFunction {
            function: function.clone(),
            guard: NamedGuard { name, guard },
        })
    })
}

/// Puts guards before the functions of an expression.
fn with_guards(expression: Expr) -> Result<Expr, DataFusionError> {
    let guarded_calls = expression.transform_up(|part| match part {
        Expr::ScalarFunction(call) => Ok(with_guard(call)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(guarded_calls.data)
}

/// Puts a guard before a function that needs one.
pub(crate) fn with_guard(mut call: ScalarFunction) -> Transformed<Expr> {
    match guarded(&call.func) {
        Some(function) => {
            call.func = Arc::new(function);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        None => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// The guard of a function. Two are equal if they belong to the same function.
#[derive(Clone, Copy)]
struct NamedGuard {
    name: &'static str,
    guard: &'static dyn FunctionGuard,
}

impl std::fmt::Debug for NamedGuard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "NamedGuard({})", self.name)
    }
}

impl PartialEq for NamedGuard {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NamedGuard {}

impl Hash for NamedGuard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// A function with a guard.
#[derive(Debug, PartialEq, Eq, Hash)]
struct GuardedFunction {
    function: ScalarUDF,
    guard: NamedGuard,
}

impl ScalarUDFImpl for GuardedFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String, DataFusionError> {
        self.function.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        self.function.return_type(arguments)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs,
    ) -> Result<FieldRef, DataFusionError> {
        self.function.return_field_from_args(arguments)
    }

    fn invoke_with_args(
        &self,
        arguments: ScalarFunctionArgs,
    ) -> Result<ColumnarValue, DataFusionError> {
        let NamedGuard { name, guard } = self.guard;
        guard.before(name, &arguments)?;
        if let Some(result) = guard.computed(name, &arguments)? {
            return Ok(result);
        }
        let arguments = guard.prepared(arguments)?;
        if !guard.checks_result() {
            return self.function.invoke_with_args(arguments);
        }
        let columns = argument_columns(&arguments)?;
        let result = self.function.invoke_with_args(arguments)?;
        guard.behind(name, &columns, &column_of(&result)?)?;
        guard.corrected(&columns, result)
    }

    fn simplify(
        &self,
        arguments: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult, DataFusionError> {
        // A call that takes the place of this one has its guard, too.
        Ok(match self.function.simplify(arguments, context)? {
            ExprSimplifyResult::Simplified(simple) => {
                ExprSimplifyResult::Simplified(with_guards(simple)?)
            }
            ExprSimplifyResult::Original(arguments) => ExprSimplifyResult::Original(arguments),
        })
    }

    fn preimage(
        &self,
        arguments: &[Expr],
        value: &Expr,
        context: &SimplifyContext,
    ) -> Result<PreimageResult, DataFusionError> {
        let preimage = self.function.preimage(arguments, value, context)?;
        // A bound that the type does not hold is null there, and rows would neither lie before it nor behind it.
        if let PreimageResult::Range { interval, .. } = &preimage
            && (interval.lower().is_null() || interval.upper().is_null())
        {
            return Ok(PreimageResult::None);
        }
        Ok(preimage)
    }

    fn output_ordering(
        &self,
        inputs: &[ExprProperties],
    ) -> Result<SortProperties, DataFusionError> {
        self.function.output_ordering(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        self.function.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}
