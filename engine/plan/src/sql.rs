//! SQL expressions over batches, compiled by DataFusion.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::prelude::SessionConfig;
use datafusion::sql::sqlparser::ast::{self, Visit, visit_expressions};
use forebay_model::{Fault, Result, canonical_keys, codes, logical_type};

use crate::bounded_functions::register_bounded;
use crate::canonical_floats::canonical_key_function;
use crate::expression_depth::{
    checked_levels, is_shallow, with_evaluation_stack, with_planning_stack,
};
use crate::nan_comparison::canonicalize_nan;
use crate::sql_faults::{data_type_words, expression_fault};
use crate::time_shift::shifted_column;
use crate::{ColumnKernel, MovedTime};

/// Compiles SQL text against schemas. Column names are case-sensitive. Functions that are not deterministic are
/// refused, so that results depend on data and spec alone. SQL sees -0.0 as 0.0 and all NaN as equal, because the
/// query engine distinguishes them in some operators and not in others.
#[derive(Clone, Default)]
pub struct SqlCompiler {
    /// Created on first use: creation is slow, and many pipelines contain no SQL.
    context: Arc<OnceLock<SessionContext>>,
    /// Held while the tables of a query are in the catalog, which all clones share.
    catalog: Arc<Mutex<()>>,
    /// Exact float aggregates by SQL name.
    exact: Vec<(&'static str, Arc<AggregateUDF>)>,
}

/// A compiled expression.
#[derive(Clone)]
pub struct CompiledExpression {
    /// Columns that it reads.
    pub reads: Vec<String>,
    /// Type and nullability; the name is the SQL text.
    pub field: Field,
    /// Computes one column.
    pub kernel: ColumnKernel,
    /// The logical expression, for pruning. `None` if it is too deep for the stack of a thread that walks it.
    pub logical: Option<Expr>,
    /// The column of times that it moves, where it does nothing else.
    pub moved: Option<MovedTime>,
}

impl SqlCompiler {
    /// Parses, resolves and types an expression.
    pub fn expression(&self, text: &str, schema: &Schema) -> Result<CompiledExpression> {
        with_planning_stack(text.len(), || self.compile_expression(text, schema))
    }

    fn compile_expression(&self, text: &str, schema: &Schema) -> Result<CompiledExpression> {
        let fault = |error: DataFusionError| expression_fault(text, schema, &error);
        let all = DFSchema::try_from(schema.clone()).map_err(fault)?;
        let levels = self.parsed_levels(text)?;
        let logical = self.context().parse_sql_expr(text, &all).map_err(fault)?;
        let moved = shifted_column(&logical, &all).map(|shifted| MovedTime {
            from: shifted.column.name,
            shift: shifted.shift,
        });
        let simple = self.simplified(&logical, schema).map_err(fault)?;
        // A narrow schema: batches need only the columns that are read.
        let wide = self
            .context()
            .create_physical_expr(simple.clone(), &all)
            .map_err(fault)?;
        let mut reads: Vec<_> = collect_columns(&wide).into_iter().collect();
        reads.sort_unstable_by_key(|column| column.index());
        let fields: Vec<Field> = reads
            .iter()
            .map(|column| schema.field(column.index()).clone())
            .collect();
        let narrow = Arc::new(Schema::new(fields));
        let narrow_df = DFSchema::try_from(narrow.as_ref().clone()).map_err(fault)?;
        let physical = self
            .context()
            .create_physical_expr(simple, &narrow_df)
            .map_err(fault)?;
        let physical = with_overflow_checks(physical).map_err(fault)?;
        let data_type = physical.data_type(&narrow).map_err(fault)?;
        let nullable = physical.nullable(&narrow).map_err(fault)?;
        let field = Field::new(text, logical_type(&data_type), nullable);
        let wanted = field.data_type().clone();
        let text: Arc<str> = Arc::from(text);
        // Layouts vary between spans, but the expression is compiled for logical types. Columns declared as
        // non-nullable may contain nulls.
        let open = Arc::new(Schema::new(
            narrow
                .fields()
                .iter()
                .map(|field| field.as_ref().clone().with_nullable(true))
                .collect::<Vec<_>>(),
        ));
        let kernel: ColumnKernel = Arc::new(move |inputs, rows| {
            let columns = inputs
                .iter()
                .zip(open.fields())
                .map(|(column, field)| canonical_keys(&to_type(column, field.data_type())?))
                .collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(open.clone(), columns, &options)?;
            let evaluate = || {
                let value = physical.evaluate(&batch);
                let array = value.and_then(|value| value.into_array(rows));
                array.map_err(|error| evaluation_fault(&text, error))
            };
            let value = with_evaluation_stack(levels, evaluate)?;
            Ok(vec![to_type(&value, &wanted)?])
        });
        Ok(CompiledExpression {
            reads: narrow
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect(),
            field,
            kernel,
            logical: is_shallow(levels).then_some(logical),
            moved,
        })
    }

    /// Coerces types and rewrites functions: some, such as `coalesce`, run only in rewritten form. All columns are
    /// treated as nullable.
    fn simplified(&self, expression: &Expr, schema: &Schema) -> Result<Expr, DataFusionError> {
        let fields = schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true));
        let open = Arc::new(DFSchema::try_from(Schema::new(fields.collect::<Vec<_>>()))?);
        let options = Arc::clone(self.context().state().config_options());
        let info = SimplifyContext::builder()
            .with_schema(open.clone())
            .with_config_options(options)
            .build();
        let simplifier = ExprSimplifier::new(info);
        canonicalize_nan(
            simplifier.simplify(simplifier.coerce(expression.clone(), &open)?)?,
            &open,
        )
    }

    /// An expression with its types coerced and its constants computed.
    pub(crate) fn simplify(&self, expression: &Expr, schema: &Schema) -> Result<Expr> {
        self.simplified(expression, schema)
            .map_err(|error| expression_fault(&expression.to_string(), schema, &error))
    }

    /// Compiles an expression that must be a condition.
    pub fn condition(&self, text: &str, schema: &Schema) -> Result<CompiledExpression> {
        let expression = self.expression(text, schema)?;
        match expression.field.data_type() {
            DataType::Boolean => Ok(expression),
            DataType::Null => Ok(expression),
            other => Err(Fault::new(
                codes::EXPRESSION,
                format!("`{text}` is {}, not a condition", data_type_words(other)),
            )
            .hint("compare it with something, such as `... > 0`")),
        }
    }

    /// Checks that the text is a single SQL expression, without resolving columns.
    pub fn parses(&self, text: &str) -> Result<()> {
        with_planning_stack(text.len(), || self.parsed_levels(text).map(|_| ()))
    }

    /// Levels of the expression that the text is; anything but a single deterministic expression is a fault.
    fn parsed_levels(&self, text: &str) -> Result<usize> {
        let options = self.context().copied_config();
        let dialect = options.options().sql_parser.dialect;
        if let Some((name, _)) = text.split_once(": ")
            && name
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
        {
            // The parser would read a path into JSON.
            let fault = Fault::new(codes::EXPRESSION, format!("`{text}` is not SQL"));
            return Err(
                fault.hint("write an expression such as `qty * price`; `aggregate` and `rolling` compute statistics")
            );
        }
        let parsed = self.context().state().sql_to_expr(text, &dialect);
        let parsed = parsed.map_err(|error| expression_fault(text, &Schema::empty(), &error))?;
        let levels = checked_levels(&parsed, text)?;
        self.refuse_unstable(&parsed, text)?;
        Ok(levels)
    }

    /// Refuses calls of functions whose result changes between calls or runs.
    pub(crate) fn refuse_unstable(&self, parsed: &impl Visit, text: &str) -> Result<()> {
        let state = self.context().state_ref();
        let state = state.read();
        let unstable = visit_expressions(parsed, |part| {
            let ast::Expr::Function(call) = part else {
                return ControlFlow::Continue(());
            };
            let called = call.name.to_string().to_lowercase();
            let function = state.scalar_functions().get(&called);
            match function.map(|function| function.signature().volatility) {
                None | Some(Volatility::Immutable) => ControlFlow::Continue(()),
                Some(volatility) => ControlFlow::Break((called, volatility)),
            }
        });
        let ControlFlow::Break((called, volatility)) = unstable else {
            return Ok(());
        };
        let text: String = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(80)
            .collect();
        let hint = match volatility {
            Volatility::Stable => {
                "declare a parameter such as `as_of: { type: date }`, and write `DATE '${as_of}'`: the time is an input of the run"
            }
            _ => {
                "give the value as a parameter, or compute it from columns: `hash_bucket` spreads keys evenly"
            }
        };
        let message = format!("`{text}` uses `{called}`, which changes from run to run");
        Err(Fault::new(codes::EXPRESSION, message)
            .fragment(called, 0)
            .hint(hint))
    }

    /// Sets the functions of one double that replace float aggregates in queries.
    pub fn with_exact(
        mut self,
        functions: impl IntoIterator<Item = (&'static str, AggregateUDF)>,
    ) -> Self {
        self.exact = functions
            .into_iter()
            .map(|(name, function)| (name, Arc::new(function)))
            .collect();
        self
    }

    /// Registers the functions that compiled queries use beside those of the engine. A process that executes a part of
    /// a query looks them up by name.
    pub fn register_functions(
        &self,
        registry: &mut dyn FunctionRegistry,
    ) -> Result<(), DataFusionError> {
        registry.register_udf(Arc::new(canonical_key_function().clone()))?;
        register_bounded(registry)?;
        for (_, function) in &self.exact {
            registry.register_udaf(function.clone())?;
        }
        Ok(())
    }

    pub(crate) fn exact(&self, name: &str) -> Option<&AggregateUDF> {
        self.exact
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, function)| function.as_ref())
    }

    /// Waits until no other thread has tables in the catalog.
    pub(crate) fn lock_catalog(&self) -> MutexGuard<'_, ()> {
        // Tables that a panic left are replaced by those of the same name.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of the query engine.
    pub fn context(&self) -> &SessionContext {
        self.context.get_or_init(|| {
            let mut config = SessionConfig::new();
            config.options_mut().sql_parser.enable_ident_normalization = false;
            config.options_mut().sql_parser.map_string_types_to_utf8view = false;
            let mut state = SessionContext::new_with_config(config).state();
            let bounded = register_bounded(&mut state);
            debug_assert!(bounded.is_ok(), "{bounded:?}");
            SessionContext::new_with_state(state)
        })
    }
}

/// A fault of an expression that met a value for which it has no result.
fn evaluation_fault(text: &str, error: DataFusionError) -> Fault {
    let reason = error.to_string();
    let (code, hint) = if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) {
        (
            codes::MEMORY,
            "make the texts or lists shorter, or read fewer rows at a time with a smaller `--batch-rows`",
        )
    } else if reason.contains("Divide by zero") {
        (
            codes::OVERFLOW,
            "filter such rows, or divide by `nullif(..., 0)`, which gives null",
        )
    } else if reason.contains("verflow") {
        (
            codes::OVERFLOW,
            "compute with a wider type, such as `cast(... as double)`",
        )
    } else {
        (
            codes::BAD_ROW,
            "filter such rows, or use `try_cast`, which gives null",
        )
    };
    Fault::new(code, format!("`{text}` cannot be computed"))
        .hint(hint)
        .cause(error)
}

/// Casts a column; free if it has the type already.
pub(crate) fn to_type(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        Ok(column.clone())
    } else {
        Ok(cast(column, wanted)?)
    }
}

/// Makes arithmetic fail on integer overflow instead of wrapping.
fn with_overflow_checks(
    physical: Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let done = physical.transform(|part| {
        Ok(match part.downcast_ref::<BinaryExpr>() {
            Some(binary) => {
                Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true)) as _)
            }
            None => Transformed::no(part),
        })
    });
    done.map(|done| done.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, DictionaryArray, Int32Array, StringArray};
    use arrow::datatypes::{Float64Type, Int32Type};

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("Qty", DataType::Int32, true),
            Field::new("price", DataType::Float64, true),
            Field::new("item", DataType::Utf8, true),
        ])
    }

    #[test]
    fn reads_only_what_it_names() {
        let expression = SqlCompiler::default()
            .expression("Qty * price", &schema())
            .unwrap();
        assert_eq!(expression.reads, ["Qty", "price"]);
        assert_eq!(expression.field.data_type(), &DataType::Float64);
        let inputs: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(2), None])),
            Arc::new(arrow::array::Float64Array::from(vec![1.5, 2.0])),
        ];
        let out = (expression.kernel)(&inputs, 2).unwrap();
        assert_eq!(
            out[0]
                .as_primitive::<Float64Type>()
                .iter()
                .collect::<Vec<_>>(),
            [Some(3.0), None]
        );
    }

    #[test]
    fn accepts_dictionaries_where_strings_are_declared() {
        let expression = SqlCompiler::default()
            .condition("item = 'a'", &schema())
            .unwrap();
        let dictionary: DictionaryArray<Int32Type> = vec!["a", "b"].into_iter().collect();
        let out = (expression.kernel)(&[Arc::new(dictionary)], 2).unwrap();
        assert_eq!(
            out[0].as_boolean().iter().collect::<Vec<_>>(),
            [Some(true), Some(false)]
        );
        let plain = (expression.kernel)(&[Arc::new(StringArray::from(vec!["b", "a"]))], 2).unwrap();
        assert!(plain[0].as_boolean().value(1));
    }

    #[test]
    fn faults_name_the_nearest() {
        let sql = SqlCompiler::default();
        assert_eq!(
            sql.expression("prise + 1", &schema())
                .err()
                .unwrap()
                .hint_text(),
            Some("did you mean `price`?")
        );
        assert_eq!(
            sql.expression("lgo(price)", &schema())
                .err()
                .unwrap()
                .code()
                .name,
            "FB0110"
        );
        assert!(sql.expression("price > random()", &schema()).is_err());
        assert!(sql.expression("price >", &schema()).is_err());
        assert!(sql.condition("price", &schema()).is_err());
    }
}
