//! Columns of rows as Feast's SDK sends them: questions by keys alone, and facts with times of its own.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use forebay_model::tick_nanoseconds;
use serde_json::{Map, Value};

use super::error::ServeError;
use super::formats::{NamedColumns, columns_of_lists};
use super::model::ServedModel;

/// Column with the time of pushed facts.
const EVENT_TIME: &str = "event_timestamp";

/// Column with the time at which facts were made.
const CREATED_TIME: &str = "created";

/// Columns of rows whose features a request wants. The SDK sends keys alone: where a state has the rows before, the time
/// is now, and other columns have no value. A request that gives some of their values gives all of them.
pub(super) fn entity_columns(
    model: &ServedModel,
    entities: &Map<String, Value>,
) -> Result<NamedColumns, ServeError> {
    let mut columns = columns_of_lists(entities)?;
    let Some(time) = model.time.as_ref().filter(|_| model.has_state()) else {
        return Ok(columns);
    };
    if model.answers_series() {
        return Ok(columns);
    }
    let rows = columns.values().next().map_or(0, |column| column.len());
    let mut needed_fields = Vec::new();
    for field in model.inputs().fields() {
        if !model.keys.contains(field.name()) && !model.is_optional(field.name()) {
            needed_fields.push(field);
        }
    }
    let values = needed_fields.iter().map(|field| field.name().as_str());
    check_all_or_none(values.filter(|name| name != time), &columns)?;
    for field in needed_fields {
        let name = field.name();
        if columns.contains_key(name) {
            continue;
        }
        let column = if name == time {
            current_times(field.data_type(), rows)
        } else {
            Some(new_null_array(field.data_type(), rows))
        };
        if let Some(column) = column {
            columns.insert(name.clone(), column);
        }
    }
    Ok(columns)
}

/// Refuses a request that has some of these columns and lacks others.
fn check_all_or_none<'n>(
    names: impl Iterator<Item = &'n str>,
    columns: &NamedColumns,
) -> Result<(), ServeError> {
    let mut absent_columns = Vec::new();
    let mut is_present = false;
    for name in names {
        if columns.contains_key(name) {
            is_present = true;
        } else {
            absent_columns.push(format!("`{name}`"));
        }
    }
    if !is_present || absent_columns.is_empty() {
        return Ok(());
    }
    Err(ServeError::bad_request(format!(
        "the request has no {}; give all columns that the steps need, or keys alone",
        absent_columns.join(", ")
    )))
}

/// The time of now in UTC, for each row; `None` for columns of no time.
fn current_times(data_type: &DataType, rows: usize) -> Option<ArrayRef> {
    let tick = tick_nanoseconds(data_type)?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let nanoseconds = i128::try_from(since_1970.as_nanos()).ok()?;
    let ticks = i64::try_from(nanoseconds / tick).ok()?;
    let ticks: ArrayRef = Arc::new(Int64Array::from(vec![ticks; rows]));
    cast(&ticks, data_type).ok()
}

/// The columns of facts by the source's names.
pub(super) fn fact_columns(
    model: &ServedModel,
    lists: Map<String, Value>,
) -> Result<NamedColumns, ServeError> {
    let mut columns = columns_of_lists(&once_per_row(lists))?;
    if model.source_field(CREATED_TIME).is_none() {
        columns.remove(CREATED_TIME);
    }
    if model.source_field(EVENT_TIME).is_none()
        && let Some(times) = columns.remove(EVENT_TIME)
        && let Some(name) = &model.time
    {
        let times = match model.source_field(name) {
            Some(field) => event_times(times, field.data_type()),
            None => times,
        };
        columns.entry(name.clone()).or_insert(times);
    }
    Ok(columns)
}

/// Lists with a value for each row. Where the schema of a view names its keys, Feast 0.67 sends them twice.
fn once_per_row(mut lists: Map<String, Value>) -> Map<String, Value> {
    let times = lists.get(EVENT_TIME).and_then(Value::as_array);
    let Some(rows) = times.map(Vec::len) else {
        return lists;
    };
    for list in lists.values_mut() {
        let Some(values) = list.as_array_mut() else {
            continue;
        };
        let mut pairs = values.chunks(2);
        if values.len() == 2 * rows && pairs.all(|pair| pair.first() == pair.last()) {
            let mut is_first = false;
            values.retain(|_| {
                is_first = !is_first;
                is_first
            });
        }
    }
    lists
}

/// Times of facts in the form of the source's column.
fn event_times(times: ArrayRef, source_type: &DataType) -> ArrayRef {
    let Some(texts) = times.as_string_opt::<i32>() else {
        return times;
    };
    let mut read = Vec::with_capacity(texts.len());
    for text in texts {
        read.push(text.map(|text| event_time(text, source_type)));
    }
    Arc::new(StringArray::from(read))
}

/// A time of a fact: the SDK sends midnight for a date, and UTC without an offset.
fn event_time(text: &str, source_type: &DataType) -> String {
    match source_type {
        DataType::Date32 | DataType::Date64 => {
            text.strip_suffix("T00:00:00").unwrap_or(text).to_owned()
        }
        DataType::Timestamp(_, Some(_)) if lacks_offset(text) => format!("{text}Z"),
        _ => text.to_owned(),
    }
}

/// True if a time of ISO 8601 has a time of day, and no offset from UTC behind it. Other clients than the SDK write a
/// blank for the `T`.
fn lacks_offset(text: &str) -> bool {
    let time_of_day = text.split_once(['T', ' ']);
    time_of_day.is_some_and(|(_, clock)| !clock.contains(['Z', '+', '-']))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_that_are_sent_twice_count_once() {
        let sent = json!({
            "item": ["a", "a", "b", "b"],
            "qty": [1.5, 2.5],
            "event_timestamp": ["2026-01-21T00:00:00", "2026-01-21T00:00:00"],
            "created": [null, null],
        });
        let lists = once_per_row(sent.as_object().unwrap().clone());
        assert_eq!(lists["item"], json!(["a", "b"]));
        assert_eq!(lists["qty"], json!([1.5, 2.5]));
        // Other lengths are mistakes, which are named later.
        let sent = json!({ "item": ["a", "b"], "event_timestamp": ["2026-01-21T00:00:00"] });
        let lists = once_per_row(sent.as_object().unwrap().clone());
        assert_eq!(lists["item"], json!(["a", "b"]));
    }

    #[test]
    fn requests_have_all_values_or_none() {
        let sent = json!({ "item": ["a"], "qty": [1.5] });
        let columns = columns_of_lists(sent.as_object().unwrap()).unwrap();
        for (names, refusal) in [
            (vec![], None),
            (vec!["qty"], None),
            (vec!["price", "weight"], None),
            (vec!["price", "qty", "weight"], Some("`price`, `weight`")),
        ] {
            match check_all_or_none(names.into_iter(), &columns) {
                Ok(()) => assert_eq!(refusal, None),
                Err(error) => assert!(error.message.contains(refusal.unwrap())),
            }
        }
    }

    #[test]
    fn times_of_facts_have_the_form_of_the_source() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
        let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
        let midnight = "2026-01-21T00:00:00";
        for (text, source_type, expected) in [
            (midnight, &DataType::Date32, "2026-01-21"),
            (
                "2026-01-21T12:00:00",
                &DataType::Date32,
                "2026-01-21T12:00:00",
            ),
            (midnight, &zoned, "2026-01-21T00:00:00Z"),
            (
                "2026-01-21T00:00:00+01:00",
                &zoned,
                "2026-01-21T00:00:00+01:00",
            ),
            (
                "2026-01-21 00:00:00+01:00",
                &zoned,
                "2026-01-21 00:00:00+01:00",
            ),
            ("2026-01-21 00:00:00", &zoned, "2026-01-21 00:00:00Z"),
            ("2026-01-21", &zoned, "2026-01-21"),
            (midnight, &naive, midnight),
        ] {
            assert_eq!(event_time(text, source_type), expected);
        }
    }

    #[test]
    fn questions_without_a_time_are_of_now() {
        let times = current_times(&DataType::Date32, 2).unwrap();
        assert_eq!((times.len(), times.data_type()), (2, &DataType::Date32));
        assert!(times.null_count() == 0);
        assert!(current_times(&DataType::Int64, 1).is_none());
    }
}
