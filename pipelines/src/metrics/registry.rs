//! Metrics by name, and their text.

use forebay_model::{Fault, Result};
use prometheus::core::Collector;
use prometheus::proto::LabelPair;
use prometheus::{
    Counter, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// The prefix of all names.
const PREFIX: &str = "forebay_";

/// Label with the name of the pipeline: files of several pipelines may be in one directory of
/// node_exporter, which refuses equal names with equal labels.
const PIPELINE_LABEL: &str = "pipeline";

/// Makes and registers metrics. Names come without the prefix.
#[derive(Default)]
pub(crate) struct MetricRegistry(Registry);

fn broken(error: prometheus::Error) -> Fault {
    Fault::internal("a metric that cannot be registered").cause(error)
}

fn name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

impl MetricRegistry {
    fn add<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> Result<M> {
        let metric = metric.map_err(broken)?;
        self.0.register(Box::new(metric.clone())).map_err(broken)?;
        Ok(metric)
    }

    pub fn counter(&self, of: &str, help: &str) -> Result<IntCounter> {
        self.add(IntCounter::new(name(of), help))
    }

    pub fn seconds_counter(&self, of: &str, help: &str) -> Result<Counter> {
        self.add(Counter::new(name(of), help))
    }

    pub fn gauge(&self, of: &str, help: &str) -> Result<Gauge> {
        self.add(Gauge::new(name(of), help))
    }

    pub fn int_gauge(&self, of: &str, help: &str) -> Result<IntGauge> {
        self.add(IntGauge::new(name(of), help))
    }

    pub fn counters(&self, of: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name(of), help), labels))
    }

    pub fn gauges(&self, of: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(name(of), help), labels))
    }

    pub fn int_gauges(&self, of: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name(of), help), labels))
    }

    pub fn histogram(&self, of: &str, help: &str, bounds: &[f64]) -> Result<Histogram> {
        let options = HistogramOpts::new(name(of), help).buckets(bounds.to_vec());
        self.add(Histogram::with_opts(options))
    }

    pub fn histograms(
        &self,
        of: &str,
        help: &str,
        bounds: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec> {
        let options = HistogramOpts::new(name(of), help).buckets(bounds.to_vec());
        self.add(HistogramVec::new(options, labels))
    }

    /// All metrics in the text format of Prometheus, with the name of a pipeline as a label.
    pub fn text(&self, pipeline: Option<&str>) -> Result<String> {
        let mut families = self.0.gather();
        if let Some(pipeline) = pipeline {
            for metric in families
                .iter_mut()
                .flat_map(|family| family.mut_metric().iter_mut())
            {
                let mut label = LabelPair::default();
                label.set_name(PIPELINE_LABEL.to_owned());
                label.set_value(pipeline.to_owned());
                let mut labels = metric.take_label();
                labels.push(label);
                labels.sort_by(|a, b| a.name().cmp(b.name()));
                metric.set_label(labels);
            }
        }
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&families, &mut text)
            .map_err(broken)?;
        String::from_utf8(text)
            .map_err(|error| Fault::internal("metrics that are no text").cause(error))
    }
}

/// Raises a counter to a total that was counted elsewhere.
pub(super) fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

/// Raises a counter of seconds to a total that was counted elsewhere.
pub(super) fn raise_seconds(counter: &Counter, to: f64) {
    counter.inc_by((to - counter.get()).max(0.0));
}
