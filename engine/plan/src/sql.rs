//! SQL expressions over batches, compiled by DataFusion.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
use forebay_model::{Fault, Result, codes, logical_type, type_words};

use crate::calendar_moves::moved_time_function;
use crate::canonical_floats::canonical_key_function;
use crate::checked_integers::{checked_integer_functions, checked_signs};
use crate::copied_operands::refuse_many_copies;
use crate::evaluation::{BoundedExpression, to_type};
use crate::expression_depth::{
    checked_levels, is_shallow, with_evaluation_stack, with_planning_stack,
};
use crate::framed_times::framed_time_function;
use crate::guarded_functions::register_guarded;
use crate::joined_texts::{joined_texts_function, with_bounds};
use crate::local_times::{local_time_function, localize_times};
use crate::nan_comparison::canonicalize_nan;
use crate::other_rows::refuse_other_rows;
use crate::sql_faults::{expression_fault, shown};
use crate::strict_casts::{strict_casts, text_as_function};
use crate::time_shift::shifted_column;
use crate::tried_casts::{TriedCasts, counted_tries, try_as_function};
use crate::tried_values::{add_tried, count_tried};
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
    /// The casts of it whose nulls are counted, at any depth.
    pub tried: TriedCasts,
    /// Time column that it shifts, if it does nothing else.
    pub moved: Option<MovedTime>,
}

impl SqlCompiler {
    /// Parses, resolves and types an expression.
    pub fn expression(&self, text: &str, schema: &Schema) -> Result<CompiledExpression> {
        with_planning_stack(text, || self.compile_expression(text, schema))
    }

    fn compile_expression(&self, text: &str, schema: &Schema) -> Result<CompiledExpression> {
        let fault = |error: DataFusionError| expression_fault(text, schema, &error);
        let df_schema = DFSchema::try_from(schema.clone()).map_err(fault)?;
        let levels = self.parsed_levels(text)?;
        let logical = self
            .context()
            .parse_sql_expr(text, &df_schema)
            .map_err(fault)?;
        refuse_other_rows(&logical)?;
        let logical = localize_times(logical, &df_schema).map_err(fault)?;
        let moved = shifted_column(&logical, &df_schema).map(|shifted| MovedTime {
            from: shifted.column.name,
            shift: shifted.shift,
        });
        let tried = TriedCasts::of(&logical);
        let simple = self.simplified(&logical, schema).map_err(fault)?;
        // A narrow schema: batches need only the columns that are read.
        let wide = self
            .context()
            .create_physical_expr(simple.clone(), &df_schema)
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
        let target = field.data_type().clone();
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
        let bounded = BoundedExpression::new(physical, open)
            .map_err(|error| evaluation_fault(&text, error))?;
        let kernel: ColumnKernel = Arc::new(move |inputs, rows| {
            // A deep expression is evaluated on another thread.
            let (value, tried) = with_evaluation_stack(levels, || {
                let (value, tried) = count_tried(|| bounded.evaluate(inputs, rows));
                let value = value.map_err(|error| evaluation_fault(&text, error))?;
                Ok((value, tried))
            })?;
            add_tried(tried);
            Ok(vec![to_type(&value, &target)?])
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
            tried,
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
        let coerced = simplifier.coerce(expression.clone(), &open)?;
        let strict = strict_casts(coerced, open.as_ref())?.data;
        let counted = counted_tries(strict, open.as_ref())?.data;
        let bounded = with_bounds(counted, open.as_ref())?.data;
        let signed = checked_signs(bounded, open.as_ref())?.data;
        canonicalize_nan(simplifier.simplify(signed)?, &open)
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
                format!("`{text}` is {}, not a condition", type_words(other)),
            )
            .hint("compare it with something, such as `... > 0`")),
        }
    }

    /// Checks that the text is a single SQL expression, without resolving columns.
    pub fn parses(&self, text: &str) -> Result<()> {
        with_planning_stack(text, || self.parsed_levels(text).map(|_| ()))
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
            return Err(fault.hint(
                "write an expression such as `qty * price`; `aggregate` and `rolling` compute \
                 statistics",
            ));
        }
        let parsed = self.context().state().sql_to_expr(text, &dialect);
        let parsed = parsed.map_err(|error| expression_fault(text, &Schema::empty(), &error))?;
        let levels = checked_levels(&parsed, text)?;
        refuse_many_copies(&parsed, text)?;
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
                "declare a parameter such as `as_of: { type: date }`, and write `DATE \
                 '${as_of}'`: the time is an input of the run"
            }
            _ => {
                "give the value as a parameter, or compute it from columns: `hash_bucket` \
                 spreads keys evenly"
            }
        };
        let message = format!("`{text}` uses `{called}`, which changes from run to run");
        Err(Fault::new(codes::EXPRESSION, message)
            .fragment(called, 0)
            .hint(hint))
    }

    /// Sets the functions of doubles that replace aggregates in queries.
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

    /// Registers the functions that compiled queries use in addition to those of the engine. A
    /// process that executes a part of a query looks them up by name.
    pub fn register_functions(
        &self,
        registry: &mut dyn FunctionRegistry,
    ) -> Result<(), DataFusionError> {
        registry.register_udf(Arc::new(canonical_key_function().clone()))?;
        registry.register_udf(Arc::new(text_as_function().clone()))?;
        registry.register_udf(Arc::new(try_as_function().clone()))?;
        registry.register_udf(Arc::new(joined_texts_function().clone()))?;
        registry.register_udf(Arc::new(local_time_function().clone()))?;
        registry.register_udf(Arc::new(moved_time_function().clone()))?;
        registry.register_udf(Arc::new(framed_time_function().clone()))?;
        for function in checked_integer_functions() {
            registry.register_udf(Arc::new(function.clone()))?;
        }
        register_guarded(registry)?;
        for (_, function) in &self.exact {
            registry.register_udaf(function.clone())?;
        }
        Ok(())
    }

    pub(crate) fn exact(&self, name: &str) -> Option<&AggregateUDF> {
        self.exact
            .iter()
            .find(|(function_name, _)| *function_name == name)
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
            let guarded = register_guarded(&mut state);
            debug_assert!(guarded.is_ok(), "{guarded:?}");
            SessionContext::new_with_state(state)
        })
    }
}

/// A fault of an expression that met a value for which it has no result.
fn evaluation_fault(text: &str, error: DataFusionError) -> Fault {
    let error = match error {
        DataFusionError::External(inner) => match inner.downcast::<Fault>() {
            Ok(fault) => return *fault,
            Err(inner) => DataFusionError::External(inner),
        },
        other => other,
    };
    let reason = error.to_string();
    let (code, hint) = if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) {
        (
            codes::MEMORY,
            "make the texts or lists shorter, or read fewer rows at a time with a smaller \
             `--batch-rows`",
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
    Fault::new(code, format!("`{}` cannot be computed", shown(text)))
        .hint(hint)
        .cause(error)
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
    use std::collections::BTreeMap;

    use super::*;
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray};
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

    /// Texts, the casts of them, and the values; `None` is null.
    #[test]
    fn casts_of_texts_are_strict() {
        let sql = SqlCompiler::default();
        for (text, of, expected) in [
            ("true", "boolean", Some("true")),
            ("t", "boolean", None),
            ("yes", "boolean", None),
            ("1", "boolean", None),
            ("007", "bigint", Some("7")),
            ("7.0", "bigint", None),
            ("1e400", "double", None),
            ("1.5", "double", Some("1.5")),
            ("2024-02-29", "date", Some("2024-02-29")),
            ("2024-02-29T10:00:00", "date", None),
            (
                "2024-02-29T10:00:00",
                "timestamp",
                Some("2024-02-29T10:00:00"),
            ),
            ("2024-02-29T10:00:00.1234567891", "timestamp", None),
            ("1.50", "decimal(10, 2)", Some("1.50")),
            ("1.005", "decimal(10, 2)", None),
            (" 1.5", "decimal(10, 2)", None),
        ] {
            let inputs: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec![Some(text), None]))];
            let value = |call: &str| {
                let call = format!("{call}(item as {of})");
                let expression = sql.expression(&call, &schema()).unwrap();
                let values = (expression.kernel)(&inputs, 2)?.swap_remove(0);
                assert!(values.is_null(1));
                let texts = arrow::compute::cast(&values, &DataType::Utf8)?;
                Ok::<_, Fault>(
                    texts
                        .as_string::<i32>()
                        .iter()
                        .next()
                        .flatten()
                        .map(str::to_owned),
                )
            };
            let tried = value("try_cast").unwrap();
            assert_eq!(tried.as_deref(), expected, "{text} as {of}");
            match value("cast") {
                Ok(value) => assert_eq!(value.as_deref(), expected),
                Err(fault) => assert_eq!((fault.code(), expected), (codes::BAD_ROW, None)),
            }
        }
        // So are casts that a comparison makes.
        let flag = sql.condition("cast(item as boolean) or item = 'x'", &schema());
        assert!(flag.is_ok());
    }

    /// A whole number beside a date would count days since 1970.
    #[test]
    fn dates_are_not_compared_with_numbers() {
        let sql = SqlCompiler::default();
        let schema = Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("qty", DataType::Int64, true),
        ]);
        for text in [
            "day < 2024-02-01",
            "day < 20240201",
            "20240201 >= day",
            "day = qty",
            "qty > 1 AND NOT (day <> qty)",
            "day BETWEEN 2024-01-01 AND 2024-02-01",
            "day IN (DATE '2024-02-01', 20240201)",
            "CASE WHEN day > 5 THEN true ELSE false END",
            "CASE day WHEN 20240201 THEN true ELSE false END",
        ] {
            let fault = sql.condition(text, &schema).err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{text}");
            let message = fault.message();
            assert!(message.contains("a date"), "{message}");
            assert!(message.ends_with("cannot be compared"), "{message}");
            let hint = fault.hint_text().unwrap_or_default();
            assert!(hint.contains("DATE '2024-02-01'"), "{hint}");
        }
        for text in [
            "day < DATE '2024-02-01'",
            "day < '2024-02-01'",
            "day - DATE '2024-01-01' > 3",
            "date_part('year', day) = 2024",
            "day + 3 > DATE '2024-01-05'",
            "CASE day WHEN DATE '2024-02-01' THEN true ELSE false END",
            "CASE WHEN day IS NULL THEN 1 ELSE 2 END = 2",
        ] {
            assert!(sql.condition(text, &schema).is_ok(), "{text}");
        }
    }

    #[test]
    fn queries_do_not_match_dates_with_numbers() {
        let sql = SqlCompiler::default();
        let days = Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("qty", DataType::Int64, true),
        ]);
        let numbers = Schema::new(vec![
            Field::new("day", DataType::Int64, true),
            Field::new("price", DataType::Int64, true),
        ]);
        let tables = BTreeMap::from([
            ("a".to_owned(), Arc::new(days)),
            ("b".to_owned(), Arc::new(numbers)),
        ]);
        for query in [
            "SELECT qty FROM a JOIN b ON a.day = b.day",
            "SELECT qty FROM a LEFT JOIN b ON b.day < a.day",
            "SELECT qty FROM a JOIN b USING (day)",
            "SELECT qty FROM a NATURAL JOIN b",
            "SELECT qty FROM a WHERE day IN (SELECT day FROM b)",
            "SELECT qty FROM a WHERE day NOT IN (SELECT price FROM b)",
            "SELECT qty FROM a WHERE day = (SELECT max(day) FROM b)",
            "SELECT qty FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.day = 5 AND a.day > 5)",
        ] {
            let fault = sql.query(query, &tables).err().unwrap();
            assert_eq!(fault.code(), codes::EXPRESSION, "{query}");
            let message = fault.message();
            assert!(message.ends_with("cannot be compared"), "{message}");
        }
        for query in [
            "SELECT a.qty FROM a JOIN a AS c USING (day)",
            "SELECT qty FROM a WHERE qty IN (SELECT price FROM b)",
            "SELECT qty FROM a JOIN b ON qty = price",
        ] {
            assert!(sql.query(query, &tables).is_ok(), "{query}");
        }
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
