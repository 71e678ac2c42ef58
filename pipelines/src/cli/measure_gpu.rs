//! `forebay measure-gpu`, which `benches/gpu/run` calls: measurements of a GPU, as one table.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use forebay_connectors::{
    CopyBenchmark, CudaDevice, DeliveryCheck, DeviceTrial, LossFunction, ModelKind, Precision,
    TrainConfig, TrialComparison, cuda_report, describe_cuda,
};
use forebay_generate::{ClicksOptions, clicks};
use forebay_model::{Fault, Result, codes};
use forebay_run::SessionOptions;
use forebay_storage::{Event, EventListener};
use serde_json::{Value, json};

use super::{doctor, write_stdout};
use crate::present::units;
use crate::settings::Settings;
use crate::{Forebay, spec};

/// Minimum ratio of the rate through the ring to that of plain copies.
const COPIES_SHARE_MIN: f64 = 0.95;

/// Maximum share of steps that may wait for a batch.
const STARVED_SHARE_MAX: f64 = 0.01;

/// Stretches of steps whose mean losses are compared.
const STRETCHES: usize = 20;

/// Name of the device of tests/fake_cuda.
const SIMULATED: &str = "Fake GPU";

/// Measure what a GPU does: copies, checksums, trainings, PyTorch's loader.
#[derive(Debug, Args)]
pub(crate) struct MeasureGpuCommand {
    /// The spec of the training.
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
    /// The program that measures PyTorch's loader.
    #[arg(long, value_name = "FILE")]
    loader: PathBuf,
    /// The interpreter that has PyTorch.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// An empty directory for data.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Small sizes, to see that everything works.
    #[arg(long)]
    quick: bool,
}

/// Sizes of the measurements.
struct GpuBenchSizes {
    copy_bytes: &'static [usize],
    copied_bytes: usize,
    rounds: usize,
    batches: u32,
    rows: u64,
    batch_rows: u32,
    width: u32,
    epochs: u32,
    trial: GpuTrialSizes,
}

/// Sizes of measurements that the processor repeats.
struct GpuTrialSizes {
    hidden: [u32; 2],
    columns: usize,
    block_rows: usize,
    blocks: usize,
    batch_rows: u32,
}

const FULL: GpuBenchSizes = GpuBenchSizes {
    copy_bytes: &[1 << 20, 4 << 20, 16 << 20, 64 << 20],
    copied_bytes: 8 << 30,
    rounds: 3,
    batches: 10_000,
    rows: 8_000_000,
    batch_rows: 8192,
    width: 2048,
    epochs: 3,
    trial: GpuTrialSizes {
        hidden: [256, 128],
        columns: 64,
        block_rows: 65_536,
        blocks: 32,
        batch_rows: 8192,
    },
};

const QUICK: GpuBenchSizes = GpuBenchSizes {
    copy_bytes: &[64 << 10, 256 << 10],
    copied_bytes: 4 << 20,
    rounds: 1,
    batches: 100,
    rows: 3000,
    batch_rows: 256,
    width: 8,
    epochs: 1,
    trial: GpuTrialSizes {
        hidden: [16, 8],
        columns: 6,
        block_rows: 1024,
        blocks: 2,
        batch_rows: 128,
    },
};

/// A line of the table.
struct GpuBenchRow {
    measure: String,
    outcome: GpuBenchOutcome,
}

/// Result of a measurement.
struct GpuBenchOutcome {
    found: String,
    target: String,
    verdict: GpuBenchVerdict,
}

impl GpuBenchOutcome {
    fn not_run(why: &str) -> GpuBenchOutcome {
        GpuBenchOutcome {
            found: why.to_owned(),
            target: String::new(),
            verdict: GpuBenchVerdict::NotRun,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuBenchVerdict {
    Met,
    Missed,
    Wrong,
    Failed,
    NotRun,
}

impl GpuBenchVerdict {
    fn of(met: bool) -> GpuBenchVerdict {
        if met {
            GpuBenchVerdict::Met
        } else {
            GpuBenchVerdict::Missed
        }
    }

    fn word(self, simulated: bool) -> &'static str {
        match self {
            GpuBenchVerdict::Met | GpuBenchVerdict::Missed if simulated => "simulated",
            GpuBenchVerdict::Met => "met",
            GpuBenchVerdict::Missed => "missed",
            GpuBenchVerdict::Wrong => "WRONG",
            GpuBenchVerdict::Failed => "FAILED",
            GpuBenchVerdict::NotRun => "not run",
        }
    }
}

impl MeasureGpuCommand {
    pub fn run(self) -> Result<ExitCode> {
        let begin = Instant::now();
        let Some(cuda) = CudaDevice::open(0)? else {
            let message = format!("there is no GPU to measure: {}", describe_cuda());
            return Err(Fault::new(codes::UNSUPPORTED, message)
                .hint("`forebay doctor` says what is missing"));
        };
        let name = cuda.name()?;
        let simulated = name.starts_with(SIMULATED);
        if simulated {
            write_stdout(&format!(
                "SIMULATION: `{name}` is a driver for tests on the processor; no figure is that \
                 of a GPU.\n\n"
            ))?;
        }
        write_stdout(&format!("{}\n", doctor::aligned(&doctor::cuda())))?;
        let mut table = GpuBenchTable {
            rows: Vec::new(),
            simulated,
        };
        let sizes = if self.quick { &QUICK } else { &FULL };
        let missing = |name: &str| {
            let library = cuda_report()
                .libraries
                .into_iter()
                .find(|library| library.name == name)?;
            library
                .remedy
                .map(|remedy| format!("{name} is missing: {remedy}"))
        };
        let compiler = missing("NVRTC");
        let products = missing("cuBLAS");
        let trainings = compiler.as_ref().or(products.as_ref());
        for bytes in sizes.copy_bytes {
            let measure = format!(
                "page-locked copies of {} KiB",
                units::grouped(*bytes as u64 >> 10)
            );
            table.add(measure, None, || measure_copies(&cuda, sizes, *bytes))?;
        }
        let measure = format!(
            "checksums of {} batches",
            units::grouped(u64::from(sizes.batches))
        );
        table.add(measure, compiler.as_ref(), || {
            measure_checksums(&cuda, sizes)
        })?;
        for (precision, word) in [(Precision::F32, "f32"), (Precision::Bf16, "bf16")] {
            let measure = format!("training in {word} beside the processor's");
            table.add(measure, trainings, || {
                compare_with_cpu(&cuda, &sizes.trial, precision)
            })?;
        }
        // Other contexts follow.
        drop(cuda);
        table.add("feed and training".to_owned(), trainings, || {
            self.measure_training(sizes)
        })?;
        let mut answer = None;
        table.add(
            "PyTorch's loader on the device".to_owned(),
            trainings,
            || {
                Ok(told_by_torch(
                    answer.insert(self.measure_loader(sizes)?),
                    training_by_torch,
                ))
            },
        )?;
        if let Some(answer) = answer {
            table.add("its batches, without a training".to_owned(), None, || {
                Ok(told_by_torch(&answer, batches_alone))
            })?;
        }
        write_stdout(&table.text(&name, begin.elapsed()))?;
        let bad = table
            .rows
            .iter()
            .filter(|row| {
                matches!(
                    row.outcome.verdict,
                    GpuBenchVerdict::Wrong | GpuBenchVerdict::Failed
                )
            })
            .count();
        match bad {
            0 => Ok(ExitCode::SUCCESS),
            bad => Err(Fault::new(
                codes::UNSUPPORTED,
                format!("{bad} of {} measurements are bad", table.rows.len()),
            )
            .hint("do not train on this GPU; report the table")),
        }
    }

    fn params(&self, sizes: &GpuBenchSizes) -> BTreeMap<String, String> {
        let param = |name: &str, value: String| (name.to_owned(), value);
        [
            param("log", self.work.join("clicks").display().to_string()),
            param("out", self.work.join("out").display().to_string()),
            param("width", sizes.width.to_string()),
            param("batch_rows", sizes.batch_rows.to_string()),
            param("epochs", sizes.epochs.to_string()),
        ]
        .into()
    }

    fn state(&self) -> String {
        self.work.join("state").display().to_string()
    }

    /// A run of the spec on generated rows.
    fn measure_training(&self, sizes: &GpuBenchSizes) -> Result<GpuBenchOutcome> {
        clicks(
            &ClicksOptions::new(sizes.rows, 1, self.work.join("clicks")),
            &mut |_| {},
        )?;
        let file = self.spec.display().to_string();
        let text = spec::read_text(&self.spec)?;
        let forebay = Forebay::new();
        let pipeline = spec::parse(&text, &file, &self.params(sizes), &forebay.spec_catalog())?;
        let epochs = Arc::new(TrainingEpochWatch::default());
        let settings = Settings::load()?;
        let options = SessionOptions {
            threads: settings.threads(None)?.value,
            memory_bytes: settings.memory_bytes(None)?.value,
            batch_rows: forebay_model::BATCH_ROWS_DEFAULT,
            state: self.state(),
            run_id: None,
        };
        let report = forebay
            .clone()
            .with_options(options)
            .with_listener(epochs.clone())
            .session()?
            .run(&pipeline)?;
        let learned = report.models.first().map(|model| &model.learned);
        let learned = learned.ok_or_else(|| Fault::internal("the spec trains no model"))?;
        let steps = learned.epochs.last().map_or(0, |epoch| epoch.step);
        let totals = epochs.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = learned.rows * learned.epochs.len() as u64;
        Ok(starvation(&ConsumerFigures {
            rows_per_second: rows as f64 / totals.seconds.max(f64::MIN_POSITIVE),
            steps,
            starved: totals.starved,
            more: format!("waited {:.1} s of {:.1} s", totals.waited, totals.seconds),
        }))
    }

    /// Delivers equal rows through PyTorch's loader and through its own DataLoader, in a separate
    /// program; returns its result.
    fn measure_loader(&self, sizes: &GpuBenchSizes) -> Result<Value> {
        let job = json!({
            "spec": self.spec,
            "params": self.params(sizes),
            "state": self.state(),
            "label": "label",
            "batch_rows": sizes.batch_rows,
            "width": sizes.width,
        });
        let done = match Command::new(&self.python)
            .arg(&self.loader)
            .arg(job.to_string())
            .output()
        {
            Ok(done) => done,
            Err(error) => {
                let why = format!("`{}` does not start: {error}", self.python.display());
                return Ok(json!({ "not_run": why }));
            }
        };
        let text = String::from_utf8_lossy(&done.stdout);
        let answer: Option<Value> = text
            .lines()
            .last()
            .and_then(|line| serde_json::from_str(line).ok());
        answer.filter(|_| done.status.success()).ok_or_else(|| {
            let output = String::from_utf8_lossy(&done.stderr);
            let last = output
                .lines()
                .last()
                .unwrap_or("it says nothing")
                .to_owned();
            Fault::new(codes::STORAGE, format!("PyTorch's loader failed: {last}"))
        })
    }
}

/// Result of PyTorch's program, or the reason why it did not run.
fn told_by_torch(answer: &Value, outcome: fn(&Value) -> GpuBenchOutcome) -> GpuBenchOutcome {
    answer["not_run"]
        .as_str()
        .map_or_else(|| outcome(answer), GpuBenchOutcome::not_run)
}

/// A training of PyTorch on the loader's batches.
fn training_by_torch(answer: &Value) -> GpuBenchOutcome {
    let number = |name: &str| answer[name].as_f64();
    starvation(&ConsumerFigures {
        rows_per_second: number("rows_per_second").unwrap_or(0.0),
        steps: number("steps").unwrap_or(0.0) as u64,
        starved: number("starved_steps").unwrap_or(0.0) as u64,
        more: number("h2d_bytes_per_second").map_or_else(String::new, |rate| {
            format!("{} to the device", per_second(rate))
        }),
    })
}

/// Throughput of the loader, compared with PyTorch's DataLoader.
fn batches_alone(answer: &Value) -> GpuBenchOutcome {
    let alone = answer["alone"].as_f64().unwrap_or(0.0);
    let peer = answer["peer"]["rows_per_second"]
        .as_f64()
        .unwrap_or(f64::INFINITY);
    GpuBenchOutcome {
        found: format!(
            "{} rows/s; PyTorch's DataLoader of {} processes {} ({:.1} times)",
            units::grouped(alone as u64),
            answer["peer"]["processes"],
            units::grouped(peer as u64),
            alone / peer
        ),
        target: "at least the DataLoader's".to_owned(),
        verdict: GpuBenchVerdict::of(alone >= peer),
    }
}

/// Throughput and waits of a consumer.
struct ConsumerFigures {
    rows_per_second: f64,
    steps: u64,
    starved: u64,
    more: String,
}

fn starvation(fed: &ConsumerFigures) -> GpuBenchOutcome {
    let share = fed.starved as f64 / (fed.steps as f64).max(1.0);
    let remark = if fed.more.is_empty() {
        String::new()
    } else {
        format!("; {}", fed.more)
    };
    GpuBenchOutcome {
        found: format!(
            "{} rows/s; {} of {} steps starved ({:.2} %){remark}",
            units::grouped(fed.rows_per_second as u64),
            units::grouped(fed.starved),
            units::grouped(fed.steps),
            share * 100.0
        ),
        target: "< 1 % of steps starved".to_owned(),
        verdict: GpuBenchVerdict::of(fed.steps > 0 && share < STARVED_SHARE_MAX),
    }
}

/// Sums over the trainings of a run.
#[derive(Default)]
struct TrainingEpochWatch(Mutex<TrainingTotals>);

#[derive(Default)]
struct TrainingTotals {
    seconds: f64,
    waited: f64,
    starved: u64,
}

impl EventListener for TrainingEpochWatch {
    fn on_event(&self, event: Event) {
        if let Event::TrainingEpoch {
            seconds,
            wait_seconds,
            starved_steps,
            ..
        } = event
        {
            let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            totals.seconds += seconds;
            totals.waited += wait_seconds;
            totals.starved += starved_steps;
        }
    }
}

fn per_second(bytes: f64) -> String {
    format!("{:.2} GB/s", bytes / 1e9)
}

fn measure_copies(
    cuda: &CudaDevice,
    sizes: &GpuBenchSizes,
    bytes: usize,
) -> Result<GpuBenchOutcome> {
    let rates = CopyBenchmark {
        bytes,
        count: sizes.copied_bytes / bytes,
        rounds: sizes.rounds,
    }
    .measure(cuda)?;
    let share = rates.ring / rates.plain.max(f64::MIN_POSITIVE);
    Ok(GpuBenchOutcome {
        found: format!(
            "{} with the ring's events; plain loop {} ({:.1} %)",
            per_second(rates.ring),
            per_second(rates.plain),
            share * 100.0
        ),
        target: "95 % of the plain loop".to_owned(),
        verdict: GpuBenchVerdict::of(share >= COPIES_SHARE_MIN),
    })
}

fn measure_checksums(cuda: &CudaDevice, sizes: &GpuBenchSizes) -> Result<GpuBenchOutcome> {
    let threads = Settings::load()?.threads(None)?.value;
    let arrived = DeliveryCheck {
        batches: sizes.batches,
        batch_rows: 2 * sizes.batch_rows,
        threads,
    }
    .check_batches(cuda)?;
    Ok(GpuBenchOutcome {
        found: format!(
            "{} wrong; {} in all at {}",
            arrived.wrong,
            units::bytes(arrived.stats.bytes),
            per_second(arrived.stats.bytes_per_second())
        ),
        target: "0 wrong".to_owned(),
        verdict: if arrived.wrong == 0 {
            GpuBenchVerdict::Met
        } else {
            GpuBenchVerdict::Wrong
        },
    })
}

fn compare_with_cpu(
    cuda: &CudaDevice,
    sizes: &GpuTrialSizes,
    precision: Precision,
) -> Result<GpuBenchOutcome> {
    let train = TrainConfig {
        model: ModelKind::Mlp,
        loss: Some(LossFunction::Logistic),
        hidden: Some(sizes.hidden.to_vec()),
        clip_norm: Some(1.0),
        warmup_steps: 20,
        batch_rows: Some(sizes.batch_rows),
        ..TrainConfig::default()
    };
    let GpuTrialSizes {
        columns,
        block_rows,
        blocks,
        ..
    } = *sizes;
    let threads = Settings::load()?.threads(None)?.value;
    let compared = DeviceTrial {
        train,
        columns,
        block_rows,
        blocks,
        threads,
    }
    .compare(cuda, precision)?;
    let difference = compared.difference(STRETCHES);
    let tolerance = TrialComparison::tolerance(precision);
    let rate = |stats: &forebay_feed::FeedStats| {
        units::grouped((stats.rows as f64 / stats.wall.as_secs_f64().max(f64::MIN_POSITIVE)) as u64)
    };
    Ok(GpuBenchOutcome {
        found: format!(
            "losses {:.3} % apart, {} bits again; {} rows/s, processor {}",
            difference * 100.0,
            if compared.repeats {
                "the same"
            } else {
                "OTHER"
            },
            rate(&compared.stats),
            rate(&compared.host_stats)
        ),
        target: format!("at most {:.1} % apart, the same bits", tolerance * 100.0),
        verdict: if compared.repeats && difference <= tolerance {
            GpuBenchVerdict::Met
        } else {
            GpuBenchVerdict::Wrong
        },
    })
}

struct GpuBenchTable {
    rows: Vec<GpuBenchRow>,
    simulated: bool,
}

impl GpuBenchTable {
    /// Measures, unless something is missing. A fault is a line, too, so that the others follow.
    fn add(
        &mut self,
        measure: String,
        missing: Option<&String>,
        measured: impl FnOnce() -> Result<GpuBenchOutcome>,
    ) -> Result<()> {
        let outcome = match missing {
            Some(missing) => Ok(GpuBenchOutcome::not_run(missing)),
            None => measured(),
        };
        let failed = |fault: Fault| GpuBenchOutcome {
            found: fault.to_string(),
            target: String::new(),
            verdict: GpuBenchVerdict::Failed,
        };
        let outcome = outcome.unwrap_or_else(failed);
        write_stdout(&format!(
            "{measure}: {} [{}]\n",
            outcome.found,
            outcome.verdict.word(self.simulated)
        ))?;
        self.rows.push(GpuBenchRow { measure, outcome });
        Ok(())
    }

    fn text(&self, device: &str, took: Duration) -> String {
        let mut text = format!("\n| {device} | measured | target | |\n|---|---|---|---|\n");
        for GpuBenchRow {
            measure,
            outcome:
                GpuBenchOutcome {
                    found: finding,
                    target,
                    verdict,
                },
        } in &self.rows
        {
            let word = verdict.word(self.simulated);
            text += &format!(
                "| {measure} | {} | {target} | {word} |\n",
                finding.replace('|', "/")
            );
        }
        text + &format!(
            "\nforebay {}, {}\n",
            env!("CARGO_PKG_VERSION"),
            units::duration(took)
        )
    }
}
