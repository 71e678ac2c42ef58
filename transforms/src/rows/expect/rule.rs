//! The rules of `expect`, bound to columns.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, UInt64Type};
use forebay_analyze::{ColumnCounts, ColumnMoments, TokenVocabulary, VocabularyOrder};
use forebay_model::{Fault, Finding, Result, codes, tick_nanoseconds, type_words};
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

/// Separator of the values of a key, and the text that stands for null.
const DIVIDER: char = '\u{1f}';
const NULL: char = '\u{1e}';

/// A rule and what it asks.
pub(super) struct BoundExpectation {
    /// An expression whose value, where it is not null, is the text of what the rule looks at in a row: what violates it,
    /// for a rule about single rows.
    pub column: Option<String>,
    /// The request: of the column of violations, where there is one.
    pub asks: Vec<AnalyzerRequest>,
    pub expectation: Expectation,
    /// Rows that are not taken out, whatever they hold.
    pub passing: PassingRows,
}

/// Rows that a rule with `policy: quarantine` leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PassingRows {
    /// Those that satisfy it.
    None,
    /// All rows, which are scored.
    All,
    /// Those that satisfy it, and rows from a time on, which are scored.
    From(String),
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
        self.check()?;
        let mut bound = Vec::new();
        for column in &self.not_null {
            scope.field(column)?;
            let sql = format!("CASE WHEN {} IS NULL THEN 'null' END", sql_name(column));
            bound.push(self.per_row(format!("not_null: {column}"), sql));
        }
        for (column, [least, greatest]) in &self.range {
            bound.push(self.bind_range(column, least.as_ref(), greatest.as_ref(), scope)?);
        }
        for (column, values) in &self.in_set {
            bound.push(self.bind_set(column, values, scope)?);
        }
        if let Some(condition) = &self.sql {
            bound.push(self.bind_sql(condition, scope)?);
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
        for rule in &mut bound {
            if self.of_labels.contains(&rule.expectation.name) {
                rule.expectation.passes_scored = true;
                rule.passing = match &self.history_until {
                    Some(time) => PassingRows::From(time.clone()),
                    None => PassingRows::All,
                };
            }
        }
        Ok(bound)
    }

    /// Refuses several rules in one item, and a policy that does not suit the rule.
    fn check(&self) -> Result<()> {
        let rule_kinds = [
            !self.not_null.is_empty(),
            !self.unique.is_empty(),
            !self.range.is_empty(),
            !self.in_set.is_empty(),
            self.sql.is_some(),
            self.rows.is_some(),
            !self.fresh.is_empty(),
            self.drift.is_some(),
        ];
        if rule_kinds.into_iter().filter(|is_set| *is_set).count() != 1 {
            let hint = "write one of not_null, unique, range, in_set, sql, rows, fresh and drift \
                        in each item";
            return Err(bad_value("an item of `expect` has one rule").hint(hint));
        }
        let is_per_row = self.rows.is_none() && self.fresh.is_empty() && self.drift.is_none();
        if self.policy == FailurePolicy::Quarantine && !(is_per_row && self.unique.is_empty()) {
            let hint = "quarantine rows by not_null, range, in_set or sql; here, write \
                        `policy: fail` or `policy: warn`";
            return Err(bad_value("this rule does not tell which rows to take out").hint(hint));
        }
        if self.at_most.is_some() && !is_per_row {
            return Err(bad_value(
                "`at_most` is a share of rows, and this rule is about all of them",
            ));
        }
        Ok(())
    }

    fn bind_range(
        &self,
        column: &str,
        least: Option<&ExpectedValue>,
        greatest: Option<&ExpectedValue>,
        scope: &BindScope<'_>,
    ) -> Result<BoundExpectation> {
        let data_type = scope.field(column)?.data_type();
        let name = sql_name(column);
        let mut outside = Vec::new();
        if let Some(least) = least {
            outside.push(format!("{name} < {}", literal(least, data_type)));
        }
        if let Some(greatest) = greatest {
            outside.push(format!("{name} > {}", literal(greatest, data_type)));
        }
        if outside.is_empty() {
            return Err(bad_value(format!("the range of `{column}` has no bound")).column(column));
        }
        let outside = outside.join(" OR ");
        let sql = format!("CASE WHEN {outside} THEN {} END", value_text(column));
        Ok(self.per_row(format!("range: {column}"), sql))
    }

    fn bind_set(
        &self,
        column: &str,
        values: &[ExpectedValue],
        scope: &BindScope<'_>,
    ) -> Result<BoundExpectation> {
        let data_type = scope.field(column)?.data_type();
        if values.is_empty() {
            return Err(bad_value(format!("the set of `{column}` is empty")).column(column));
        }
        let mut literals = Vec::with_capacity(values.len());
        for value in values {
            literals.push(literal(value, data_type));
        }
        let name = sql_name(column);
        let literals = literals.join(", ");
        let text = value_text(column);
        let sql = format!("CASE WHEN {name} NOT IN ({literals}) THEN {text} END");
        Ok(self.per_row(format!("in_set: {column}"), sql))
    }

    fn bind_sql(&self, condition: &str, scope: &BindScope<'_>) -> Result<BoundExpectation> {
        let compiled = scope.sql.condition(condition, scope.schema)?;
        let mut read_values = Vec::with_capacity(compiled.reads.len());
        for name in &compiled.reads {
            let value = value_text(name);
            read_values.push(format!("'{name}=', coalesce({value}, 'null')"));
        }
        let text = if read_values.is_empty() {
            "'false'".to_owned()
        } else {
            format!("concat({})", read_values.join(", ' ', "))
        };
        let sql = format!("CASE WHEN NOT ({condition}) THEN {text} END");
        Ok(self.per_row(format!("sql: {condition}"), sql))
    }

    /// The rules about the rows of the future.
    fn about_future(
        &self,
        mut rules: Vec<BoundExpectation>,
        scope: &BindScope<'_>,
    ) -> Result<Vec<BoundExpectation>> {
        if scope.future.is_none() {
            let hint = "put `expect` behind `future_rows`, and behind the join that brings what is \
                        planned";
            return Err(bad_value("there are no rows of the future here").hint(hint));
        }
        if self.policy == FailurePolicy::Quarantine || self.drift.is_some() {
            let hint = "leave `where: future` out, or write `policy: fail` or `policy: warn` with \
                        a rule of another kind";
            return Err(bad_value("this rule is about known rows alone").hint(hint));
        }
        for rule in &mut rules {
            let asks = std::mem::take(&mut rule.asks).into_iter();
            rule.asks = asks.map(AnalyzerRequest::of_future_rows).collect();
            rule.expectation.name += ", where: future";
            rule.expectation.of_future = true;
        }
        Ok(rules)
    }

    fn expectation(&self, name: String, judge: ExpectationJudge) -> Expectation {
        Expectation {
            of_future: false,
            passes_scored: false,
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
            passing: PassingRows::None,
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
            passing: PassingRows::None,
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
            passing: PassingRows::None,
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
                type_words(field.data_type())
            );
            return Err(Fault::new(codes::COLUMN_TYPE, message).column(column));
        };
        let time = TimeColumn {
            name: column.to_owned(),
            data_type: field.data_type().clone(),
        };
        let back = time.steps_back(age.distance(&time)?)?;
        let judge: JudgeFindings = Arc::new(move |findings, context| {
            let [moments] = findings else {
                return Err(Fault::internal("a rule without its findings"));
            };
            let rows = moments.number("count")?.unwrap_or(0.0) as u64;
            let last = moments.number("max")?.map(|ticks| ticks as i128 * tick);
            let age = last.map(|last| context.now - last);
            let age_text = match age {
                Some(age) => format!("the last time is {:.1} days old", age as f64 / 86_400e9),
                None => "there is no time".to_owned(),
            };
            let now = i64::try_from(context.now.div_euclid(tick)).unwrap_or(i64::MAX);
            let least = i128::from(back.before(now)) * tick;
            let holds = last.is_some_and(|last| last >= least + context.now.rem_euclid(tick));
            Ok(ExpectationOutcome {
                holds,
                rows,
                found: age_text,
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
            passing: PassingRows::None,
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
        let mut asks = profiles_of_part(field, of.as_deref());
        let baseline = DriftBaseline::parse(against);
        if let DriftBaseline::Part(part) = &baseline {
            asks.extend(profiles_of_part(field, Some(part)));
        }
        let rule = DriftRule {
            field: field.clone(),
            against: baseline,
            js: js.0,
            missing: missing.0,
        };
        let rows = match of {
            Some(part) => format!("{part} "),
            None => String::new(),
        };
        let name = format!("drift: {column} {rows}against {against}");
        Ok(BoundExpectation {
            column: None,
            asks,
            expectation: self.expectation(name, ExpectationJudge::Drift(rule)),
            passing: PassingRows::None,
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
    let mut values = Vec::new();
    for (value, rows) in tokens.iter().zip(counts.values()) {
        values.push(ViolatingValue {
            value: value.unwrap_or_default().to_owned(),
            rows: *rows,
        });
    }
    Ok(values)
}

fn profiles_of_part(field: &Field, part: Option<&str>) -> Vec<AnalyzerRequest> {
    let mut requests = Vec::new();
    for request in profile_requests(field) {
        requests.push(request.per_run_of_part(part));
    }
    requests
}
