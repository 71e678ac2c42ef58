//! `forebay drift` with its usual limits: all of twenty planted anomalies are found, in the column where they are, and
//! none in a hundred fresh samples of the same distributions.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, StringArray};

use crate::steps::edge_values::write;
use crate::support::{ProgramOutput, TestDirectory};

/// What a shop sold in a day.
struct Sales {
    price: Vec<Option<f64>>,
    qty: Vec<Option<f64>>,
    category: Vec<Option<String>>,
    promoted: Vec<Option<bool>>,
}

impl Sales {
    /// Skewed prices, quantities of which a third is 0, categories of which one is rare, and a flag.
    fn sample(seed: u64, rows: usize) -> Sales {
        let mut random = fastrand::Rng::with_seed(seed);
        let exponential = |random: &mut fastrand::Rng| -(1.0 - random.f64()).ln();
        let mut sales = Sales {
            price: Vec::new(),
            qty: Vec::new(),
            category: Vec::new(),
            promoted: Vec::new(),
        };
        for _ in 0..rows {
            sales
                .price
                .push(Some(5.0 + 10.0 * exponential(&mut random)));
            let sold = if random.f64() < 1.0 / 3.0 {
                0.0
            } else {
                (4.0 * exponential(&mut random)).ceil()
            };
            sales.qty.push(Some(sold));
            let category = match random.f64() {
                u if u < 0.5 => "food",
                u if u < 0.8 => "household",
                u if u < 0.99 => "hobbies",
                _ => "garden",
            };
            sales.category.push(Some(category.to_owned()));
            sales.promoted.push(Some(random.f64() < 0.2));
        }
        sales
    }

    fn prices(mut self, change: impl Fn(usize, f64) -> Option<f64>) -> Sales {
        self.price
            .iter_mut()
            .enumerate()
            .for_each(|(row, price)| *price = price.and_then(|value| change(row, value)));
        self
    }

    fn quantities(mut self, change: impl Fn(usize, f64) -> Option<f64>) -> Sales {
        self.qty
            .iter_mut()
            .enumerate()
            .for_each(|(row, qty)| *qty = qty.and_then(|value| change(row, value)));
        self
    }

    fn categories(mut self, change: impl Fn(usize, &str) -> Option<String>) -> Sales {
        let each = self.category.iter_mut().enumerate();
        each.for_each(|(row, category)| {
            *category = category.as_deref().and_then(|name| change(row, name))
        });
        self
    }

    fn promotions(mut self, change: impl Fn(usize, bool) -> Option<bool>) -> Sales {
        let each = self.promoted.iter_mut().enumerate();
        each.for_each(|(row, promoted)| *promoted = promoted.and_then(|value| change(row, value)));
        self
    }

    fn write(self, shop: &TestDirectory, name: &str) {
        let columns: [(&str, ArrayRef); 4] = [
            ("price", Arc::new(Float64Array::from(self.price))),
            ("qty", Arc::new(Float64Array::from(self.qty))),
            ("category", Arc::new(StringArray::from(self.category))),
            ("promoted", Arc::new(BooleanArray::from(self.promoted))),
        ];
        write(shop, name, columns);
    }
}

/// The program's answer about a day beside the usual ones, and the columns that have drifted.
fn compared(shop: &TestDirectory, day: Sales) -> (ProgramOutput, Vec<String>) {
    day.write(shop, "day.parquet");
    let call = shop.forebay(&["drift", "usual.json", "day.parquet", "--fail", "--json"]);
    let columns = call.summary()["drift"]["columns"]
        .as_array()
        .unwrap()
        .clone();
    let has_drifted =
        |column: &&serde_json::Value| !column["reasons"].as_array().unwrap().is_empty();
    let drifted = columns
        .iter()
        .filter(has_drifted)
        .map(|column| column["name"].as_str().unwrap().to_owned());
    (call, drifted.collect())
}

fn usual_days() -> TestDirectory {
    let shop = TestDirectory::new();
    Sales::sample(0, 20_000).write(&shop, "usual.parquet");
    shop.forebay(&["profile", "usual.parquet", "--output=usual.json"])
        .expect(0);
    shop
}

#[test]
fn twenty_planted_anomalies_are_found() {
    let shop = usual_days();
    type Plant = fn(Sales) -> Sales;
    let planted: [(&str, &str, Plant); 20] = [
        ("prices are tripled", "price", |day| {
            day.prices(|_, price| Some(3.0 * price))
        }),
        ("prices are in cents", "price", |day| {
            day.prices(|_, price| Some(100.0 * price))
        }),
        ("a fee is on all prices", "price", |day| {
            day.prices(|_, price| Some(price + 10.0))
        }),
        ("prices are negative", "price", |day| {
            day.prices(|_, price| Some(-price))
        }),
        ("one price for all", "price", |day| {
            day.prices(|_, _| Some(9.99))
        }),
        ("prices are cut off", "price", |day| {
            day.prices(|_, price| Some(price.min(8.0)))
        }),
        ("a third of the prices is 0", "price", |day| {
            day.prices(|row, price| Some(if row % 3 == 0 { 0.0 } else { price }))
        }),
        ("a fifth of the prices is missing", "price", |day| {
            day.prices(|row, price| (row % 5 != 0).then_some(price))
        }),
        ("a fifth of the prices is not a number", "price", |day| {
            day.prices(|row, price| Some(if row % 5 == 0 { f64::NAN } else { price }))
        }),
        (
            "prices are on another scale, around the same mean",
            "price",
            |day| day.prices(|_, price| Some(15.0 + 0.1 * (price - 15.0))),
        ),
        ("nothing is sold", "qty", |day| {
            day.quantities(|_, _| Some(0.0))
        }),
        ("sales are tenfold", "qty", |day| {
            day.quantities(|_, qty| Some(10.0 * qty))
        }),
        ("rows without sales are gone", "qty", |day| {
            day.quantities(|_, qty| Some(qty.max(1.0)))
        }),
        ("a tenth of the quantities is missing", "qty", |day| {
            day.quantities(|row, qty| (row % 10 != 0).then_some(qty))
        }),
        ("a category is new", "category", |day| {
            day.categories(|row, name| Some(if row % 4 == 0 { "toys" } else { name }.to_owned()))
        }),
        ("a category is gone", "category", |day| {
            day.categories(|_, name| Some(if name == "food" { "hobbies" } else { name }.to_owned()))
        }),
        ("two categories are swapped", "category", |day| {
            day.categories(|_, name| {
                Some(match name {
                    "food" => "garden".to_owned(),
                    "garden" => "food".to_owned(),
                    other => other.to_owned(),
                })
            })
        }),
        ("categories are written otherwise", "category", |day| {
            day.categories(|_, name| Some(name.to_uppercase()))
        }),
        (
            "a quarter of the categories is missing",
            "category",
            |day| day.categories(|row, name| (row % 4 != 0).then(|| name.to_owned())),
        ),
        ("everything is promoted", "promoted", |day| {
            day.promotions(|_, _| Some(true))
        }),
    ];
    for (seed, (what, column, plant)) in planted.into_iter().enumerate() {
        let (call, drifted) = compared(&shop, plant(Sales::sample(1_000 + seed as u64, 1_000)));
        assert_eq!(drifted, [column], "{what}: {}", call.stdout);
        call.expect(65);
    }
}

#[test]
fn no_clean_sample_is_an_anomaly() {
    let shop = usual_days();
    for seed in 1..=100 {
        let rows = [40, 300, 3_000][seed % 3];
        let (call, drifted) = compared(&shop, Sales::sample(seed as u64, rows));
        assert_eq!(
            drifted,
            Vec::<String>::new(),
            "sample {seed} of {rows} rows: {}",
            call.stdout
        );
        call.expect(0);
    }
}
