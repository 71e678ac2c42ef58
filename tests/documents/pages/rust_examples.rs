//! The examples of Rust in the documentation, as the pages have them.

use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float64Array, Int32Array, StringArray};

use crate::steps::edge_values::write;
use crate::support::TestDirectory;
use crate::support::watched_command::WatchedCommand;

/// Runs an example in a directory, in a process of its own: its paths are relative.
pub fn run(text: &str, shop: &TestDirectory) -> Result<(), String> {
    let source = include_str!("rust_examples.rs");
    let name = source
        .split("#[rustfmt::skip]\n")
        .filter_map(|part| {
            part.strip_prefix("fn ")?
                .split_once("() -> forebay::prelude::Result<()> {\n")
        })
        .find(|(_, code)| {
            let code = code.lines().map(str::trim);
            let example: Vec<&str> = text.lines().map(str::trim).collect();
            code.take(example.len()).eq(example.iter().copied())
        })
        .map(|(name, _)| name);
    let name = name.ok_or("the same code is not in tests/documents/pages/rust_examples.rs")?;
    write_sales(shop);
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--ignored", "--exact"])
        .arg(format!("documents::pages::rust_examples::{name}"));
    shop.isolate(&mut test);
    let output = test.watched();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && said.contains("1 passed") {
        Ok(())
    } else {
        Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// `sales`, a folder with a file, and `stores.csv`.
fn write_sales(shop: &TestDirectory) {
    std::fs::create_dir_all(shop.path("sales")).unwrap();
    shop.write("stores.csv", "store,size\ns1,1.5\ns2,2.5\n");
    let rows = 0..400;
    let texts = |text: &dyn Fn(i32) -> &'static str| {
        Arc::new(
            rows.clone()
                .map(|row| Some(text(row)))
                .collect::<StringArray>(),
        ) as ArrayRef
    };
    let dates: Date32Array = rows.clone().map(|row| Some(16_850 + row / 4)).collect();
    let demand: Int32Array = rows.clone().map(|row| Some(row * 7 % 11)).collect();
    let prices: Float64Array = rows.clone().map(|row| Some(f64::from(row % 9))).collect();
    let columns: [(&str, ArrayRef); 5] = [
        ("date", Arc::new(dates)),
        ("store", texts(&|row| ["s1", "s2"][row as usize % 2])),
        ("item", texts(&|row| ["a", "b"][row as usize / 2 % 2])),
        ("qty", Arc::new(demand)),
        ("price", Arc::new(prices)),
    ];
    write(shop, "sales/a.parquet", columns);
}

#[test]
#[ignore = "runs in the directory of its page"]
#[allow(unused_variables)]
#[rustfmt::skip]
fn readme() -> forebay::prelude::Result<()> {
    use forebay::prelude::*;

    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .fit_on("train")
        .apply(filter("qty IS NOT NULL").when(FilterScope::Learning))
        .apply(lag(["qty"]).by(["7d", "28d"]))
        .apply(rolling(["qty"]).compute([SeriesStatistic::Mean, SeriesStatistic::Std]).over(["7d", "28d"]).gap("1d"))
        .apply(standardize(["price"]))
        .apply(vocabulary(["item_id", "store_id"]).min_count(5).oov_buckets(1));
    pipeline.split([("train", "date <  DATE '2016-04-25'"), ("validation", "date >= DATE '2016-04-25'")]);
    pipeline.sink("table", &features, ParquetSink::at("out/features"));
    pipeline.train("net", &features, TrainConfig::new(ModelKind::Mlp).label("qty").missing(0.0).epochs(2).path("out/net"));
    println!("{}", Forebay::new().run(&pipeline.build()?)?);
    Ok(())
}

#[test]
#[ignore = "runs in the directory of its page"]
#[allow(unused_variables)]
#[rustfmt::skip]
fn guide() -> forebay::prelude::Result<()> {
    use forebay::prelude::*;

    let pipeline = PipelineBuilder::new("sales");
    let stores = pipeline.source("stores", CsvSource::at("stores.csv"));
    let sales = pipeline.source("sales", ParquetSource::at("sales")).time("date").keys(["store", "item"]);
    let features = pipeline
        .step("features", &sales)
        .fit_on("train")
        .apply(join(&stores).on(["store"]))
        .apply(lag(["qty"]).by(["7d"]))
        .apply(standardize("type:float"));
    pipeline.split(DataSplit::by_time("date", ["train", "validation"], ["2016-04-25"]));
    pipeline.sink("table", &features, ParquetSink::at("out/features"));
    let pipeline = pipeline.build()?;

    let forebay = Forebay::new().with_options(SessionOptions::default().memory_bytes(4 << 30));
    forebay.check(&pipeline)?;                                   // columns and types, against the data
    let batches = forebay.collect(&pipeline, "features")?;       // rows of any step, in memory
    for batch in forebay.rows(&pipeline, "features")? {          // or batch by batch
        println!("{}", batch?.num_rows());
    }
    let report = forebay.run(&pipeline)?;                        // artifact and outputs
    Ok(())
}

#[test]
#[ignore = "runs in the directory of its page"]
#[rustfmt::skip]
fn own_transform() -> forebay::prelude::Result<()> {
    use std::sync::Arc;

    use forebay::extend::arrow::array::{ArrayRef, AsArray, Float64Array};
    use forebay::extend::arrow::compute::cast;
    use forebay::extend::arrow::datatypes::{DataType, Field, Float64Type};
    use forebay::extend::schemars::JsonSchema;
    use forebay::extend::serde::{Deserialize, Serialize};
    use forebay::extend::{BindScope, MapOp, PlanOp};
    use forebay::prelude::*;

    /// The next price that ends with `.99`, as `float64`. Null stays null.
    #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, Setters)]
    #[serde(crate = "forebay::extend::serde", deny_unknown_fields)]
    #[schemars(crate = "forebay::extend::schemars")]
    #[setters(fn charm_price(column))]
    pub struct CharmPrice {
        /// The column of prices.
        pub column: String,
    }

    impl ConfiguredTransform for CharmPrice {
        const NAME: &'static str = "charm_price";
    }

    impl Transform for CharmPrice {
        fn bind(&self, scope: &BindScope<'_>) -> Result<Vec<PlanOp>> {
            let columns = scope.numeric_columns(&[&self.column].into_iter().collect())?;
            let reads: Vec<&String> = columns.iter().map(|field| field.name()).collect();
            let output = Field::new(format!("{}_charm", self.column), DataType::Float64, true);
            Ok(vec![PlanOp::Map(MapOp::new(reads, [output], |inputs, _| {
                Ok(vec![charm(&inputs[0])?])
            }))])
        }
    }

    fn charm(prices: &ArrayRef) -> Result<ArrayRef> {
        let prices = cast(prices, &DataType::Float64)?;
        let prices = prices.as_primitive::<Float64Type>();
        let charm: Float64Array = prices.unary(|price| price.floor() + 0.99);
        Ok(Arc::new(charm))
    }

    let pipeline = PipelineBuilder::new("charm");
    let sales = pipeline.source("sales", ParquetSource::at("sales"));
    let features = pipeline
        .step("features", &sales)
        .apply(charm_price("price"))
        .apply(select(["price", "price_charm"]));
    pipeline.sink("table", &features, CsvSink::at("out/charm"));
    let forebay = Forebay::new().with_transform::<CharmPrice>();
    println!("{}", forebay.run(&pipeline.build()?)?);
    Ok(())
}
