//! The batches of a spec's feed, in the order in which trainings get them, as plain numbers for programs that
//! compare themselves with Forebay's trainer (`benches/train` does):
//!
//! ```text
//! cargo run --release -p forebay --example batches SPEC STATE SPLIT EPOCHS OUT [NAME=VALUE]...
//! ```
//!
//! `OUT` gets single-precision numbers (little-endian), row after row: dense features, ids, label. Epochs
//! follow each other; 0 of them are one in the order of the files.
#![allow(clippy::print_stdout)]

use std::io::Write;

use forebay::feed::{Feed, PartRole, RemainderPolicy, SampleOrder};
use forebay::model::codes;
use forebay::prelude::*;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [spec, state, split, epochs, out, params @ ..] = args.as_slice() else {
        return Err(Fault::new(
            codes::USAGE,
            "give SPEC STATE SPLIT EPOCHS OUT [NAME=VALUE]...",
        ));
    };
    let params = params.iter().filter_map(|param| param.split_once('='));
    let options = SessionOptions::default()
        .threads(2)
        .memory_bytes(2 << 30)
        .state(state);
    let forebay = Forebay::new().with_options(options);
    let pipeline = forebay.read_spec(spec, params)?;
    let session = forebay.session()?;
    let feed = FeedConfig {
        split: Some(split.clone()),
        ..FeedConfig::from_pipeline(&pipeline)?
    };
    let mut config = session.feed(&pipeline, None, &feed)?.config(0)?;
    config.last = RemainderPolicy::Short;
    config.epochs = epochs.parse().unwrap_or(1);
    if config.epochs == 0 {
        (config.order, config.epochs) = (SampleOrder::sequential(), 1);
    }
    let failed = |error| Fault::disk("the batches cannot be written", error);
    let mut file = std::io::BufWriter::new(std::fs::File::create(out).map_err(failed)?);
    let mut rows = 0;
    for batch in Feed::start(config)? {
        let batch = batch?;
        let dense = batch.numbers::<f32>(PartRole::Dense);
        let labels = batch.numbers::<f32>(PartRole::Label);
        let ids = batch.numbers::<i32>(PartRole::Categorical);
        let wide = dense.len() / batch.shape_rows();
        let many = ids.len() / batch.shape_rows();
        for row in 0..batch.rows() {
            let ids = ids[row * many..(row + 1) * many]
                .iter()
                .map(|id| *id as f32);
            let values = dense[row * wide..(row + 1) * wide]
                .iter()
                .copied()
                .chain(ids)
                .chain([labels[row]]);
            values
                .map(f32::to_le_bytes)
                .try_for_each(|bytes| file.write_all(&bytes))
                .map_err(failed)?;
        }
        rows += batch.rows();
    }
    file.flush().map_err(failed)?;
    println!("{rows}");
    Ok(())
}
