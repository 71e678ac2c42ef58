//! `geohash`: the cell of a place as a text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringBuilder};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{
    BindScope, ConfiguredTransform, MapOp, PlanOp, Transform, ValueCount, WrittenNulls,
};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distance::PlaceColumns;
use crate::shared::{bad_value, doubles};

/// The geohash of a place: a text that begins alike for places that are near each other, but for those at both sides of
/// an edge of a cell.
///
/// In: latitude and longitude in degrees, columns of numbers. Out: `string` of `length` letters and digits. Cells of
/// 5 are 4.9 km wide and high at the equator, of 6 1.2 km by 0.6 km, of 7 153 m; each letter more divides a cell
/// by 32. A null gives null; so do NaN, an infinity and a latitude beyond 90 degrees, which are counted as nulled.
/// Longitudes may have any number of turns. Learns nothing. `vocabulary`, `target_encoding` and others take the
/// texts. Follows the geohash of Niemeyer (geohash.org, 2008).
///
/// ```yaml
/// - geohash: { place: [latitude, longitude], length: 6 }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(fn geohash(place), example = r#"geohash(["latitude", "longitude"]).length(7)"#)]
pub struct Geohash {
    /// The columns of latitude and longitude, in this order.
    #[schemars(with = "[String; 2]")]
    pub place: PlaceColumns,
    /// Number of letters and digits, 1 to 12.
    #[serde(default = "six")]
    pub length: usize,
    /// The name of the new column.
    #[serde(default = "name")]
    pub name: String,
}

fn six() -> usize {
    6
}

fn name() -> String {
    "geohash".to_owned()
}

/// Greatest length: cells of 12 are 4 cm wide.
const LENGTH_MAX: usize = 12;

/// Bits of a letter.
const LETTER_BITS: usize = 5;

/// The letters of the numbers 0 to 31: digits, and letters without a, i, l and o.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

impl ConfiguredTransform for Geohash {
    const NAME: &'static str = "geohash";
}

impl Transform for Geohash {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        if !(1..=LENGTH_MAX).contains(&self.length) {
            let message = format!("`length` {} is not between 1 and {LENGTH_MAX}", self.length);
            return Err(bad_value(message).field("length"));
        }
        for column in self.place.names() {
            let field = scope.field(column)?;
            if !field.data_type().is_numeric() {
                let words = type_words(field.data_type());
                let message = format!("`{column}` is {words}, not a number of degrees");
                return Err(Fault::new(codes::COLUMN_TYPE, message)
                    .column(column.as_str())
                    .hint("`cast` it before this step"));
            }
        }
        let output = Field::new(&self.name, DataType::Utf8, true);
        let length = self.length;
        let map = MapOp::new(self.place.names(), [output], move |inputs, rows| {
            Ok(vec![geohashes(inputs, rows, length)?])
        });
        let nulls = WrittenNulls::Made("has no cell for what is no place");
        let map = map.written_nulls(nulls).counting(ValueCount::nulled());
        Ok(vec![PlanOp::Map(map)])
    }
}

/// The cells of the places of two columns.
fn geohashes(inputs: &[ArrayRef], rows: usize, length: usize) -> Result<ArrayRef> {
    let [latitudes, longitudes] = inputs else {
        return Err(Fault::internal("a place has two columns"));
    };
    let latitudes = doubles(latitudes)?;
    let longitudes = doubles(longitudes)?;
    let mut cells = StringBuilder::with_capacity(rows, rows * length);
    let mut text = String::with_capacity(length);
    for row in 0..rows {
        let latitude = latitudes.value(row);
        let longitude = longitudes.value(row);
        let is_given = latitudes.is_valid(row) && longitudes.is_valid(row);
        if is_given && latitude.abs() <= 90.0 && longitude.is_finite() {
            text.clear();
            push_cell(latitude, longitude, length, &mut text);
            cells.append_value(&text);
        } else {
            cells.append_null();
        }
    }
    Ok(Arc::new(cells.finish()))
}

/// Halves the ranges of longitude and latitude in turn: each half is a bit.
fn push_cell(latitude: f64, longitude: f64, length: usize, text: &mut String) {
    let longitude = (longitude + 180.0).rem_euclid(360.0) - 180.0;
    let mut ranges = [[-180.0, 180.0], [-90.0, 90.0]];
    let mut number = 0;
    for bit in 0..length * LETTER_BITS {
        let axis = bit % 2;
        let value = [longitude, latitude][axis];
        let [low, high] = ranges[axis];
        let middle = f64::midpoint(low, high);
        let is_upper = value >= middle;
        ranges[axis] = if is_upper {
            [middle, high]
        } else {
            [low, middle]
        };
        number = number * 2 + usize::from(is_upper);
        if bit % LETTER_BITS == LETTER_BITS - 1 {
            text.push(char::from(LETTERS[number]));
            number = 0;
        }
    }
}
