//! Steps over categories: ids, indicator vectors, hashes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::columns::text_of;
use super::config::StepConfigReader;
use super::table::{CellKind, CellTable, CellValue, INT32, INT64, TypedColumn};

type ChainResult<T> = std::result::Result<T, String>;

/// A bucket below `buckets`: the hash as a share of its range.
fn hash_bucket_of(bytes: &[u8], seed: u64, buckets: u64) -> i128 {
    ((u128::from(xxh3_64_with_seed(bytes, seed)) * u128::from(buckets)) >> 64) as i128
}

/// The element's type of a list, or the type itself.
fn element(kind: &CellKind) -> &CellKind {
    if let CellKind::List(element) = kind {
        element
    } else {
        kind
    }
}

/// The texts in a cell.
fn texts(value: &CellValue, kind: &CellKind) -> ChainResult<Vec<String>> {
    match value {
        CellValue::Null => Ok(Vec::new()),
        CellValue::List(elements) => elements
            .iter()
            .filter(|e| !e.is_null())
            .map(|e| text_of(e, element(kind)))
            .collect(),
        _ => Ok(vec![text_of(value, kind)?]),
    }
}

/// How often each text occurs in the rows that are learned from.
fn counts(table: &CellTable, at: usize) -> ChainResult<BTreeMap<String, i64>> {
    let mut counts = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.fitted) {
        for text in texts(&row.cells[at], &table.columns[at].kind)? {
            *counts.entry(text).or_insert(0) += 1;
        }
    }
    Ok(counts)
}

/// Gives every text of a column a number; lists stay lists.
fn mapped(
    table: &mut CellTable,
    at: usize,
    output: String,
    id: CellKind,
    of: impl Fn(&str) -> ChainResult<CellValue>,
) -> ChainResult<()> {
    let kind = table.columns[at].kind.clone();
    let one = |value: &CellValue, kind: &CellKind| match value {
        CellValue::Null => Ok(CellValue::Null),
        value => of(&text_of(value, kind)?),
    };
    let mut values = Vec::new();
    for value in table.values(at) {
        values.push(match value {
            CellValue::List(elements) => CellValue::List(
                elements
                    .iter()
                    .map(|e| one(e, element(&kind)))
                    .collect::<ChainResult<Vec<_>>>()?,
            ),
            value => one(value, &kind)?,
        });
    }
    let kind = if matches!(kind, CellKind::List(_)) {
        CellKind::List(Box::new(id))
    } else {
        id
    };
    table.put(TypedColumn::new(output, kind), values);
    Ok(())
}

pub fn hash_bucket(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let buckets = config.whole("buckets").ok_or("no buckets")? as u64;
    let seed = config.whole("seed").unwrap_or(0) as u64;
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        mapped(&mut table, at, config.output(name), INT64, |text| {
            Ok(CellValue::Int(hash_bucket_of(
                text.as_bytes(),
                seed,
                buckets,
            )))
        })?;
    }
    Ok(table)
}

pub fn cross(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let names = config.texts("columns");
    let places = names
        .iter()
        .map(|name| table.find(name))
        .collect::<ChainResult<Vec<_>>>()?;
    if places.iter().collect::<BTreeSet<_>>().len() < 2 {
        return Err("one column is not crossed".into());
    }
    let buckets = config.whole("buckets").ok_or("no buckets")? as u64;
    let seed = config.whole("seed").unwrap_or(0) as u64;
    let mut values = Vec::new();
    for row in &table.rows {
        let mut bytes = Vec::new();
        for at in &places {
            if !row.cells[*at].is_null() {
                let text = text_of(&row.cells[*at], &table.columns[*at].kind)?;
                bytes.extend(xxh3_64(text.as_bytes()).to_le_bytes());
            }
        }
        let whole = bytes.len() == 8 * places.len();
        values.push(if whole {
            CellValue::Int(hash_bucket_of(&bytes, seed, buckets))
        } else {
            CellValue::Null
        });
    }
    let mut table = table.clone();
    let name = config
        .text("name")
        .map_or_else(|| names.join("_x_"), str::to_owned);
    if table.has(&name) {
        return Err(format!("{name} exists"));
    }
    table.put(TypedColumn::new(name, INT64), values);
    Ok(table)
}

pub fn vocabulary(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let mut tokens: Vec<(String, i64)> = counts(&table, at)?.into_iter().collect();
        tokens.retain(|(_, count)| *count >= config.whole("min_count").unwrap_or(1));
        // By text ascending as they come.
        let by_count = |tokens: &mut Vec<(String, i64)>| tokens.sort_by_key(|(_, count)| -count);
        match config.text("order") {
            Some("count_then_value") => by_count(&mut tokens),
            Some("value") => {
                if let Some(top) = config.whole("top_k") {
                    let mut ranked = tokens.clone();
                    by_count(&mut ranked);
                    tokens.retain(|token| {
                        ranked.iter().position(|known| known == token) < Some(top as usize)
                    });
                }
            }
            _ => {
                tokens.reverse();
                by_count(&mut tokens);
            }
        }
        tokens.truncate(config.whole("top_k").map_or(usize::MAX, |top| top as usize));
        let mut words: Vec<String> = config
            .texts("reserved")
            .into_iter()
            .map(str::to_owned)
            .collect();
        words.extend(
            tokens
                .into_iter()
                .map(|(token, _)| token)
                .filter(|token| !config.texts("reserved").contains(&token.as_str())),
        );
        let buckets = config.whole("oov_buckets").unwrap_or(0) as u64;
        let default = config.whole("default").unwrap_or(-1);
        let id = if config.text("dtype") == Some("int32") {
            INT32
        } else {
            INT64
        };
        mapped(&mut table, at, config.output(name), id, |text| {
            Ok(CellValue::Int(
                match words.iter().position(|word| word == text) {
                    Some(id) => id as i128,
                    None if buckets == 0 => default.into(),
                    None => words.len() as i128 + hash_bucket_of(text.as_bytes(), 0, buckets),
                },
            ))
        })?;
    }
    Ok(table)
}

pub fn ordinal(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let kind = table.columns[at].kind.clone();
        let words: Vec<String> = match config.get("categories") {
            Some(_) => config
                .texts("categories")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            None => {
                let seen = table
                    .rows
                    .iter()
                    .filter(|row| row.fitted)
                    .map(|row| row.cells[at].clone());
                let mut seen: Vec<CellValue> = seen.filter(|value| !value.is_null()).collect();
                seen.sort();
                seen.dedup();
                seen.iter()
                    .map(|value| text_of(value, &kind))
                    .collect::<ChainResult<_>>()?
            }
        };
        let unknown = config.get("unknown");
        let id = if config.text("dtype") == Some("int32") {
            INT32
        } else {
            INT64
        };
        mapped(&mut table, at, config.output(name), id, |text| {
            match (words.iter().position(|word| word == text), unknown) {
                (Some(id), _) => Ok(CellValue::Int(id as i128)),
                (None, Some(Json::String(word))) if word == "missing" => Ok(CellValue::Null),
                (None, Some(Json::Object(value))) => {
                    Ok(CellValue::Int(value["value"].as_i64().unwrap().into()))
                }
                _ => Err(format!("{text} is unknown")),
            }
        })?;
    }
    Ok(table)
}

/// The categories of `one_hot` and `multi_hot`, in byte order or as listed.
fn categories(
    config: StepConfigReader<'_>,
    counts: BTreeMap<String, i64>,
) -> ChainResult<Vec<String>> {
    if config.get("categories").is_some() {
        return Ok(config
            .texts("categories")
            .into_iter()
            .map(str::to_owned)
            .collect());
    }
    let mut ranked: Vec<(String, i64)> = counts.into_iter().collect();
    ranked.retain(|(_, count)| *count >= config.whole("min_count").unwrap_or(1));
    if let Some(top) = config.whole("top_k") {
        // By text ascending as they come: of equally frequent categories the first in byte order are kept.
        ranked.sort_by_key(|(_, count)| -count);
        ranked.truncate(top as usize);
    }
    let mut words: Vec<String> = ranked.into_iter().map(|(word, _)| word).collect();
    words.sort();
    Ok(words)
}

fn indicator(words: &[String], texts: &[String]) -> CellValue {
    let one = |word: &String| CellValue::Float(f64::from(u8::from(texts.contains(word))));
    CellValue::List(words.iter().map(one).collect())
}

pub fn one_hot(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let kind = table.columns[at].kind.clone();
        if kind.is_nested() {
            return Err("a list is no category".into());
        }
        let words = categories(config, counts(&table, at)?)?;
        let vectors = table
            .values(at)
            .map(|value| Ok(indicator(&words, &texts(value, &kind)?)));
        let vectors = vectors.collect::<ChainResult<Vec<_>>>()?;
        table.put(
            TypedColumn::new(config.output(name), CellKind::Vector(words.len())),
            vectors,
        );
    }
    Ok(table)
}

pub fn multi_hot(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let kind = table.columns[at].kind.clone();
        let parts = |value: &CellValue| -> ChainResult<Vec<String>> {
            match (config.text("delimiter"), value) {
                (Some(delimiter), CellValue::Text(text)) => Ok(text
                    .split(delimiter)
                    .filter(|part| !part.is_empty())
                    .map(str::to_owned)
                    .collect()),
                _ => texts(value, &kind),
            }
        };
        if config.get("delimiter").is_some() != (kind == CellKind::Text)
            || !(kind == CellKind::Text || kind.is_nested())
        {
            return Err("neither a list nor text with a delimiter".into());
        }
        let mut counts = BTreeMap::new();
        for row in table.rows.iter().filter(|row| row.fitted) {
            parts(&row.cells[at])?
                .into_iter()
                .for_each(|part| *counts.entry(part).or_insert(0) += 1);
        }
        let words = categories(config, counts)?;
        let vectors = table
            .values(at)
            .map(|value| Ok(indicator(&words, &parts(value)?)));
        let vectors = vectors.collect::<ChainResult<Vec<_>>>()?;
        table.put(
            TypedColumn::new(config.output(name), CellKind::Vector(words.len())),
            vectors,
        );
    }
    Ok(table)
}
