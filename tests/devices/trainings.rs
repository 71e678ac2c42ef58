//! Trainings on a device, simulated: the kernels that GPUs get, on queues that are late. They come close to what
//! the processor computes, give the same bits again and in any order of threads, and go on where they were stopped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use forebay::connectors::{BuiltInConnectors, TrialComparison, check_accelerator, describe_cuda};
use forebay::model::codes;
use forebay::plan::SqlCompiler;
use forebay::prelude::*;
use forebay::run::{
    ConnectorRegistry, EventListener, Sink, Source, Trainer, TrainingContext, TrainingOutput,
};
use forebay::{Event, Session, SessionOptions};
use serde_json::Value;

use crate::devices::simulated_gpu::{SimulatedGpu, ThreadOrder};
use crate::support::TestDirectory;

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

#[test]
fn a_device_computes_what_the_processor_does() {
    for (random, precision) in PRECISIONS.into_iter().enumerate() {
        for threads in [ThreadOrder::Forwards, ThreadOrder::Backwards] {
            let device = SimulatedGpu::new(random as u64, threads);
            assert_eq!(
                check_accelerator(&device, precision).unwrap(),
                None,
                "{precision:?}, {threads:?}"
            );
            assert_eq!(*device.wrong.lock().unwrap(), Vec::<&str>::new());
        }
    }
}

#[test]
fn a_device_that_computes_otherwise_is_found_out() {
    for (from, to) in [
        // Each of the things that kernels do, not quite so.
        ("(u64)id + 1 : 0;", "(u64)id : 0;"),
        ("value > 0.0f ? value : 0.0f", "value"),
        ("if (a->mask && a->mask[i] == 0)", "if (0)"),
        ("i64 id = ids[column->place];", "i64 id = ids[0];"),
        (
            "own.moves = of != 0 && stamps[column->rows_start + of]",
            "own.moves = of != 0 && stamps[of]",
        ),
        (
            "slope = (float)(1.0 / (1.0 + exp(-wide))) - label;",
            "slope = (float)(1.0 / (1.0 + exp(-wide)));",
        ),
        (
            "> 0.0f ? to_real(a->sums[i]) : to_real(0.0f)",
            "> 0.0f ? to_real(a->sums[i]) : to_real(a->sums[i])",
        ),
        ("scale *= (float)(a->norm_max / norm);", "scale *= 1.0f;"),
        ("a->control[0] = scale;", "a->control[0] = 1.0f;"),
        ("a->sums[at] = 0;", ""),
        ("(double)(i64)sums[value]", "(double)sums[value]"),
        ("own.moves = of != 0 &&", "own.moves = of == 0 &&"),
        (
            "a->copy[(i / a->width) * a->stride + i % a->width] = to_real(value);",
            "",
        ),
        ("a->first + (i % a->columns_count) * a->step", "a->first"),
    ] {
        let device = SimulatedGpu::new(1, ThreadOrder::Forwards).changed(from, to);
        let wrong = check_accelerator(&device, Precision::F32).unwrap();
        assert!(wrong.is_some(), "no test sees that `{from}` is `{to}`");
    }
}

/// Everything as it comes with Forebay, but that models are trained on a simulated device.
struct SimulatedConnectors(SimulatedGpu, Precision);

#[derive(Debug)]
struct SimulatedTrainer {
    train: TrainConfig,
    device: SimulatedGpu,
    precision: Precision,
}

impl ConnectorRegistry for SimulatedConnectors {
    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        BuiltInConnectors.source(format, config)
    }

    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        BuiltInConnectors.canonical(format, config)
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        BuiltInConnectors.sink(format, config)
    }

    fn trainer(&self, _format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        let train = serde_json::from_value(config.clone()).unwrap();
        Ok(Arc::new(SimulatedTrainer {
            train,
            device: self.0.clone(),
            precision: self.1,
        }))
    }
}

impl Trainer for SimulatedTrainer {
    fn path(&self) -> Option<&str> {
        Trainer::path(&self.train)
    }

    fn feed(&self) -> FeedConfig {
        self.train.feed()
    }

    fn validation(&self) -> Option<&str> {
        Trainer::validation(&self.train)
    }

    fn identity(&self) -> Result<Value> {
        Ok(serde_json::json!([
            "simulated",
            self.precision,
            self.train.identity()?
        ]))
    }

    fn train(&self, course: &TrainingContext<'_>) -> Result<TrainingOutput> {
        self.train.train_on(course, &self.device, self.precision)
    }
}

/// Keeps what is told.
#[derive(Default)]
struct RecordedEvents(Mutex<Vec<Event>>);

impl EventListener for RecordedEvents {
    fn on_event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A shop with a spec whose model learns from numbers, ids and weights.
fn shop(train: &str) -> (TestDirectory, Pipeline) {
    let shop = TestDirectory::new();
    let data = shop.clicks("clicks", 400);
    let out = shop.at("out/net");
    let text = format!(
        r#"
version: 1
name: clicks
sources:
  clicks: {{ parquet: {{ path: "{data}" }} }}
steps:
  features:
    from: clicks
    fit_on: train
    do:
      - impute: {{ columns: [f1, f2], with: median }}
      - log1p: {{ columns: [f1, f2] }}
      - standardize: {{ columns: [f1, f2] }}
      - vocabulary: {{ columns: [c6, c7], min_count: 2, oov_buckets: 1 }}
      - derive: {{ y: "CASE WHEN f1 - f2 + CASE WHEN c6 % 2 = 0 THEN 1 ELSE -1 END > 0 THEN 1 ELSE 0 END" }}
      - derive: {{ z: "f1 * 2 + 1" }}
      - derive: {{ w: "1.5 - y" }}
      - select: [f1, f2, c6, c7, y, z, w]
split: {{ by_hash: {{ keys: [f1], parts: {{ train: 0.5, validation: 0.1, rest: 0.4 }} }} }}
sinks:
  net: {{ from: features, train: {{ path: "{out}", dense: [f1, f2], categorical: [c6, c7], weight: w, {train} }} }}
"#
    );
    let pipeline = forebay::spec::parse(
        &text,
        "spec.yaml",
        &BTreeMap::new(),
        &Forebay::new().spec_catalog(),
    )
    .unwrap();
    (shop, pipeline)
}

const MLP: &str = "model: mlp, loss: logistic, label: y, hidden: [16, 8], embeddings: { c6: 4 }, batch_rows: 256, \
                   epochs: 3, seed: 5, learning_rate: 0.01, clip_norm: 1.0, warmup_steps: 3, patience_epochs: 3, \
                   checkpoint_steps: 4";

fn options(shop: &TestDirectory, state: &str, threads: usize) -> SessionOptions {
    SessionOptions {
        threads,
        memory_bytes: 1 << 30,
        batch_rows: 300,
        state: shop.at(state),
        run_id: None,
    }
}

fn simulated_session(
    shop: &TestDirectory,
    state: &str,
    device: &SimulatedGpu,
    precision: Precision,
    watch: Arc<RecordedEvents>,
) -> Session {
    let sql =
        SqlCompiler::default().with_exact(forebay::transforms::relational::exact_aggregates());
    let registry = Forebay::new().registry;
    let threads = 1 + state.len() % 3;
    Session::new(
        registry,
        Arc::new(SimulatedConnectors(device.clone(), precision)),
        sql,
        options(shop, state, threads),
        watch,
    )
    .unwrap()
}

fn train(
    shop: &TestDirectory,
    pipeline: &Pipeline,
    state: &str,
    device: &SimulatedGpu,
    precision: Precision,
) -> RunReport {
    let report = simulated_session(shop, state, device, precision, Arc::default())
        .run(pipeline)
        .unwrap();
    assert_eq!(*device.wrong.lock().unwrap(), Vec::<&str>::new());
    report
}

fn bytes(shop: &TestDirectory) -> Vec<u8> {
    std::fs::read(shop.path("out/net/model.safetensors")).unwrap()
}

#[test]
fn models_of_a_device_are_close_to_those_of_the_processor_and_the_same_every_time() {
    let logistic = "model: logistic, label: y, batch_rows: 300, epochs: 2, learning_rate: 0.1";
    let linear =
        "model: linear, label: z, batch_rows: 256, epochs: 3, learning_rate: 0.2, clip_norm: 1.0";
    for (spec, metric, precision) in [
        (MLP, "auc", Precision::Bf16),
        (logistic, "log_loss", Precision::F32),
        (linear, "rmse", Precision::Bf16),
    ] {
        let (shop, pipeline) = shop(spec);
        let session = Forebay::new()
            .with_options(options(&shop, "cpu", 2))
            .session()
            .unwrap();
        let cpu = session.run(&pipeline).unwrap().models.remove(0);
        let of = |state: &str, random, threads| {
            let device = SimulatedGpu::new(random, threads);
            let state = format!("{state}_{precision:?}");
            let model = train(&shop, &pipeline, &state, &device, precision)
                .models
                .remove(0);
            (model, bytes(&shop))
        };
        let (model, first) = of("first", 1, ThreadOrder::Forwards);
        assert_ne!(model.id, cpu.id);
        assert_eq!(model.learned.curve.len(), cpu.learned.curve.len());
        let tolerance = TrialComparison::tolerance(precision);
        // AdamW begins with steps of one size, whose side is chance where a gradient is nothing but noise.
        let (curve, wanted) = (&model.learned.curve, &cpu.learned.curve);
        for ((step, loss), (_, wanted)) in curve.iter().zip(wanted).skip(curve.len() / 2) {
            assert!(
                (loss - wanted).abs() <= tolerance * wanted.max(curve[0].1 / 5.0),
                "{spec}, {precision:?}, step {step}: {loss}, not {wanted}"
            );
        }
        let last = |learned: &forebay::run::TrainingReport| {
            learned.epochs.last().unwrap().validation[metric]
        };
        let last_loss = last(&model.learned);
        let wanted = last(&cpu.learned);
        assert!(
            (last_loss - wanted).abs() <= 0.05 * wanted.max(0.2),
            "{spec}, {precision:?}: {last_loss}, not {wanted}"
        );
        if spec == MLP {
            // Other threads of the host, other delays, another order of the device's threads.
            let (again, second) = of("again", 3, ThreadOrder::Backwards);
            assert_eq!(again.learned, model.learned);
            assert!(second == first, "other bits");
        }
    }
}

#[test]
fn a_training_on_a_device_goes_on_where_it_was_stopped() {
    let (shop, pipeline) = shop(MLP);
    let calm = SimulatedGpu::new(1, ThreadOrder::Forwards);
    train(&shop, &pipeline, "calm", &calm, Precision::Bf16);
    let wanted = bytes(&shop);
    for (turn, stop_at) in [6, 23].into_iter().enumerate() {
        std::fs::remove_dir_all(shop.path("out")).unwrap();
        let state = format!("stopped{turn}");
        let device = SimulatedGpu::new(turn as u64 + 7, ThreadOrder::Forwards);
        let session = simulated_session(&shop, &state, &device, Precision::Bf16, Arc::default());
        device.stop_at(stop_at, session.interrupt().flag());
        assert_eq!(
            session.run(&pipeline).unwrap_err().code(),
            codes::INTERRUPTED
        );
        let told = Arc::new(RecordedEvents::default());
        let again = SimulatedGpu::new(turn as u64, ThreadOrder::Backwards);
        simulated_session(&shop, &state, &again, Precision::Bf16, told.clone())
            .run(&pipeline)
            .unwrap();
        let resumed = |event: &Event| matches!(event, Event::TrainingResumed { step, .. } if *step >= stop_at);
        assert!(
            told.0.lock().unwrap().iter().any(resumed),
            "stopped at {stop_at}: not gone on with"
        );
        assert!(
            bytes(&shop) == wanted,
            "stopped at {stop_at}: another model"
        );
    }
}

#[test]
fn what_goes_wrong_on_a_device_is_told_as_on_the_processor() {
    for (train, code) in [
        ("model: logistic, label: z", codes::BAD_ROW),
        (
            "model: mlp, label: z, epochs: 2, learning_rate: 1e30, batch_rows: 512",
            codes::NOT_FINITE,
        ),
        (
            "model: mlp, label: y, batch_rows: 200000000, embeddings: { c6: 30 }",
            codes::LIMIT,
        ),
    ] {
        let (shop, pipeline) = shop(train);
        let device = SimulatedGpu::new(4, ThreadOrder::Forwards);
        let session = simulated_session(&shop, "state", &device, Precision::Bf16, Arc::default());
        let fault = session.run(&pipeline).unwrap_err();
        assert_eq!(fault.code(), code, "{train}: {fault}");
        assert!(!shop.path("out/.net.forebay/_manifest.json").exists());
        assert_eq!(*device.wrong.lock().unwrap(), Vec::<&str>::new());
    }
}

#[test]
fn a_gpu_that_is_asked_for_is_there_or_the_run_says_so() {
    let (shop, _) = shop(MLP);
    let spec = |more: &str| {
        let text = format!(
            "version: 1\nname: clicks\nsources:\n  clicks: {{ parquet: {{ path: clicks }} }}\nsteps:\n  \
             rows:\n    from: clicks\n    do: [{{ filter: \"f1 IS NOT NULL\" }}]\nsinks:\n  net:\n    \
             from: rows\n    train: {{ path: out/net, label: f1, dense: [f2], categorical: [], missing: 0, {more} }}\n"
        );
        shop.write("spec.yaml", &text);
        shop.forebay(&["run", "spec.yaml", "--json"])
    };
    for (wrong, words) in [
        (
            "device: gpu",
            "`gpu` is not one of `cpu`, `auto`, `cuda`, `cuda:1`",
        ),
        ("device: cuda:-1", "is not one of"),
        ("precision: bf16", "`bf16` is for a GPU"),
    ] {
        let call = spec(wrong);
        assert!(
            call.stderr.contains(words) && call.stderr.contains("FB0104"),
            "{wrong}: {}",
            call.stderr
        );
        call.expect(78);
    }
    // No machine has so many.
    let call = spec("device: \"cuda:99\"");
    for words in ["FB0113", "`device: cuda:99`", "forebay doctor"] {
        assert!(call.stderr.contains(words), "{}", call.stderr);
    }
    call.expect(78);
    assert!(
        !shop.path(".forebay/passes").exists(),
        "it is seen before anything is done"
    );
    if !describe_cuda().starts_with("no driver") {
        return;
    }
    let cpu = spec("device: cpu").expect(0).summary();
    let auto = spec("device: auto, precision: bf16").expect(0).summary();
    assert_eq!(
        (&auto["models"][0]["id"], &auto["models"][0]["reused"]),
        (&cpu["models"][0]["id"], &Value::Bool(true))
    );
}
