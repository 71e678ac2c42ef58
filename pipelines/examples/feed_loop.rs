//! Mini-batches for a training loop of one's own: shuffled, of one shape, and resumable.
//!
//! ```text
//! cargo run -p forebay --example feed_loop
//! ```
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::path::Path;

use forebay::feed::{Feed, PartRole};
use forebay::prelude::*;
use forebay_generate::{ClicksOptions, clicks};

/// Numbers scaled and categories encoded, with what the training rows say.
pub fn pipeline(dir: &Path) -> Result<Pipeline> {
    let at = |name: &str| dir.join(name).display().to_string();
    let pipeline = PipelineBuilder::new("clicks");
    let log = pipeline.source("log", ParquetSource::at(at("data")));
    let features = pipeline
        .step("features", &log)
        .fit_on("train")
        .apply(impute(["f1", "f2"], ImputeStrategy::Median))
        .apply(log1p(["f1", "f2"]))
        .apply(standardize(["f1", "f2"]))
        .apply(vocabulary(["c6"]).min_count(2).oov_buckets(1))
        .apply(select(["f1", "f2", "c6", "label"]));
    pipeline.split(DataSplit::by_hash(
        ["f1"],
        [("train", 0.8), ("validation", 0.2)],
    ));
    pipeline.feed(
        FeedConfig::default()
            .from(&features)
            .split("train")
            .label("label")
            .missing_id(0)
            .batch_rows(256),
    );
    pipeline.sink("table", &features, ParquetSink::at(at("out")));
    pipeline.build()
}

/// Generates a log in `dir`, and fits a line to the labels by gradient descent. Gives the loss of each epoch.
pub fn run(dir: &Path) -> Result<Vec<f64>> {
    clicks(&ClicksOptions::new(4000, 7, dir.join("data")), &mut |_| {})?;
    let pipeline = pipeline(dir)?;
    let state = dir.join("state").display().to_string();
    let session = Forebay::new()
        .with_options(SessionOptions::default().state(state))
        .session()?;
    // What the feed reads, with its statistics.
    session.run(&pipeline)?;

    let epochs = 3;
    let mut config = session
        .feed(&pipeline, None, &FeedConfig::from_pipeline(&pipeline)?)?
        .config(7)?;
    config.epochs = epochs;
    let mut weights = [0.0f32; 2];
    let mut bias = 0.0f32;
    let mut losses = vec![0.0; epochs as usize];
    let mut seen = vec![0usize; epochs as usize];
    for batch in Feed::start(config)? {
        let batch = batch?;
        let dense = batch.numbers::<f32>(PartRole::Dense);
        let labels = batch.numbers::<f32>(PartRole::Label);
        let mut slopes = [0.0f32; 2];
        let mut slope = 0.0f32;
        for row in 0..batch.rows() {
            let x = &dense[row * weights.len()..(row + 1) * weights.len()];
            let error = bias
                + x.iter()
                    .zip(&weights)
                    .map(|(x, weight)| x * weight)
                    .sum::<f32>()
                - labels[row];
            losses[batch.epoch() as usize] += f64::from(error * error);
            slope += error;
            slopes
                .iter_mut()
                .zip(x)
                .for_each(|(slope, x)| *slope += error * x);
        }
        seen[batch.epoch() as usize] += batch.rows();
        let rate = 0.05 / batch.rows() as f32;
        bias -= rate * slope;
        weights
            .iter_mut()
            .zip(slopes)
            .for_each(|(weight, slope)| *weight -= rate * slope);
    }
    Ok(losses
        .iter()
        .zip(&seen)
        .map(|(loss, rows)| loss / *rows as f64)
        .collect())
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("forebay-feed-loop-{}", std::process::id()));
    for (epoch, loss) in run(&dir)?.iter().enumerate() {
        println!("epoch {epoch}: loss {loss:.4}");
    }
    std::fs::remove_dir_all(&dir)
        .map_err(|error| Fault::disk("the example's directory cannot be removed", error))
}
