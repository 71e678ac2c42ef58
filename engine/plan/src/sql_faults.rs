//! Faults of SQL in the words of specs: the error, the wrong words, and the remedy.

use arrow::datatypes::{DataType, Schema};
use datafusion::common::{DataFusionError, SchemaError};
use forebay_model::{Fault, codes, without_debug_text};

use crate::column_selector::{COLUMNS_LIST, unknown_column};
use crate::cut_texts::CUT_TEXT;
use crate::date_hours::{DATE_HOURS, TICK_PARTS};
use crate::other_rows::subquery_fault;
use crate::sql_names::foreign_function;

/// Characters of SQL that a message shows.
const SQL_SHOWN_MAX: usize = 80;

/// A fault of an expression over some columns.
pub(crate) fn expression_fault(text: &str, schema: &Schema, error: &DataFusionError) -> Fault {
    if let DataFusionError::Plan(message) = error.find_root()
        && message.starts_with("table '")
    {
        // An expression names tables in a query inside it alone.
        return subquery_fault();
    }
    let unknown = |name: &str| {
        let fault = unknown_column(name, schema);
        match column_meant(text, name) {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    };
    known_fault(text, "expression", error, &unknown).unwrap_or_else(|| {
        let reason = planner_reason(error);
        Fault::new(
            codes::EXPRESSION,
            format!("`{}` is not a valid expression: {reason}", shown(text)),
        )
    })
}

/// Hint about a name that SQL takes for a column: a value of another language, or text in double
/// quotes.
fn column_meant(text: &str, name: &str) -> Option<String> {
    if text.contains(&format!("\"{name}\"")) {
        return Some(format!(
            "double quotes hold names of columns; write text in single quotes: '{name}'"
        ));
    }
    ["None", "nil", "undefined"]
        .contains(&name)
        .then(|| "write `IS NULL` or `IS NOT NULL`".to_owned())
}

/// A fault of a query.
pub(crate) fn query_fault(query: &str, error: &DataFusionError) -> Fault {
    let columns = valid_columns(error);
    let unknown = |name: &str| {
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let fault = Fault::new(
            codes::UNKNOWN_COLUMN,
            format!("there is no column `{name}` in this query"),
        )
        .column(name);
        fault.suggest(name, names, COLUMNS_LIST)
    };
    known_fault(query, "query", error, &unknown).unwrap_or_else(|| {
        let reason = planner_reason(error);
        Fault::new(
            codes::EXPRESSION,
            format!("the query `{}` is not valid: {reason}", shown(query)),
        )
    })
}

/// SQL in one line, shortened.
pub(crate) fn shown(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(SQL_SHOWN_MAX)
        .collect()
}

/// The names that a query could have used.
fn valid_columns(error: &DataFusionError) -> Vec<String> {
    let mut names = Vec::new();
    if let DataFusionError::SchemaError(error, _) = error.find_root()
        && let SchemaError::FieldNotFound { valid_fields, .. } = error.as_ref()
    {
        for field in valid_fields
            .iter()
            .filter(|field| !field.name.contains('('))
        {
            if !names.contains(&field.name) {
                names.push(field.name.clone());
            }
        }
    }
    names
}

/// Fault for a recognised error; `noun` names the kind of text.
fn known_fault(
    text: &str,
    noun: &str,
    error: &DataFusionError,
    unknown: &dyn Fn(&str) -> Fault,
) -> Option<Fault> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => schema_fault(error, unknown),
        DataFusionError::SQL(error, _) => Some(syntax_fault(text, noun, &error.to_string())),
        DataFusionError::Plan(message) | DataFusionError::NotImplemented(message) => {
            plan_fault(text, message)
        }
        DataFusionError::ArrowError(error, _) => {
            let message = error.to_string();
            let value = between(&message, "Cannot cast string '", "'")?;
            let expected = message
                .rsplit("value of ")
                .next()
                .unwrap_or_default()
                .trim_end_matches(" type");
            let fault = Fault::new(
                codes::EXPRESSION,
                format!("`{value}` is not {}", type_words(expected)),
            );
            let fault = fault.fragment(value, 0);
            Some(match parameter_meant(value) {
                Some(name) => fault.hint(format!("parameters are written `${{{name}}}`")),
                None => fault,
            })
        }
        _ => None,
    }
}

fn schema_fault(error: &SchemaError, unknown: &dyn Fn(&str) -> Fault) -> Option<Fault> {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            Some(unknown(&field.name).fragment(&field.name, 0))
        }
        SchemaError::AmbiguousReference { field } => {
            let name = &field.name;
            let fault = Fault::new(
                codes::EXPRESSION,
                format!("`{name}` is a column of several tables of this query"),
            );
            Some(
                fault
                    .fragment(name, 0)
                    .hint(format!("write the table before it: `table.{name}`")),
            )
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            let fault = Fault::new(
                codes::COLUMN_CLASH,
                format!("two columns would be called `{name}`"),
            );
            Some(
                fault
                    .fragment(name.as_str(), 0)
                    .hint("rename one of them: `... AS other_name`"),
            )
        }
    }
}

/// A fault of the parser: `sql parser error: Expected: ), found: AS at Line: 1, Column: 23`.
fn syntax_fault(text: &str, noun: &str, message: &str) -> Fault {
    let message = message.trim_start_matches("sql parser error: ");
    let position = between(message, " at Line: ", ", Column: ").and_then(|line| {
        let column = message.rsplit("Column: ").next()?.trim();
        Some((line.parse::<usize>().ok()?, column.parse::<usize>().ok()?))
    });
    let reason = message
        .split(" at Line: ")
        .next()
        .unwrap_or(message)
        .replace("Expected: ", "expected ");
    let ended = reason.ends_with("found: EOF");
    let reason = reason
        .replace(", found: EOF", "")
        .replace(", found: ", ", found ");
    let subject = match noun {
        "query" => format!("the query `{}` is not valid", shown(text)),
        _ => format!("`{}` is not a valid {noun}", shown(text)),
    };
    if ended {
        let fault = Fault::new(
            codes::EXPRESSION,
            format!("{subject}: it ends where {} is missing", missing(&reason)),
        );
        let last = text.split_whitespace().next_back().unwrap_or_default();
        let opens = text.matches('(').count() > text.matches(')').count();
        let fault = fault.fragment(last, text.matches(last).count().saturating_sub(1));
        return if opens {
            fault.hint("close the `(`; inside { } and [ ], quote SQL that has commas")
        } else {
            fault
        };
    }
    let fault = Fault::new(codes::EXPRESSION, format!("{subject}: {reason}"));
    let Some((word, skip)) = position.and_then(|(line, column)| word_at(text, line, column)) else {
        return fault;
    };
    fault.fragment(word, skip)
}

/// `expected an expression` as something that is missing.
fn missing(reason: &str) -> String {
    let expected = reason.trim_start_matches("expected ");
    if expected.starts_with("an ") || expected.starts_with("a ") {
        expected.to_owned()
    } else {
        format!("`{expected}`")
    }
}

/// The word at a line and column from 1, and how often it occurs before.
fn word_at(text: &str, line: usize, column: usize) -> Option<(&str, usize)> {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(line.checked_sub(1)?)
        .map(str::len)
        .sum();
    let within = text[line_start..]
        .char_indices()
        .nth(column.checked_sub(1)?)?
        .0;
    let remainder = &text[line_start + within..];
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let width = match remainder.chars().next()? {
        first if is_part(first) => remainder
            .find(|letter| !is_part(letter))
            .unwrap_or(remainder.len()),
        first => first.len_utf8(),
    };
    let word = &remainder[..width];
    let earlier = text[..line_start + within]
        .match_indices(word)
        .filter(|(at, _)| {
            let outer = [
                text[..*at].chars().next_back(),
                text[at + word.len()..].chars().next(),
            ];
            !word.starts_with(is_part) || outer.into_iter().flatten().all(|letter| !is_part(letter))
        });
    Some((word, earlier.count()))
}

fn plan_fault(text: &str, message: &str) -> Option<Fault> {
    let fault = |message: String| Fault::new(codes::EXPRESSION, message);
    if let Some(name) = between(message, "Invalid function '", "'") {
        return Some(unknown_function(name));
    }
    if message.starts_with("Column in SELECT must be in GROUP BY") {
        let column = between(message, "column \"", "\"")?;
        let name = column.rsplit('.').next().unwrap_or(column);
        return Some(
            fault(format!("`{name}` is neither grouped nor aggregated"))
                .fragment(name, 0)
                .hint(format!(
                    "add it to GROUP BY, or write an aggregate such as `max({name})`"
                )),
        );
    }
    if text.contains("&&") && message.contains("PGOverlap") {
        let fault = fault(format!("`{}`: SQL has no operator `&&`", shown(text))).fragment("&&", 0);
        return Some(fault.hint("write AND"));
    }
    if message.starts_with(DATE_HOURS) {
        let fault = fault(format!("`{}` moves a date by hours", shown(text)));
        return Some(fault.hint(
            "cast the date, such as `CAST(day AS TIMESTAMP) + INTERVAL '36 hours'`, or move it by \
             whole days",
        ));
    }
    if message.starts_with(TICK_PARTS) {
        let text = shown(text);
        let fault = fault(format!("`{text}` moves a time by less than its unit"));
        return Some(fault.hint(
            "cast the time to a finer unit, such as `arrow_cast(t, 'Timestamp(us)')`, or move it \
             by whole ones",
        ));
    }
    if let Some(problem) = message.strip_prefix(CUT_TEXT) {
        let value = between(problem, "`", "`").unwrap_or_default();
        return Some(fault(problem.to_owned()).fragment(value, 0).hint(
            "write what the type holds: a date as DATE '2024-02-01', a time as \
             TIMESTAMP '2024-02-01 12:30:59'",
        ));
    }
    if message.starts_with("LIMIT without ORDER BY") {
        let limit = if text.contains("limit") {
            "limit"
        } else {
            "LIMIT"
        };
        return Some(
            fault("LIMIT without ORDER BY gives other rows from run to run".into())
                .fragment(limit, 0)
                .hint("add ORDER BY before it"),
        );
    }
    if let Some(types) = between(
        message,
        "Cannot coerce arithmetic expression ",
        " to valid types",
    ) {
        let mut parts = types.splitn(3, ' ');
        let left_type = parts.next()?;
        let operator = parts.next()?;
        let right = parts.next()?;
        return Some(
            fault(format!(
                "`{}`: {operator} does not take {} and {}",
                shown(text),
                type_words(left_type),
                type_words(right)
            ))
            .fragment(operator, 0)
            .hint("cast one side, such as `cast(... as double)`"),
        );
    }
    if let Some(types) = between(
        message,
        "Cannot infer common argument type for comparison operation ",
        "\n",
    )
    .or_else(|| message.strip_prefix("Cannot infer common argument type for comparison operation "))
    {
        let mut parts = types.splitn(3, ' ');
        let left_type = parts.next()?;
        let operator = parts.next()?;
        let right = parts.next()?;
        let sides = format!("{} and {}", type_words(left_type), type_words(right));
        let has_date = left_type.starts_with("Date") || right.starts_with("Date");
        let hint = if has_date && (left_type.contains("Int") || right.contains("Int")) {
            "write a date with quotes: DATE '2024-02-01'; without them, 2024-02-01 is a \
             subtraction"
        } else {
            "cast one side"
        };
        return Some(
            fault(format!("`{}`: {sides} cannot be compared", shown(text)))
                .fragment(operator, 0)
                .hint(hint),
        );
    }
    if let Some(name) = between(message, "Function '", "' expects ") {
        let remainder = message.split("' expects ").nth(1)?.lines().next()?;
        if let Some((expected, received)) = remainder.split_once(" but received ") {
            return Some(
                fault(format!(
                    "`{name}` takes {}, not {}",
                    type_words(expected),
                    type_words(received)
                ))
                .fragment(name, 0)
                .hint("cast the argument, such as `cast(... as double)`"),
            );
        }
        let reason = remainder.replace(" arguments but received ", " arguments, not ");
        return Some(fault(format!("`{name}` takes {reason}")).fragment(name, 0));
    }
    if let Some(call) = between(message, "argument types '", "'") {
        let (name, types) = call.split_once('(')?;
        let types: Vec<String> = types
            .trim_end_matches(')')
            .split(", ")
            .map(type_words)
            .collect();
        return Some(
            fault(format!("`{name}` does not take {}", types.join(" and "))).fragment(name, 0),
        );
    }
    None
}

/// The name in `{name}` and `$name`.
fn parameter_meant(value: &str) -> Option<&str> {
    let name = value
        .strip_prefix('$')
        .or_else(|| value.strip_prefix('{')?.strip_suffix('}'))?;
    (!name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_'))
    .then_some(name)
}

/// Fault for an unknown function.
fn unknown_function(name: &str) -> Fault {
    let fault =
        Fault::new(codes::EXPRESSION, format!("there is no function `{name}`")).fragment(name, 0);
    if let Some(function) = foreign_function(name) {
        return fault.hint(format!("write `{}`", function.sql));
    }
    let scalars = datafusion::functions::all_default_functions();
    let aggregates = datafusion::functions_aggregate::all_default_aggregate_functions();
    let names = scalars.iter().map(|function| function.name());
    let names = names.chain(aggregates.iter().map(|function| function.name()));
    fault
        .hint("`forebay schema --format markdown` lists the SQL functions")
        .suggest(name, names, "")
}

/// A type that DataFusion's messages name, in the words of messages.
fn type_words(name: &str) -> String {
    let name = name.trim();
    match name {
        "String" => "a string".to_owned(),
        "Numeric" => "numbers".to_owned(),
        _ => name.parse::<DataType>().map_or_else(
            |_| name.to_owned(),
            |data_type| forebay_model::type_words(&data_type),
        ),
    }
}

/// The first line of an error of the planner, without the names of its parts.
fn planner_reason(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let mut text = text.lines().next().unwrap_or_default().trim();
    const PREFIXES: [&str; 7] = [
        "Error during planning: ",
        "Schema error: ",
        "Arrow error: ",
        "Execution error: ",
        "This feature is not implemented: ",
        "type_coercion",
        "caused by",
    ];
    while let Some(remainder) = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        text = remainder.trim();
    }
    let mut letters = without_debug_text(text).chars();
    letters.next().map_or_else(
        || "the query engine does not take it".to_owned(),
        |first| first.to_lowercase().chain(letters).collect::<String>(),
    )
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let remainder = text.split_once(start)?.1;
    Some(remainder.split_once(end)?.0)
}
