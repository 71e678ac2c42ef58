//! The common part of all steps over series: one window operation with everything that a step computes.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use forebay_model::{DuplicateRows, Fault, Result, codes, type_words};
use forebay_plan::{BindScope, ColumnSelector, PlanOp, WindowOp};
use forebay_window as window;
use forebay_window::{
    DuplicateCheck, SeriesFrame, WindowFunction, WindowInput, WindowOutput, WindowPlan,
    WordEncoding,
};

use super::length::{LengthSpec, TimeColumn};
use super::{FloatType, GapPolicy, SeriesStatistic};
use crate::shared::bad_value;

/// The window operation of one step while it is put together.
pub(super) struct WindowOpBuilder<'a> {
    scope: &'a BindScope<'a>,
    step: &'static str,
    pub time: TimeColumn,
    keys: Vec<(String, DataType)>,
    gaps: Option<&'a GapPolicy>,
    counts_rows: bool,
    reads: Vec<String>,
    inputs: Vec<WindowInput>,
    functions: Vec<WindowOutput>,
    writes: Vec<Field>,
}

/// Options of a statistic of a column.
pub(super) struct StatisticOptions {
    pub frame: SeriesFrame,
    /// The length that tells the unit of slopes and distances.
    pub measure: LengthSpec,
    pub min_periods: u64,
    pub ddof: u8,
    pub dtype: FloatType,
}

impl<'a> WindowOpBuilder<'a> {
    /// Finds the time and the keys, declared here or by the source.
    pub fn new(
        scope: &'a BindScope<'a>,
        step: &'static str,
        time: &Option<String>,
        keys: &Option<Vec<String>>,
        gaps: Option<&'a GapPolicy>,
    ) -> Result<Self> {
        let time = time_column(scope, step, time)?;
        let Some(names) = keys.as_ref().or(scope.series.keys.as_ref()) else {
            return Err(Fault::new(
                codes::MISSING_FIELD,
                format!("`{step}` needs the columns that tell series apart"),
            )
            .hint("declare `keys` at the source or here; `keys: []` makes all rows one series"));
        };
        let mut keys = Vec::new();
        for name in names {
            let field = scope.field(name)?;
            if field.data_type().is_nested() {
                let message = format!(
                    "`{name}` is {}, which cannot tell series apart",
                    type_words(field.data_type())
                );
                return Err(Fault::new(codes::COLUMN_TYPE, message).column(name));
            }
            keys.push((name.clone(), field.data_type().clone()));
        }
        let (reads, inputs, functions, writes) = Default::default();
        Ok(WindowOpBuilder {
            scope,
            step,
            time,
            keys,
            gaps,
            counts_rows: false,
            reads,
            inputs,
            functions,
            writes,
        })
    }

    /// Columns that can be computed with.
    pub fn computable_columns(&self, columns: &ColumnSelector) -> Result<Vec<&'a Field>> {
        self.scope
            .typed_columns(columns, "a number or boolean", |field| {
                field.data_type().is_numeric() || *field.data_type() == DataType::Boolean
            })
    }

    /// Columns that statistics can be taken of: those that only copy or count values take any type.
    pub fn columns_of_statistics(
        &self,
        columns: &ColumnSelector,
        statistics: &[SeriesStatistic],
    ) -> Result<Vec<&'a Field>> {
        if statistics
            .iter()
            .all(|statistic| statistic.takes_any_type())
        {
            self.copyable_columns(columns)
        } else {
            self.computable_columns(columns)
        }
    }

    /// Columns whose values can be copied from row to row.
    pub fn copyable_columns(&self, columns: &ColumnSelector) -> Result<Vec<&'a Field>> {
        let requirement = "of a type whose values can be copied";
        self.scope.typed_columns(columns, requirement, |field| {
            WordEncoding::of_copies(field.data_type()).is_some()
        })
    }

    /// A length as the plan has it.
    pub fn length(&mut self, length: LengthSpec) -> Result<window::SeriesLength> {
        self.counts_rows |= length.is_rows();
        length.of(&self.time)
    }

    /// A length back from the row, which is not the row itself.
    pub fn lookback_length(&mut self, by: LengthSpec) -> Result<window::SeriesLength> {
        if by.is_zero() {
            return Err(bad_value(format!("`by: {by}` is the row itself")));
        }
        self.length(by)
    }

    /// A gap beside a length of the same kind.
    pub fn gap(
        &mut self,
        gap: Option<LengthSpec>,
        length: LengthSpec,
        name: &str,
    ) -> Result<window::SeriesLength> {
        match gap.filter(|gap| !gap.is_zero()) {
            None => Ok(window::SeriesLength::ZERO),
            Some(gap) if gap.is_rows() != length.is_rows() => {
                let message = format!(
                    "`gap: {gap}` and `{name}: {length}` are not both rows or both lengths of time"
                );
                let fault = bad_value(message);
                if length.is_rows() {
                    Err(fault.hint("write both as numbers of rows, such as `gap: 1`"))
                } else {
                    Err(fault.hint("write both as lengths of time, such as `gap: 1d`"))
                }
            }
            Some(gap) => self.length(gap),
        }
    }

    /// Names of the columns that tell series apart.
    pub fn key_names(&self) -> Vec<String> {
        self.keys.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Says that rows are counted.
    pub fn count_rows(&mut self) {
        self.counts_rows = true;
    }

    /// Adds a column that functions read.
    pub fn add_input(&mut self, field: &Field, keep: WordEncoding) -> usize {
        let input = WindowInput {
            data_type: field.data_type().clone(),
            keep,
        };
        let index = self
            .reads
            .iter()
            .zip(&self.inputs)
            .position(|(name, existing)| name == field.name() && *existing == input);
        if let Some(index) = index {
            return index;
        }
        self.reads.push(field.name().clone());
        self.inputs.push(input);
        self.reads.len() - 1
    }

    /// Adds an output that copies values of a column.
    pub fn add_copy(&mut self, field: &Field, name: String, compute: WindowFunction) {
        let keep = WordEncoding::of_copies(field.data_type()).unwrap_or(WordEncoding::Number);
        let input = self.add_input(field, keep);
        self.add_output(input, compute, name, field.data_type().clone());
    }

    /// Adds an output.
    pub fn add_output(
        &mut self,
        input: usize,
        compute: WindowFunction,
        name: String,
        data_type: DataType,
    ) {
        self.writes.push(Field::new(name, data_type.clone(), true));
        self.functions.push(WindowOutput {
            input,
            compute,
            data_type,
        });
    }

    /// Adds a statistic of a column.
    pub fn add_statistic(
        &mut self,
        field: &Field,
        statistic: SeriesStatistic,
        name: String,
        options: &StatisticOptions,
    ) -> Result<()> {
        let unit = match options.measure {
            LengthSpec::Time(_) | LengthSpec::Steps(_) if statistic.measures() => {
                Some(options.measure.unit().ticks(&self.time)?)
            }
            _ => None,
        };
        self.counts_rows |= statistic.measures() && unit.is_none();
        let stat = statistic.of(options.ddof, unit)?;
        let compute = WindowFunction::Window {
            frame: options.frame,
            stat,
            min_periods: options.min_periods,
        };
        let data_type = statistic.data_type(field.data_type(), options.dtype, unit.is_none());
        if statistic.copies() {
            self.add_copy(field, name, compute);
        } else {
            let input = self.add_input(field, statistic_encoding(field.data_type()));
            self.add_output(input, compute, name, data_type);
        }
        Ok(())
    }

    /// The operation, whose new columns must not exist yet.
    pub fn finish(self) -> Result<Vec<PlanOp>> {
        for field in &self.writes {
            self.refuse_clash(field.name())?;
        }
        Ok(vec![PlanOp::Window(self.build_window()?)])
    }

    /// Refuses a new column that exists already.
    pub fn refuse_clash(&self, name: &str) -> Result<()> {
        if self.scope.schema.field_with_name(name).is_ok() {
            return Err(self.name_clash_fault(name));
        }
        Ok(())
    }

    /// Refuses new columns that replace the time or a key.
    pub fn refuse_series_columns<'n>(
        &self,
        names: impl IntoIterator<Item = &'n String>,
    ) -> Result<()> {
        for name in names {
            if *name == self.time.name || self.keys.iter().any(|(key, _)| key == name) {
                return Err(self.name_clash_fault(name));
            }
        }
        Ok(())
    }

    fn name_clash_fault(&self, name: &str) -> Fault {
        Fault::new(
            codes::COLUMN_CLASH,
            format!("`{}` writes `{name}`, which exists already", self.step),
        )
        .column(name)
        .hint("rename the old one, or drop it before this step")
    }

    /// The operation, whose outputs may replace what it reads.
    pub fn build_window(self) -> Result<WindowOp> {
        if self.counts_rows && self.gaps.is_none() {
            let message = format!(
                "`{}` counts rows: say what a missing period of a series means",
                self.step
            );
            return Err(Fault::new(codes::MISSING_FIELD, message).hint(
                "set `gaps: count_rows`, or declare the period: `gaps: { error: { every: 1d } }`, \
                 `warn` or `complete`",
            ));
        }
        self.refuse_series_columns(self.writes.iter().map(Field::name))?;
        let gaps = self
            .gaps
            .map_or(Ok(window::GapHandling::CountRows), |gaps| {
                gaps.to_window_gaps(&self.time)
            })?;
        let (names, keys): (Vec<String>, Vec<DataType>) = self.keys.into_iter().unzip();
        let inputs = self.inputs;
        let functions = self.functions;
        let by_time = functions.iter().any(|output| output.compute.is_by_time());
        let duplicates = DuplicateCheck {
            policy: duplicate_policy(self.scope, &self.time.name, &names, by_time),
            keys: names.clone(),
            time: self.time.name.clone(),
        };
        let plan = WindowPlan {
            time: self.time.data_type,
            keys,
            inputs,
            functions,
            gaps,
            duplicates,
        };
        let reads = self.reads;
        let writes = self.writes;
        Ok(WindowOp {
            time: self.time.name,
            keys: names,
            reads,
            writes,
            plan: Arc::new(plan),
            backward: false,
            division: 0,
        })
    }
}

/// Treatment of rows with equal keys and times: that of the source; else they are refused by steps by time, and windows
/// by rows warn of them. A step that names other series than its source does may put rows of many of these together, and
/// warns.
pub(crate) fn duplicate_policy(
    scope: &BindScope<'_>,
    time: &str,
    keys: &[String],
    by_time: bool,
) -> DuplicateRows {
    let series = scope.series;
    let has_other_keys = series
        .keys
        .as_ref()
        .is_some_and(|declared| declared != keys);
    let has_other_time = series
        .time
        .as_ref()
        .is_some_and(|declared| declared != time);
    let by_default = if by_time {
        DuplicateRows::Error
    } else {
        DuplicateRows::Warn
    };
    let policy = series.duplicates.unwrap_or(by_default);
    if has_other_keys || has_other_time {
        policy.min(DuplicateRows::Warn)
    } else {
        policy
    }
}

/// Leaves the columns that were there and the new ones, so that helpers are hidden.
pub(crate) fn hide_helper_columns(
    scope: &BindScope<'_>,
    new: impl IntoIterator<Item = String>,
) -> PlanOp {
    let mut names: Vec<String> = scope
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    for name in new {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    PlanOp::keep_columns(names)
}

/// The event-time column, declared here or by the source.
pub(crate) fn time_column(
    scope: &BindScope<'_>,
    step: &str,
    time: &Option<String>,
) -> Result<TimeColumn> {
    let Some(name) = time.as_ref().or(scope.series.time.as_ref()) else {
        return Err(Fault::new(
            codes::MISSING_FIELD,
            format!("`{step}` needs the event-time column"),
        )
        .hint("declare `time` at the source or here"));
    };
    let field = scope.field(name)?;
    if !TimeColumn::is_time_type(field.data_type()) {
        let message = format!(
            "`{name}` is {}, not a date, timestamp or signed integer",
            type_words(field.data_type())
        );
        return Err(Fault::new(codes::COLUMN_TYPE, message)
            .column(name)
            .hint("`cast` it before this step"));
    }
    Ok(TimeColumn {
        name: name.clone(),
        data_type: field.data_type().clone(),
    })
}

/// Encoding of values of a type, to compute with them, or to count those that are no numbers.
fn statistic_encoding(data_type: &DataType) -> WordEncoding {
    if data_type.is_numeric() || *data_type == DataType::Boolean {
        return WordEncoding::Number;
    }
    WordEncoding::of_copies(data_type).unwrap_or(WordEncoding::Number)
}

/// A fault for a list of the configuration that is empty.
pub(super) fn require_not_empty<T>(list: &[T], name: &str) -> Result<()> {
    if list.is_empty() {
        Err(bad_value(format!("`{name}` is empty")))
    } else {
        Ok(())
    }
}
