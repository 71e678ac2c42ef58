//! Generates a data set by hand: `generate demand|clicks ROWS SEED OUT [THREADS] [PERIOD]`.

use std::io::Write;
use std::time::Instant;

use forebay_generate::{
    ClicksOptions, DemandOptions, GenerateSummary, HistoryExtent, clicks, demand,
};
use forebay_model::{Fault, Result, codes};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || {
        Fault::new(
            codes::USAGE,
            "generate demand|clicks ROWS SEED OUT [THREADS] [PERIOD]",
        )
    };
    let number = |text: &String| {
        text.replace('_', "")
            .parse::<u64>()
            .map_err(|error| usage().cause(error))
    };
    let [kind, rows, seed, out, rest @ ..] = arguments.as_slice() else {
        return Err(usage());
    };
    let rows = number(rows)?;
    let seed = number(seed)?;
    let threads = rest.first().map(number).transpose()?;
    let start = Instant::now();
    let mut quiet = |_| {};
    let GenerateSummary { files, rows, bytes } = match kind.as_str() {
        "demand" => {
            let mut options = DemandOptions::new(HistoryExtent::Rows(rows), seed, out);
            options.output.threads =
                threads.map_or(options.output.threads, |threads| threads as usize);
            if let Some(period) = rest.get(1) {
                options.period = period.parse()?;
            }
            demand(&options, &mut quiet)?
        }
        "clicks" => {
            let mut options = ClicksOptions::new(rows, seed, out);
            options.output.threads =
                threads.map_or(options.output.threads, |threads| threads as usize);
            clicks(&options, &mut quiet)?
        }
        _ => return Err(usage()),
    };
    let seconds = start.elapsed().as_secs_f64();
    let rate = rows as f64 / seconds / 1e6;
    let line = format!(
        "{files} files, {rows} rows, {bytes} bytes in {seconds:.1} s: {rate:.2} million rows/s"
    );
    writeln!(std::io::stdout(), "{line}")
        .map_err(|error| Fault::new(codes::STORAGE, "cannot write the summary").cause(error))
}
