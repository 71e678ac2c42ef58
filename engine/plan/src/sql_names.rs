//! Functions of pandas, Spark and other databases that the SQL of specs lacks, and SQL for the same.

/// A function of another tool, and SQL for the same.
#[derive(Debug)]
pub struct ForeignFunction {
    /// The name in lower case.
    pub name: &'static str,
    /// An expression for the same.
    pub sql: &'static str,
}

const fn function(name: &'static str, sql: &'static str) -> ForeignFunction {
    ForeignFunction { name, sql }
}

/// All functions, in order of their names.
pub const FOREIGN_FUNCTIONS: &[ForeignFunction] = &[
    function("add_months", "day + INTERVAL '1 month'"),
    function("collect_list", "array_agg(item)"),
    function("collect_set", "array_agg(DISTINCT item)"),
    function("count_distinct", "count(DISTINCT item)"),
    function("date_add", "day + INTERVAL '7 days'"),
    function("date_diff", "CAST(later AS DATE) - CAST(earlier AS DATE)"),
    function("date_sub", "day - INTERVAL '7 days'"),
    function("datediff", "CAST(later AS DATE) - CAST(earlier AS DATE)"),
    function("day", "date_part('day', day)"),
    function("dayofmonth", "date_part('day', day)"),
    function("dayofweek", "date_part('dow', day)"),
    function("dayofyear", "date_part('doy', day)"),
    function("fillna", "coalesce(price, 0)"),
    function("hour", "date_part('hour', at)"),
    function("if", "CASE WHEN qty > 0 THEN 1 ELSE 0 END"),
    function("ifelse", "CASE WHEN qty > 0 THEN 1 ELSE 0 END"),
    function("iff", "CASE WHEN qty > 0 THEN 1 ELSE 0 END"),
    function("ifnull", "coalesce(price, 0)"),
    function("isin", "item IN ('a', 'b')"),
    function("isna", "price IS NULL"),
    function("isnull", "price IS NULL"),
    function("len", "length(item)"),
    function("log1p", "ln(1 + price)"),
    function("mean", "avg(price)"),
    function("minute", "date_part('minute', at)"),
    function("mod", "qty % 7"),
    function("month", "date_part('month', day)"),
    function("notnull", "price IS NOT NULL"),
    function("nunique", "count(DISTINCT item)"),
    function(
        "percentile",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY price)",
    ),
    function(
        "quantile",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY price)",
    ),
    function("quarter", "date_part('quarter', day)"),
    function("regexp_extract", "regexp_match(item, '[0-9]+')[1]"),
    function("rlike", "regexp_like(item, '[0-9]+')"),
    function("second", "date_part('second', at)"),
    function("size", "array_length(tags)"),
    function("split", "string_to_array(item, ' ')"),
    function("std", "stddev(price)"),
    function("strftime", "to_char(day, '%Y-%m')"),
    function("strptime", "to_timestamp(item, '%d.%m.%Y')"),
    function("to_datetime", "to_timestamp(item, '%d.%m.%Y')"),
    function("weekofyear", "date_part('week', day)"),
    function("when", "CASE WHEN qty > 0 THEN 1 ELSE 0 END"),
    function("where", "CASE WHEN qty > 0 THEN 1 ELSE 0 END"),
    function("year", "date_part('year', day)"),
];

/// The function of another tool with this name.
pub(crate) fn foreign_function(name: &str) -> Option<&'static ForeignFunction> {
    let name = name.to_lowercase();
    FOREIGN_FUNCTIONS
        .iter()
        .find(|function| function.name == name)
}

/// The names of all functions that SQL of specs has, in order.
pub fn sql_functions() -> Vec<String> {
    let scalars = datafusion::functions::all_default_functions();
    let aggregates = datafusion::functions_aggregate::all_default_aggregate_functions();
    let nested = datafusion::functions_nested::all_default_nested_functions();
    let windows = datafusion::functions_window::all_default_window_functions();
    let mut names: Vec<String> = Vec::new();
    names.extend(scalars.iter().map(|function| function.name().to_owned()));
    names.extend(aggregates.iter().map(|function| function.name().to_owned()));
    names.extend(nested.iter().map(|function| function.name().to_owned()));
    names.extend(windows.iter().map(|function| function.name().to_owned()));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

    use super::*;
    use crate::SqlCompiler;

    fn schema() -> Schema {
        let tags = Field::new("item", DataType::Utf8, true);
        Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("earlier", DataType::Date32, true),
            Field::new("later", DataType::Date32, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            Field::new("item", DataType::Utf8, true),
            Field::new("price", DataType::Float64, true),
            Field::new("qty", DataType::Int64, true),
            Field::new("tags", DataType::List(Arc::new(tags)), true),
        ])
    }

    /// Each answer is SQL that compiles, or an aggregate, which a query takes.
    #[test]
    fn answers_are_sql() {
        let compiler = SqlCompiler::default();
        for function in FOREIGN_FUNCTIONS {
            let Err(fault) = compiler.expression(function.sql, &schema()) else {
                continue;
            };
            let text = fault.message();
            let is_aggregate = text.contains("is computed over several rows");
            assert!(is_aggregate, "{}: {text}", function.name);
        }
    }

    #[test]
    fn names_are_none_of_sql() {
        let names = sql_functions();
        assert!(names.len() > 200, "{}", names.len());
        let mut last = "";
        for function in FOREIGN_FUNCTIONS {
            assert!(last < function.name, "{}", function.name);
            assert!(
                !names.iter().any(|name| name == function.name),
                "{}",
                function.name
            );
            last = function.name;
        }
    }

    #[test]
    fn unknown_functions_are_answered() {
        let compiler = SqlCompiler::default();
        let fault = compiler.expression("year(day)", &schema()).err().unwrap();
        assert_eq!(fault.hint_text(), Some("write `date_part('year', day)`"));
    }
}
