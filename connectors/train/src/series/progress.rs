//! Progress of fitting many series.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_contract::TrainingContext;
use forebay_storage::{Event, TrainingUnit};

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Counts series that are fitted on any thread, and reports about once a second.
pub struct SeriesProgress<'a> {
    context: &'a TrainingContext<'a>,
    series: u64,
    counts: Mutex<SeriesCounts>,
}

/// Series that are fitted, and losses since the last report.
struct SeriesCounts {
    fitted: u64,
    losses: f64,
    models: u64,
    reported: Instant,
}

impl<'a> SeriesProgress<'a> {
    /// The progress of this many series.
    pub fn new(context: &'a TrainingContext<'a>, series: usize) -> SeriesProgress<'a> {
        SeriesProgress {
            context,
            series: series as u64,
            counts: Mutex::new(SeriesCounts {
                fitted: 0,
                losses: 0.0,
                models: 0,
                reported: Instant::now(),
            }),
        }
    }

    /// Counts a series, with the loss of its model if it has one.
    pub fn count(&self, loss: Option<f64>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.fitted += 1;
        if let Some(loss) = loss {
            counts.losses += loss;
            counts.models += 1;
        }
        if counts.reported.elapsed() < REPORT_INTERVAL || counts.models == 0 {
            return;
        }
        let step = counts.fitted;
        let loss = counts.losses / counts.models as f64;
        counts.losses = 0.0;
        counts.models = 0;
        counts.reported = Instant::now();
        drop(counts);
        self.context.emit(Event::TrainingStep {
            sink: self.context.sink().to_owned(),
            epoch: 0,
            step,
            steps: self.series,
            loss,
            learning_rate: 0.0,
            unit: TrainingUnit::Group,
        });
    }
}
