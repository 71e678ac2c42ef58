//! `distance`: how far two places are apart, and in which direction.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::datatypes::{DataType, Field};
use forebay_model::{Fault, Result, codes, type_words};
use forebay_plan::{BindScope, ConfiguredTransform, MapOp, PlanOp, Transform};
use forebay_setters::Setters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::doubles;

/// The distance between two places on the Earth along a great circle (haversine), and the bearing at the first.
///
/// In: latitude and longitude of both places in degrees, columns of numbers. Out: `float64`. The Earth is a sphere of
/// the mean radius 6371.0088 km (IUGG), which is within 0.6 % of the distance on the ellipsoid. The bearing is in
/// degrees clockwise from north, 0 to below 360; where both places are the same it is 0. A null gives null; NaN, an
/// infinity and a latitude beyond 90 degrees are no place and give NaN, which is counted. Longitudes may have any number
/// of turns. Learns nothing. Follows scikit-learn's `haversine_distances`, which takes radians.
///
/// ```yaml
/// - distance: { from: [latitude, longitude], to: [depot_latitude, depot_longitude], name: km, bearing: bearing }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields)]
#[setters(
    fn distance(from, to),
    example = r#"distance(["a_lat", "a_lon"], ["b_lat", "b_lon"]).unit(DistanceUnit::Miles)"#
)]
pub struct PlaceDistance {
    /// The columns of latitude and longitude of the first place, in this order.
    #[schemars(with = "[String; 2]")]
    pub from: PlaceColumns,
    /// The columns of latitude and longitude of the second place, in this order.
    #[schemars(with = "[String; 2]")]
    pub to: PlaceColumns,
    /// The name of the new column.
    #[serde(default = "name")]
    pub name: String,
    /// The unit of length.
    #[serde(default)]
    pub unit: DistanceUnit,
    /// The name of a column for the bearing; none is written where left out.
    #[serde(default)]
    pub bearing: Option<String>,
}

fn name() -> String {
    "distance".to_owned()
}

/// Two columns: the latitude and the longitude of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceColumns([String; 2]);

impl PlaceColumns {
    /// The names of both columns.
    pub(super) fn names(&self) -> &[String; 2] {
        &self.0
    }
}

impl<T: Into<String>> From<[T; 2]> for PlaceColumns {
    fn from(columns: [T; 2]) -> Self {
        PlaceColumns(columns.map(Into::into))
    }
}

/// A unit of length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DistanceUnit {
    /// 1,000 metres.
    #[default]
    Kilometres,
    /// Metres.
    Metres,
    /// 1,609.344 metres.
    Miles,
    /// 1,852 metres.
    NauticalMiles,
}

/// The mean radius of the Earth in metres (IUGG).
const EARTH_RADIUS_METRES: f64 = 6_371_008.8;

impl DistanceUnit {
    fn earth_radius(self) -> f64 {
        match self {
            DistanceUnit::Kilometres => EARTH_RADIUS_METRES / 1_000.0,
            DistanceUnit::Metres => EARTH_RADIUS_METRES,
            DistanceUnit::Miles => EARTH_RADIUS_METRES / 1_609.344,
            DistanceUnit::NauticalMiles => EARTH_RADIUS_METRES / 1_852.0,
        }
    }
}

impl ConfiguredTransform for PlaceDistance {
    const NAME: &'static str = "distance";
}

impl Transform for PlaceDistance {
    fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
        let columns: Vec<&String> = self.from.0.iter().chain(&self.to.0).collect();
        for column in &columns {
            let field = scope.field(column)?;
            if !field.data_type().is_numeric() {
                let words = type_words(field.data_type());
                let message = format!("`{column}` is {words}, not a number of degrees");
                return Err(Fault::new(codes::COLUMN_TYPE, message)
                    .column(column.as_str())
                    .hint("`cast` it before this step"));
            }
        }
        let radius = self.unit.earth_radius();
        let distance = move |from: Place, to: Place| radius * from.angle_to(to);
        let mut ops = vec![place_op(&columns, &self.name, distance)];
        if let Some(bearing) = &self.bearing {
            ops.push(place_op(&columns, bearing, Place::bearing_to));
        }
        Ok(ops)
    }
}

/// Writes a number of both places of each row.
fn place_op(
    columns: &[&String],
    name: &str,
    number: impl Fn(Place, Place) -> f64 + Send + Sync + 'static,
) -> PlanOp {
    let output = Field::new(name, DataType::Float64, true);
    let map = MapOp::new(columns.iter().copied(), [output], move |inputs, rows| {
        let mut degrees = Vec::with_capacity(inputs.len());
        for input in inputs {
            degrees.push(doubles(input)?);
        }
        let mut numbers = Float64Array::builder(rows);
        for row in 0..rows {
            if degrees.iter().any(|column| column.is_null(row)) {
                numbers.append_null();
                continue;
            }
            let from = Place::at(&degrees, 0, row);
            let to = Place::at(&degrees, 2, row);
            numbers.append_value(match from.zip(to) {
                Some((from, to)) => number(from, to),
                None => f64::NAN,
            });
        }
        Ok(vec![Arc::new(numbers.finish()) as ArrayRef])
    });
    PlanOp::Map(map)
}

/// A place on a sphere, in radians.
#[derive(Clone, Copy)]
struct Place {
    latitude: f64,
    longitude: f64,
}

impl Place {
    /// The place of a row by two of the columns; `None` where their numbers are none.
    fn at(degrees: &[Float64Array], first: usize, row: usize) -> Option<Place> {
        let latitude = degrees.get(first)?.value(row);
        let longitude = degrees.get(first + 1)?.value(row);
        let is_place = latitude.abs() <= 90.0 && longitude.is_finite();
        is_place.then(|| Place {
            latitude: latitude.to_radians(),
            longitude: longitude.to_radians(),
        })
    }

    /// The angle between both places from the centre, in radians.
    fn angle_to(self, to: Place) -> f64 {
        let north = ((to.latitude - self.latitude) / 2.0).sin();
        let east = ((to.longitude - self.longitude) / 2.0).sin();
        let half_chord = north * north + self.latitude.cos() * to.latitude.cos() * east * east;
        // Antipodes may round to just above 1.
        2.0 * half_chord.sqrt().min(1.0).asin()
    }

    /// The direction of the great circle to another place, in degrees clockwise from north.
    fn bearing_to(self, to: Place) -> f64 {
        let turn = to.longitude - self.longitude;
        let east = turn.sin() * to.latitude.cos();
        let north = self.latitude.cos() * to.latitude.sin()
            - self.latitude.sin() * to.latitude.cos() * turn.cos();
        let degrees = east.atan2(north).to_degrees().rem_euclid(360.0);
        // The remainder of a tiny negative angle rounds to 360 itself.
        if degrees < 360.0 { degrees } else { 0.0 }
    }
}
