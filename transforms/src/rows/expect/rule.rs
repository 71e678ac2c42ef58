//! The rules of `expect`, bound to columns.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};
use forebay_analyze::{ColumnCounts, ColumnMoments, TokenVocabulary, VocabularyOrder};
use forebay_model::{Fault, Finding, Result, codes, tick_nanoseconds};
use forebay_plan::{
    AnalyzerRequest, BindScope, DriftBaseline, DriftRule, Expectation, ExpectationJudge,
    ExpectationOutcome, JudgeFindings, ViolatingValue, sql_literal, sql_name,
};

use super::{
    ExpectedDrift, ExpectedRows, ExpectedValue, FailurePolicy, JudgedRows, RowExpectation,
};
use crate::columns::profile_requests;
use crate::shared::bad_value;
use crate::time::{LengthSpec, TimeColumn};

/// Values that a fault names.
const EXAMPLES: usize = 10;

/// Letters of a value that are kept.
const VALUE_LETTERS: usize = 200;

/// What divides the values of a key, and what stands for null in it.
const DIVIDER: char = '\u{1f}';
const NULL: char = '\u{1e}';

/// A rule and what it asks.
pub(super) struct BoundExpectation {
    /// An expression whose value, where it is not null, is the text of what the rule looks at in a row: what violates it,
    /// for a rule about single rows.
    pub column: Option<String>,
    /// What is asked: of the column of violations, where there is one.
    pub asks: Vec<AnalyzerRequest>,
    pub expectation: Expectation,
}

/// A value in SQL, for a column of this type.
fn literal(value: &ExpectedValue, data_type: &DataType) -> String {
    match value {
        ExpectedValue::Boolean(value) => value.to_string(),
        ExpectedValue::Integer(value) => value.to_string(),
        // Whole doubles keep their point.
        ExpectedValue::Number(value) => format!("CAST('{value:?}' AS DOUBLE)"),
        ExpectedValue::Text(text) => sql_literal(text, data_type),
    }
}

/// The value of a column as a text of bounded length.
fn value_text(name: &str) -> String {
    format!("left(CAST({} AS VARCHAR), {VALUE_LETTERS})", sql_name(name))
}

impl RowExpectation {
    /// The rule for each of its columns.
    pub(super) fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<BoundExpectation>> {
        let given = [
            !self.not_null.is_empty(),
            !self.unique.is_empty(),
            !self.range.is_empty(),
            !self.in_set.is_empty(),
            self.sql.is_some(),
            self.rows.is_some(),
            !self.fresh.is_empty(),
            self.drift.is_some(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            let hint = "write one of not_null, unique, range, in_set, sql, rows, fresh and drift in each item";
            return Err(bad_value("an item of `expect` has one rule").hint(hint));
        }
        let is_per_row = self.rows.is_none() && self.fresh.is_empty() && self.drift.is_none();
        if self.policy == FailurePolicy::Quarantine && !(is_per_row && self.unique.is_empty()) {
            let hint = "quarantine rows by not_null, range, in_set or sql; here, write `policy: fail` or `policy: warn`";
            return Err(bad_value("this rule does not tell which rows to take out").hint(hint));
        }
        if self.at_most.is_some() && !is_per_row {
            return Err(bad_value(
                "`at_most` is a share of rows, and this rule is about all of them",
            ));
        }
        let mut bound = Vec::new();
        for column in &self.not_null {
            scope.field(column)?;
            let sql = format!("CASE WHEN {} IS NULL THEN 'null' END", sql_name(column));
            bound.push(self.per_row(format!("not_null: {column}"), sql));
        }
        for (column, [least, greatest]) in &self.range {
            let data_type = scope.field(column)?.data_type();
            let name = sql_name(column);
            let below = least
                .as_ref()
                .map(|least| format!("{name} < {}", literal(least, data_type)));
            let above = greatest
                .as_ref()
                .map(|greatest| format!("{name} > {}", literal(greatest, data_type)));
            let outside: Vec<String> = below.into_iter().chain(above).collect();
            if outside.is_empty() {
                return Err(
                    bad_value(format!("the range of `{column}` has no bound")).column(column)
                );
            }
            let sql = format!(
                "CASE WHEN {} THEN {} END",
                outside.join(" OR "),
                value_text(column)
            );
            bound.push(self.per_row(format!("range: {column}"), sql));
        }
        for (column, values) in &self.in_set {
            let data_type = scope.field(column)?.data_type();
            if values.is_empty() {
                return Err(bad_value(format!("the set of `{column}` is empty")).column(column));
            }
            let values: Vec<String> = values
                .iter()
                .map(|value| literal(value, data_type))
                .collect();
            let (name, values) = (sql_name(column), values.join(", "));
            let sql = format!(
                "CASE WHEN {name} NOT IN ({values}) THEN {} END",
                value_text(column)
            );
            bound.push(self.per_row(format!("in_set: {column}"), sql));
        }
        if let Some(condition) = &self.sql {
            let compiled = scope.sql.condition(condition, scope.schema)?;
            let shown = compiled
                .reads
                .iter()
                .map(|name| format!("'{name}=', coalesce({}, 'null')", value_text(name)));
            let shown: Vec<String> = shown.collect();
            let text = if shown.is_empty() {
                "'false'".to_owned()
            } else {
                format!("concat({})", shown.join(", ' ', "))
            };
            bound.push(self.per_row(
                format!("sql: {condition}"),
                format!("CASE WHEN NOT ({condition}) THEN {text} END"),
            ));
        }
        if !self.unique.is_empty() {
            for column in &self.unique {
                scope.field(column)?;
            }
            bound.push(self.bind_unique());
        }
        if let Some(rows) = self.rows {
            bound.push(self.row_count(rows, scope)?);
        }
        for (column, age) in &self.fresh {
            bound.push(self.bind_fresh(column, *age, scope)?);
        }
        if let Some(drift) = &self.drift {
            for column in &drift.columns {
                bound.push(self.bind_drift(column, drift, scope)?);
            }
        }
        if self.r#where == JudgedRows::Future {
            bound = self.about_future(bound, scope)?;
        }
        Ok(bound)
    }

    /// The rules about the rows of the future.
    fn about_future(
        &self,
        rules: Vec<BoundExpectation>,
        scope: &BindScope<'_>,
    ) -> Result<Vec<BoundExpectation>> {
        if scope.future.is_none() {
            let hint = "put `expect` behind `future_rows`, and behind the join that brings what is planned";
            return Err(bad_value("there are no rows of the future here").hint(hint));
        }
        if self.policy == FailurePolicy::Quarantine || self.drift.is_some() {
            let hint = "leave `where: future` out, or write `policy: fail` or `policy: warn` with a rule of another kind";
            return Err(bad_value("this rule is about known rows alone").hint(hint));
        }
        let about_future = |mut rule: BoundExpectation| {
            let asks = rule.asks.into_iter();
            rule.asks = asks.map(AnalyzerRequest::of_future_rows).collect();
            rule.expectation.name += ", where: future";
            rule.expectation.of_future = true;
            rule
        };
        Ok(rules.into_iter().map(about_future).collect())
    }

    fn expectation(&self, name: String, judge: ExpectationJudge) -> Expectation {
        Expectation {
            of_future: false,
            name,
            policy: self.policy.into(),
            judge,
        }
    }

    /// A rule whose violations are the values of a column that are not null.
    fn per_row(&self, name: String, sql: String) -> BoundExpectation {
        let most = match (self.at_most, self.policy) {
            (Some(budget), _) => budget.0,
            (None, FailurePolicy::Quarantine) => 1.0,
            (None, FailurePolicy::Fail | FailurePolicy::Warn) => 0.0,
        };
        let judge: JudgeFindings = Arc::new(move |findings, _| {
            let [counts, values] = findings else {
                return Err(Fault::internal("a rule without its findings"));
            };
            let rows = counts.number("rows")?.unwrap_or(0.0);
            let violations = rows - counts.number("nulls")?.unwrap_or(0.0);
            Ok(ExpectationOutcome {
                holds: violations <= most * rows,
                rows: rows as u64,
                violations: violations as u64,
                found: String::new(),
                examples: violating_values(values)?,
            })
        });
        BoundExpectation {
            column: Some(sql),
            asks: asks_of_violations(1),
            expectation: self.expectation(name, ExpectationJudge::Rows(judge)),
        }
    }

    /// Keys that come more than once.
    fn bind_unique(&self) -> BoundExpectation {
        let part =
            |name: &String| format!("coalesce(CAST({} AS VARCHAR), '{NULL}')", sql_name(name));
        let parts: Vec<String> = self.unique.iter().map(part).collect();
        let sql = format!("concat({})", parts.join(&format!(", '{DIVIDER}', ")));
        let judge: JudgeFindings = Arc::new(move |findings, _| {
            let [counts, keys] = findings else {
                return Err(Fault::internal("a rule without its findings"));
            };
            let mut examples = violating_values(keys)?;
            for example in &mut examples {
                example.value = example.value.replace(DIVIDER, ", ").replace(NULL, "null");
            }
            Ok(ExpectationOutcome {
                holds: examples.is_empty(),
                rows: counts.number("rows")?.unwrap_or(0.0) as u64,
                violations: 0,
                found: if examples.is_empty() {
                    String::new()
                } else {
                    "keys that come several times".to_owned()
                },
                examples,
            })
        });
        BoundExpectation {
            column: Some(sql),
            asks: asks_of_violations(2),
            expectation: self.expectation(
                format!("unique: {}", self.unique.join(", ")),
                ExpectationJudge::Whole(judge),
            ),
        }
    }

    fn row_count(&self, expected: ExpectedRows, scope: &BindScope<'_>) -> Result<BoundExpectation> {
        let ExpectedRows { min, max, change } = expected;
        let number = match (min, max) {
            (Some(min), Some(max)) if min <= max => Some(format!("{min} to {max}")),
            (Some(min), None) => Some(format!("at least {min}")),
            (None, Some(max)) => Some(format!("at most {max}")),
            (None, None) if change.is_some() => None,
            _ => {
                return Err(bad_value(
                    "`rows` has a least number `min`, a greatest `max`, a `change`, or several",
                ));
            }
        };
        let change_text = change.map(|change| format!("within {} of the last run", change.within));
        let name = format!(
            "rows: {}",
            number
                .into_iter()
                .chain(change_text)
                .collect::<Vec<_>>()
                .join(", ")
        );
        let first = scope
            .schema
            .fields()
            .first()
            .ok_or_else(|| Fault::internal("rows without columns"))?
            .name()
            .clone();
        let judge: JudgeFindings = Arc::new(move |findings, context| {
            let [counts] = findings else {
                return Err(Fault::internal("a rule without its findings"));
            };
            let rows = counts.number("rows")?.unwrap_or(0.0) as u64;
            let last = context.last_rows.filter(|_| change.is_some());
            let is_near = match (change, last) {
                (Some(change), Some(last)) => {
                    rows.abs_diff(last) as f64 <= change.within.0 * last as f64
                }
                _ => true,
            };
            Ok(ExpectationOutcome {
                holds: is_near
                    && min.is_none_or(|min| rows >= min)
                    && max.is_none_or(|max| rows <= max),
                rows,
                found: match last {
                    Some(last) => format!("{rows} rows, {last} in the last run"),
                    None => format!("{rows} rows"),
                },
                ..ExpectationOutcome::default()
            })
        });
        Ok(BoundExpectation {
            column: None,
            asks: vec![AnalyzerRequest::new(ColumnCounts, [first]).per_run()],
            expectation: self.expectation(name, ExpectationJudge::Whole(judge)),
        })
    }

    fn bind_fresh(
        &self,
        column: &str,
        age: LengthSpec,
        scope: &BindScope<'_>,
    ) -> Result<BoundExpectation> {
        let field = scope.field(column)?;
        let Some(tick) = tick_nanoseconds(field.data_type()) else {
            let message = format!(
                "`{column}` is {}, and only a date or a timestamp has an age",
                field.data_type()
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(column));
        };
        let time = TimeColumn {
            name: column.to_owned(),
            data_type: field.data_type().clone(),
        };
        let most = i128::from(age.ticks(&time)?) * tick;
        let judge: JudgeFindings = Arc::new(move |findings, context| {
            let [moments] = findings else {
                return Err(Fault::internal("a rule without its findings"));
            };
            let rows = moments.number("count")?.unwrap_or(0.0) as u64;
            let last = moments.number("max")?.map(|ticks| ticks as i128 * tick);
            let age = last.map(|last| context.now - last);
            let found = match age {
                Some(age) => format!("the last time is {:.1} days old", age as f64 / 86_400e9),
                None => "there is no time".to_owned(),
            };
            let holds = age.is_some_and(|age| age <= most);
            Ok(ExpectationOutcome {
                holds,
                rows,
                found,
                ..ExpectationOutcome::default()
            })
        });
        Ok(BoundExpectation {
            column: None,
            asks: vec![AnalyzerRequest::new(ColumnMoments, [column]).per_run()],
            expectation: self.expectation(
                format!("fresh: {column} within {age}"),
                ExpectationJudge::Whole(judge),
            ),
        })
    }

    /// The profile of a column, and that of the part that it is compared with.
    fn bind_drift(
        &self,
        column: &str,
        drift: &ExpectedDrift,
        scope: &BindScope<'_>,
    ) -> Result<BoundExpectation> {
        let ExpectedDrift {
            of,
            against,
            js,
            missing,
            ..
        } = drift;
        let field = scope.field(column)?;
        let requests = |part: Option<&str>| {
            let requests = profile_requests(field).into_iter();
            requests
                .map(|request| request.per_run_of_part(part))
                .collect::<Vec<_>>()
        };
        let mut asks = requests(of.as_deref());
        let baseline = DriftBaseline::parse(against);
        if let DriftBaseline::Part(part) = &baseline {
            asks.extend(requests(Some(part)));
        }
        let rule = DriftRule {
            field: field.clone(),
            against: baseline,
            js: js.0,
            missing: missing.0,
        };
        let rows = of
            .as_ref()
            .map_or_else(String::new, |part| format!("{part} "));
        Ok(BoundExpectation {
            column: None,
            asks,
            expectation: self.expectation(
                format!("drift: {column} {rows}against {against}"),
                ExpectationJudge::Drift(rule),
            ),
        })
    }
}

/// Counts of rows and of those without a violation, and the most frequent violations.
fn asks_of_violations(min_count: u64) -> Vec<AnalyzerRequest> {
    let none: [&str; 0] = [];
    vec![
        AnalyzerRequest::new(ColumnCounts, none).per_run(),
        AnalyzerRequest::new(frequent(min_count), none).per_run(),
    ]
}

/// The most frequent values.
fn frequent(min_count: u64) -> TokenVocabulary {
    TokenVocabulary {
        min_count,
        top_k: Some(EXAMPLES),
        order: VocabularyOrder::CountThenValue,
    }
}

fn violating_values(finding: &Finding) -> Result<Vec<ViolatingValue>> {
    let tokens = cast(finding.column("token")?, &DataType::Utf8)?;
    let tokens: &StringArray = tokens.as_string();
    let counts = finding.column("count")?.as_primitive::<UInt64Type>();
    let values = tokens.iter().zip(counts.values());
    Ok(values
        .map(|(value, rows)| ViolatingValue {
            value: value.unwrap_or_default().to_owned(),
            rows: *rows,
        })
        .collect())
}
