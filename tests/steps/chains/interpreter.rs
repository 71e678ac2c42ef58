//! What a chain comes to: step by step over all rows, slowly, as the reference says it.
//!
//! An error means that the chain is not valid, or that what it comes to is not determined.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::chain::{ChainInput, RandomChain};
use super::config::StepConfigReader;
use super::expression;
use super::table::{CellTable, CellValue};
use super::{categorical, columns, numeric, relational, windows};

type ChainResult<T> = std::result::Result<T, String>;

/// The time and keys that a source declares.
#[derive(Debug, Clone, Default)]
pub struct SeriesDeclaration {
    pub time: Option<String>,
    pub keys: Vec<String>,
}

/// The tables of sources and steps so far.
#[derive(Default)]
pub struct InterpretedTables {
    pub tables: BTreeMap<String, CellTable>,
    pub series: BTreeMap<String, SeriesDeclaration>,
}

impl InterpretedTables {
    /// The sources of a chain, whose rows lie in files.
    pub fn of(chain: &RandomChain, files: usize) -> ChainResult<InterpretedTables> {
        let mut world = InterpretedTables::default();
        for source in &chain.sources {
            let mut table = source.in_reading_order(files);
            if let Some(split) = &chain.split {
                let condition = expression::parse(split, &table)?;
                for row in &mut table.rows {
                    row.fitted = condition.value(&row.cells)? == CellValue::Bool(true);
                }
            }
            world.tables.insert(source.name.clone(), table);
            world
                .series
                .insert(source.name.clone(), source.series.clone());
        }
        Ok(world)
    }

    /// The rows that a step of the pipeline begins with.
    pub fn input(&self, input: &ChainInput) -> ChainResult<(CellTable, SeriesDeclaration)> {
        let table = |name: &str| {
            self.tables
                .get(name)
                .ok_or_else(|| format!("no step {name}"))
        };
        Ok(match input {
            ChainInput::From(name) => (table(name)?.clone(), self.series[name].clone()),
            ChainInput::Union(names) => {
                let tables = names
                    .iter()
                    .map(|name| table(name))
                    .collect::<ChainResult<Vec<_>>>()?;
                (relational::union(&tables)?, self.series[&names[0]].clone())
            }
        })
    }
}

/// What the steps of a chain come to, where sources are cut into so many files.
pub fn interpret_chain(chain: &RandomChain, files: usize) -> ChainResult<InterpretedTables> {
    let mut world = InterpretedTables::of(chain, files)?;
    for node in &chain.nodes {
        let (mut table, series) = world.input(&node.input)?;
        for transform in &node.steps {
            table = step(transform, &table, &world, &series, node.fitted)?;
        }
        world.tables.insert(node.name.clone(), table);
        world.series.insert(node.name.clone(), series);
    }
    Ok(world)
}

/// The fields that a step has to have.
fn required(name: &str) -> &'static [&'static str] {
    match name {
        "lag" | "diff" | "pct_change" => &["columns", "by"],
        "rolling" => &["columns", "compute", "over"],
        "seasonal_rolling" => &["columns", "compute", "season", "over"],
        "seasonal_index" => &["columns", "period"],
        "expanding" | "ewm" | "pooled" => &["columns", "compute"],
        "bucketize" => &["columns", "q"],
        "apply_buckets" => &["columns", "boundaries"],
        "k_bins" => &["columns", "bins"],
        "impute" => &["columns", "with"],
        "date_parts" => &["columns", "parts"],
        "hash_bucket" | "cross" => &["columns", "buckets"],
        "select" | "drop" | "rename" | "filter" | "derive" => &[],
        "explode" => &["column"],
        "aggregate" => &["compute"],
        "dedupe" => &[],
        "join" => &["with", "on"],
        "as_of_join" => &["with"],
        _ => &["columns"],
    }
}

/// Applies one step. Without `fitted`, it learns from all rows.
pub fn step(
    step: &Json,
    table: &CellTable,
    world: &InterpretedTables,
    series: &SeriesDeclaration,
    fitted: bool,
) -> ChainResult<CellTable> {
    let (name, config) = step
        .as_object()
        .and_then(|step| step.iter().next())
        .ok_or("no step")?;
    let missing = |field: &&&str| {
        config
            .get(**field)
            .is_none_or(|value| value.as_array().is_some_and(Vec::is_empty))
    };
    if let Some(field) = required(name).iter().find(missing) {
        return Err(format!("{name} needs {field}"));
    }
    let output = |column: &Json| {
        format!(
            "{}{}",
            column.as_str().unwrap_or(""),
            config["suffix"].as_str().unwrap_or("")
        )
    };
    let suffixed = config
        .get("suffix")
        .and(config.get("columns"))
        .and_then(Json::as_array);
    if suffixed.is_some_and(|columns| columns.iter().any(|column| table.has(&output(column)))) {
        return Err("an output exists already".into());
    }
    let parts: Vec<bool> = table.rows.iter().map(|row| row.fitted).collect();
    let mut all = table.clone();
    if !fitted {
        all.rows.iter_mut().for_each(|row| row.fitted = true);
    }
    let table = &all;
    let config_ = StepConfigReader(config);
    let mut out = match name.as_str() {
        "select" => columns::select(config, table),
        "drop" => columns::drop(config, table),
        "rename" => columns::rename(config, table),
        "filter" => return columns::filter(config, &with_fitted_rows(table, &parts)),
        "derive" => columns::derive(config, table),
        "explode" => return columns::explode(config_, &with_fitted_rows(table, &parts)),
        "cast" => columns::cast_columns(config_, table),
        "date_parts" => columns::date_parts(config_, table),
        "clip" => numeric::clip(config_, table),
        "log1p" => numeric::log1p(config_, table),
        "standardize" => numeric::standardize(config_, table),
        "min_max" => numeric::min_max(config_, table),
        "robust_scale" => numeric::robust_scale(config_, table),
        "bucketize" => numeric::bucketize(config_, table),
        "apply_buckets" => numeric::apply_buckets(config_, table),
        "quantiles" => numeric::quantiles(config_, table),
        "k_bins" => numeric::k_bins(config_, table),
        "impute" => numeric::impute(config_, table),
        "hash_bucket" => categorical::hash_bucket(config_, table),
        "cross" => categorical::cross(config_, table),
        "vocabulary" => categorical::vocabulary(config_, table),
        "ordinal" => categorical::ordinal(config_, table),
        "one_hot" => categorical::one_hot(config_, table),
        "multi_hot" => categorical::multi_hot(config_, table),
        "lag" => windows::lag(config_, table, series),
        "diff" => windows::diff(config_, table, series),
        "pct_change" => windows::pct_change(config_, table, series),
        "rolling" => windows::rolling(config_, table, series),
        "expanding" => windows::expanding(config_, table, series),
        "seasonal_rolling" => windows::seasonal_rolling(config_, table, series),
        "seasonal_index" => windows::seasonal_index(config_, table, series),
        "ewm" => windows::ewm(config_, table, series),
        "fill_forward" => windows::fill_forward(config_, table, series),
        "interpolate" => windows::interpolate(config_, table, series),
        "pooled" => windows::pooled(config_, table, series),
        "aggregate" => return relational::aggregate(config_, table),
        "dedupe" => return relational::dedupe(config_, &with_fitted_rows(table, &parts)),
        "join" => return relational::join(config_, &with_fitted_rows(table, &parts), world),
        "as_of_join" => relational::as_of_join(config_, table, world, series),
        other => Err(format!("no transform {other}")),
    }?;
    out.rows
        .iter_mut()
        .zip(parts)
        .for_each(|(row, part)| row.fitted = part);
    Ok(out)
}

fn with_fitted_rows(table: &CellTable, parts: &[bool]) -> CellTable {
    let mut table = table.clone();
    table
        .rows
        .iter_mut()
        .zip(parts)
        .for_each(|(row, part)| row.fitted = *part);
    table
}
