//! The CUDA code against a driver with real semantics (`tests/fake_cuda`): streams on threads, late copies, events by
//! CUDA's rules. The driver itself reports buffers that change while a copy from them is queued.
//!
//! `FOREBAY_SEEDS=1000 cargo test --workspace --test forebay devices::cuda_driver` runs the long form.

use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, PinnedHostSlice, sys};
use forebay::connectors::{
    CHECKSUM_KERNEL, ComputeDevice, CudaDevice, DeliveredBatch, DeviceStage, HostDevice,
    check_accelerator, checksum, run_stage,
};
use forebay::feed::{
    BatchFeatures, BlockDataset, BlockSource, DatasetBlock, FeatureField, Feed, FeedOptions,
    HostMemory, SampleOrder, SlotAllocator, SlotMemory,
};
use forebay::model::ContentId;
use forebay::prelude::*;
use serde_json::Value;

use crate::support::{FOREBAY, ProgramOutput, TestDirectory, repository};

/// How many seeds a test goes through.
fn seeds(default: u64) -> u64 {
    std::env::var("FOREBAY_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// The library under the names that cudarc looks for.
fn libraries(shop: &TestDirectory, names: &[&str]) -> String {
    let built = std::env::current_exe()
        .unwrap()
        .with_file_name("libfake_cuda.so");
    assert!(
        built.exists(),
        "{} is built with this binary",
        built.display()
    );
    let dir = shop.path("libraries");
    std::fs::create_dir_all(&dir).unwrap();
    for name in names {
        let _ = symlink(&built, dir.join(name));
    }
    dir.display().to_string()
}

const ALL: [&str; 3] = ["libcuda.so", "libnvrtc.so", "libcublas.so"];

/// Runs a program on the fake driver.
fn on_driver(
    shop: &TestDirectory,
    mut command: Command,
    libraries: &str,
    environment: &[(&str, &str)],
) -> ProgramOutput {
    command
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKE_CUDA_REPORT", shop.path("report"));
    command
        .env("TMPDIR", shop.path(""))
        .envs(environment.iter().copied());
    command.output().unwrap().into()
}

/// What the driver has seen.
fn violations(shop: &TestDirectory) -> Vec<String> {
    let report = std::fs::read_to_string(shop.path("report")).unwrap_or_default();
    report
        .lines()
        .filter_map(|line| line.strip_prefix("violation: "))
        .map(str::to_owned)
        .collect()
}

// ---- batches through the ring ----

const BLOCKS: u32 = 16;
const BLOCK_ROWS: u32 = 256;
const BATCH_ROWS: u32 = 64;

/// Blocks of consecutive numbers.
struct NumberBlocks;

impl BlockSource for NumberBlocks {
    fn dataset(&self) -> BlockDataset {
        let block = DatasetBlock {
            rows: u64::from(BLOCK_ROWS),
            ..DatasetBlock::default()
        };
        BlockDataset::new(ContentId::of(b"numbers"), vec![block; BLOCKS as usize])
    }

    fn read(
        &self,
        block: u32,
        _columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let values = (block * BLOCK_ROWS..(block + 1) * BLOCK_ROWS).map(|value| value as f32);
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values(values));
        let _ = rows(RecordBatch::try_from_iter([("x", values)])?);
        Ok(Duration::ZERO)
    }
}

fn feed(allocator: Arc<dyn SlotAllocator>) -> Feed {
    let features = BatchFeatures {
        dense: vec![FeatureField::new("x")],
        ..BatchFeatures::default()
    };
    let mut config = FeedOptions::new(
        vec![Arc::new(NumberBlocks)],
        features,
        SampleOrder::shuffled(3, 1000),
    );
    (config.batch_rows, config.threads, config.slots) = (BATCH_ROWS, 2, 4);
    config.allocator = allocator;
    Feed::start(config).unwrap()
}

/// A device that is driven by a [`CudaDevice`].
trait CudaDriven: ComputeDevice<Memory = CudaSlice<u8>> {
    fn cuda(&self) -> &CudaDevice;
}

impl CudaDriven for CudaDevice {
    fn cuda(&self) -> &CudaDevice {
        self
    }
}

/// Computes the checksum of each batch on the device.
struct DeviceChecksums {
    kernel: CudaFunction,
    sums: Vec<CudaSlice<u64>>,
}

impl<D: CudaDriven> DeviceStage<D> for DeviceChecksums {
    fn step(&mut self, batch: DeliveredBatch<'_, D>) -> Result<()> {
        let cuda = batch.device.cuda();
        let mut sum = cuda.compute().alloc_zeros::<u64>(1).unwrap();
        cuda.add_checksum(&self.kernel, batch.memory, &mut sum.as_view_mut())?;
        self.sums.push(sum);
        Ok(())
    }
}

/// The same of each batch on the host.
struct HostChecksums(Vec<u64>);

impl DeviceStage<HostDevice> for HostChecksums {
    fn step(&mut self, batch: DeliveredBatch<'_, HostDevice>) -> Result<()> {
        self.0.push(checksum(batch.memory));
        Ok(())
    }
}

/// How many batches have another checksum than on the host.
fn wrong_batches<D: CudaDriven>(device: &D, slots: Arc<dyn SlotAllocator>) -> usize {
    let mut host = HostChecksums(Vec::new());
    run_stage(&mut feed(Arc::new(HostMemory)), &HostDevice, &mut host).unwrap();
    assert_eq!(host.0.len() as u32, BLOCKS * BLOCK_ROWS / BATCH_ROWS);
    let cuda = device.cuda();
    let mut stage = DeviceChecksums {
        kernel: cuda.kernel(CHECKSUM_KERNEL, "checksum").unwrap(),
        sums: Vec::new(),
    };
    run_stage(&mut feed(slots), device, &mut stage).unwrap();
    let sums: Vec<u64> = stage
        .sums
        .iter()
        .map(|sum| cuda.compute().clone_dtoh(sum).unwrap()[0])
        .collect();
    cuda.finish().unwrap();
    sums.iter()
        .zip(&host.0)
        .filter(|(device, host)| device != host)
        .count()
}

/// The mutation: a device whose slots wait for the event inside cudarc's slice, which is never recorded while
/// cudarc's tracking is off.
struct UnrecordedDevice(CudaDevice);

struct UnrecordedSlot(PinnedHostSlice<u8>);

impl SlotMemory for UnrecordedSlot {
    fn bytes(&self) -> &[u8] {
        self.0.as_slice().unwrap()
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        Ok(self.0.as_mut_slice().unwrap())
    }
}

impl SlotAllocator for UnrecordedDevice {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        #[allow(unsafe_code)]
        // SAFETY: it is set in the next line.
        let mut slice = unsafe {
            self.0
                .context()
                .alloc_pinned_with_flags::<u8>(bytes, sys::CU_MEMHOSTALLOC_PORTABLE)
        };
        slice.as_mut().unwrap().as_mut_slice().unwrap().fill(0);
        Ok(Box::new(UnrecordedSlot(slice.unwrap())))
    }
}

impl CudaDriven for UnrecordedDevice {
    fn cuda(&self) -> &CudaDevice {
        &self.0
    }
}

impl ComputeDevice for UnrecordedDevice {
    type Memory = CudaSlice<u8>;
    type Event = CudaEvent;

    fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>> {
        self.0.memory(bytes)
    }

    fn event(&self) -> Result<CudaEvent> {
        self.0.event()
    }

    fn copies_wait(&self, event: &CudaEvent) -> Result<()> {
        self.0.copies_wait(event)
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut CudaSlice<u8>) -> Result<()> {
        let any: &dyn std::any::Any = from;
        let slot: &UnrecordedSlot = any.downcast_ref().unwrap();
        self.0.copies().memcpy_htod(&slot.0, to).unwrap();
        Ok(())
    }

    fn record_copied(&self, event: &mut CudaEvent) -> Result<()> {
        self.0.record_copied(event)
    }

    fn compute_waits(&self, event: &CudaEvent) -> Result<()> {
        self.0.compute_waits(event)
    }

    fn record_computed(&self, event: &mut CudaEvent) -> Result<()> {
        self.0.record_computed(event)
    }

    fn finish(&self) -> Result<()> {
        self.0.finish()
    }
}

/// This binary again, with the driver in sight, for one of the tests that are `#[ignore]`d.
fn run_child_test(shop: &TestDirectory, test: &str, environment: &[(&str, &str)]) -> ProgramOutput {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("devices::cuda_driver::{test}"),
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    let libraries = libraries(shop, &ALL);
    on_driver(shop, command, &libraries, environment).expect(0)
}

#[test]
#[ignore = "runs as a child, with the driver in sight"]
fn child_checksums() {
    for opening in 0..seeds(100) {
        let cuda = CudaDevice::open(0).unwrap().unwrap();
        let slots = Arc::new(cuda.pinned());
        assert_eq!(wrong_batches(&cuda, slots), 0, "opening {opening}");
    }
}

#[test]
#[ignore = "runs as a child, with the driver in sight"]
fn child_unrecorded() {
    let wrong: usize = (0..10)
        .map(|_| {
            let device = UnrecordedDevice(CudaDevice::open(0).unwrap().unwrap());
            let slots = Arc::new(UnrecordedDevice(CudaDevice::open(0).unwrap().unwrap()));
            wrong_batches(&device, slots)
        })
        .sum();
    assert!(wrong > 0, "every batch arrived");
}

#[test]
#[ignore = "runs as a child, with the driver in sight"]
fn child_trainings() {
    for opening in 0..seeds(6) {
        let precision = if opening % 2 == 0 {
            Precision::F32
        } else {
            Precision::Bf16
        };
        let cuda = CudaDevice::open(0).unwrap().unwrap();
        assert_eq!(
            check_accelerator(&cuda, precision).unwrap(),
            None,
            "opening {opening}"
        );
    }
}

#[test]
fn every_batch_arrives_as_it_was_made() {
    let shop = TestDirectory::new();
    run_child_test(
        &shop,
        "child_checksums",
        &[("FAKE_CUDA_SEED", "1"), ("FAKE_CUDA_DELAY_US", "60")],
    );
    assert_eq!(violations(&shop), Vec::<String>::new());
}

#[test]
fn slots_without_an_event_of_their_own_are_seen() {
    let shop = TestDirectory::new();
    run_child_test(
        &shop,
        "child_unrecorded",
        &[("FAKE_CUDA_SEED", "1"), ("FAKE_CUDA_DELAY_US", "1500")],
    );
    let violations = violations(&shop);
    assert!(
        violations
            .iter()
            .any(|what| what == "a host buffer changed while a copy from it was queued")
    );
}

#[test]
fn trainings_on_the_driver_come_to_what_the_processor_comes_to() {
    let shop = TestDirectory::new();
    run_child_test(
        &shop,
        "child_trainings",
        &[("FAKE_CUDA_SEED", "2"), ("FAKE_CUDA_DELAY_US", "20")],
    );
    assert_eq!(violations(&shop), Vec::<String>::new());
    // Compiled once for each precision, whatever the number of trainings.
    assert_eq!(largest_count(&shop, "compile"), 2);
}

// ---- the program ----

const CUDA: &str = "device: cuda, precision: f32, epochs: 20";

fn spec(shop: &TestDirectory, device: &str) {
    shop.clicks("clicks", 400);
    let text = format!(
        "version: 1\nname: clicks\nsources:\n  clicks: {{ parquet: {{ path: clicks }} }}\nsteps:\n  rows:\n    \
         from: clicks\n    do:\n      - filter: \"f1 IS NOT NULL AND f2 IS NOT NULL\"\n      - log1p: {{ columns: [f1, f2] }}\n\
         sinks:\n  net:\n    from: rows\n    train: {{ path: out/net, model: mlp, hidden: [16], label: f1, dense: [f2], \
         categorical: [], batch_rows: 256, checkpoint_steps: 4, missing: 0, {device} }}\n"
    );
    shop.write("spec.yaml", &text);
}

fn run(shop: &TestDirectory, names: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    let libraries = libraries(shop, names);
    let mut environment = environment.to_vec();
    environment.push(("FAKE_CUDA_DELAY_US", "20"));
    on_driver(
        shop,
        shop.command(&["run", "spec.yaml", "--json"]),
        &libraries,
        &environment,
    )
}

/// The largest count of a kind that the driver wrote.
fn largest_count(shop: &TestDirectory, what: &str) -> u64 {
    let report = std::fs::read_to_string(shop.path("report")).unwrap();
    let counts = report.lines().filter_map(|line| {
        line.strip_prefix("count: ")?
            .strip_prefix(what)?
            .trim()
            .parse()
            .ok()
    });
    counts.max().unwrap()
}

#[test]
fn the_program_trains_on_the_driver_and_gives_the_same_bits_twice() {
    let shop = TestDirectory::new();
    spec(&shop, CUDA);
    let mut models = Vec::new();
    for seed in ["1", "2"] {
        for made in ["out", ".forebay"] {
            let _ = std::fs::remove_dir_all(shop.path(made));
        }
        let summary = run(&shop, &ALL, &[("FAKE_CUDA_SEED", seed)])
            .expect(0)
            .summary();
        assert_eq!(violations(&shop), Vec::<String>::new());
        let model = std::fs::read(shop.path("out/net/model.safetensors")).unwrap();
        models.push((summary["models"][0]["id"].clone(), model));
    }
    assert_eq!(models[0].0, models[1].0);
    assert!(models[0].1 == models[1].1, "other bits");
}

#[test]
fn a_device_that_fails_is_one_clear_fault_and_nothing_is_published() {
    struct DeviceFailureCase {
        device: &'static str,
        names: &'static [&'static str],
        environment: [(&'static str, String); 1],
        exit: i32,
        says: &'static [&'static str],
    }
    let cuda = CUDA;
    let healthy = TestDirectory::new();
    spec(&healthy, cuda);
    run(&healthy, &ALL, &[]).expect(0);
    // The trial comes first, and takes less than half of all calls.
    let lost = format!("lost:{}", largest_count(&healthy, "call") * 9 / 10);
    let fault = |kind: &str| [("FAKE_CUDA_FAULT", kind.to_owned())];
    let memory = [("FAKE_CUDA_MEMORY", "20000".to_owned())];
    let cases = [
        DeviceFailureCase {
            device: cuda,
            names: &ALL,
            environment: memory,
            exit: 78,
            says: &["out of memory"],
        },
        DeviceFailureCase {
            device: cuda,
            names: &ALL,
            environment: fault("launch:40"),
            exit: 78,
            says: &["launch"],
        },
        DeviceFailureCase {
            device: cuda,
            names: &ALL,
            environment: fault(&lost),
            exit: 75,
            says: &["GPU", "checkpoint"],
        },
        DeviceFailureCase {
            device: cuda,
            names: &ALL,
            environment: fault("old"),
            exit: 78,
            says: &["newer driver"],
        },
        DeviceFailureCase {
            device: cuda,
            names: &ALL,
            environment: fault("init"),
            exit: 78,
            says: &["does not work"],
        },
        DeviceFailureCase {
            device: cuda,
            names: &["libcuda.so", "libcublas.so"],
            environment: fault("none"),
            exit: 78,
            says: &[
                "NVRTC",
                "pip install nvidia-cuda-nvrtc",
                "leave `device` out",
            ],
        },
        DeviceFailureCase {
            device: "device: \"cuda:1\"",
            names: &ALL,
            environment: fault("none"),
            exit: 78,
            says: &["cuda:1", "Fake GPU 0"],
        },
    ];
    for DeviceFailureCase {
        device,
        names,
        environment,
        exit,
        says,
    } in cases
    {
        let shop = TestDirectory::new();
        spec(&shop, device);
        let given: Vec<_> = environment
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let call = run(&shop, names, &given);
        assert_eq!(
            call.code, exit,
            "{environment:?}: {}\n{}",
            call.stdout, call.stderr
        );
        let fault: &Value = &call.summary()["fault"];
        assert!(
            fault["code"].is_string(),
            "{environment:?}: {}",
            call.stdout
        );
        for words in says {
            assert!(
                call.stderr.contains(words),
                "{environment:?}: no `{words}` in {}",
                call.stderr
            );
        }
        assert!(
            !call.stderr.contains("panicked"),
            "{environment:?}: {}",
            call.stderr
        );
        assert!(
            !shop.path("out/.net.forebay/_manifest.json").exists(),
            "{environment:?}"
        );
        assert_eq!(violations(&shop), Vec::<String>::new(), "{environment:?}");
        if environment[0].1 == lost {
            let again = run(&shop, names, &[]).expect(0);
            assert!(
                again.stdout.contains(r#""event":"training_resumed""#),
                "{}",
                again.stdout
            );
        }
    }
}

#[test]
fn two_devices_are_told_apart() {
    let shop = TestDirectory::new();
    spec(&shop, "device: \"cuda:1\", precision: f32");
    run(&shop, &ALL, &[("FAKE_CUDA_DEVICES", "2")]).expect(0);
    let doctor = on_driver(
        &shop,
        shop.command(&["doctor"]),
        &libraries(&shop, &ALL),
        &[("FAKE_CUDA_DEVICES", "2")],
    );
    assert!(doctor.expect(0).stdout.contains("Fake GPU 0, Fake GPU 1"));
}

/// A line of `forebay doctor`, by its first word.
fn doctor_line<'a>(doctor: &'a ProgramOutput, name: &str) -> &'a str {
    let found = doctor
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(name));
    found
        .unwrap_or_else(|| panic!("no {name} in {}", doctor.stdout))
        .trim()
}

#[test]
fn doctor_tells_each_library_and_how_to_get_what_is_missing() {
    let shop = TestDirectory::new();
    let libraries = libraries(&shop, &["libcuda.so", "libcublas.so"]);
    let mut command = shop.command(&["doctor"]);
    // Without the real compiler of another place.
    for place in [
        "CUDA_HOME",
        "CUDA_PATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "HOME",
    ] {
        command.env(place, shop.path("empty"));
    }
    let doctor = on_driver(&shop, command, &libraries, &[]).expect(0);
    assert_eq!(doctor_line(&doctor, "cuda"), "Fake GPU 0");
    assert!(
        doctor_line(&doctor, "driver").starts_with("CUDA 13.0, /"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor_line(&doctor, "cuBLAS").starts_with("13.0.0, /"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor_line(&doctor, "cuBLAS").contains("libfake_cuda.so"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor_line(&doctor, "NVRTC").starts_with("not found: `pip install nvidia-cuda-nvrtc`"),
        "{}",
        doctor.stdout
    );
    // What was run on hardware is told alike by the program and by those who read about it.
    assert!(
        doctor_line(&doctor, "tried")
            .contains("trainings on NVIDIA H100 and H200, batches for PyTorch on H200, with CUDA 13.0 (benches/gpu/run)"),
        "{}",
        doctor.stdout
    );
    for file in [
        "README.md",
        "pipelines/python/README.md",
        "pipelines/GUIDE.md",
    ] {
        assert!(
            std::fs::read_to_string(repository().join(file))
                .unwrap()
                .contains("NVIDIA H200"),
            "{file}"
        );
    }
}

#[test]
fn an_incomplete_driver_is_told_by_name() {
    let shop = TestDirectory::new();
    let empty = PathBuf::from(libraries(&shop, &[])).join("libcuda.so");
    let source = shop.write(
        "empty.c",
        "int cuInit(unsigned int flags) { return flags; }\n",
    );
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&empty)
        .arg(source)
        .status()
        .unwrap();
    assert!(cc.success());
    let doctor = on_driver(
        &shop,
        shop.command(&["doctor"]),
        &libraries(&shop, &[]),
        &[],
    )
    .expect(0);
    assert!(
        doctor.stdout.contains("a driver that lacks `cu"),
        "{}",
        doctor.stdout
    );
    assert!(
        doctor_line(&doctor, "driver").starts_with("too old, lacks `cuCtxGetCurrent`"),
        "{}",
        doctor.stdout
    );
    spec(&shop, "device: cuda");
    let call = run(&shop, &[], &[]).expect(78);
    assert!(
        call.stderr.contains("a driver that lacks `cu"),
        "{}",
        call.stderr
    );
    assert_eq!(call.summary()["fault"]["code"], "FB0113");
}

// ---- benches/gpu ----

fn bench(shop: &TestDirectory, names: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    quick_bench(
        shop,
        bench_command(),
        &shop.at("no-python"),
        names,
        environment,
    )
}

fn bench_command() -> Command {
    let mut command = Command::new(repository().join("benches/gpu/run"));
    command.env("FOREBAY", FOREBAY);
    command
}

fn quick_bench(
    shop: &TestDirectory,
    mut command: Command,
    python: &str,
    names: &[&str],
    environment: &[(&str, &str)],
) -> ProgramOutput {
    command
        .arg("--quick")
        .env("PYTHON", python)
        .env("NO_COLOR", "1");
    let libraries = libraries(shop, names);
    let mut environment = environment.to_vec();
    environment.push(("FAKE_CUDA_DELAY_US", "20"));
    on_driver(shop, command, &libraries, &environment)
}

#[test]
fn the_bench_of_a_gpu_runs_to_its_table() {
    let shop = TestDirectory::new();
    let call = bench(&shop, &ALL, &[]).expect(0);
    assert_eq!(violations(&shop), Vec::<String>::new());
    assert!(
        call.stdout.starts_with("SIMULATION: `Fake GPU 0`"),
        "{}",
        call.stdout
    );
    let table: Vec<&str> = call
        .stdout
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    assert_eq!(table.len(), 2 + 8, "{}", call.stdout);
    let (measured, by_torch) = table[2..].split_at(6);
    assert!(
        measured.iter().all(|line| line.ends_with("| simulated |")),
        "{}",
        call.stdout
    );
    assert!(measured[2].contains("| 0 wrong; "), "{}", call.stdout);
    for line in by_torch {
        assert!(
            line.contains("no-python") && line.ends_with("| not run |"),
            "{}",
            call.stdout
        );
    }
    let left = std::fs::read_dir(shop.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert!(
        left.into_iter()
            .all(|name| !name.to_string_lossy().starts_with("tmp.")),
        "the data is left"
    );
}

#[test]
fn the_bench_of_a_gpu_shows_what_pytorch_answers() {
    let shop = TestDirectory::new();
    let asked = |lines: &str| {
        let python = shop.write("python", &format!("#!/bin/sh\n{lines}\n"));
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        quick_bench(&shop, bench_command(), &python, &ALL, &[])
    };
    let answer = r#"{"rows_per_second": 1000, "steps": 200, "starved_steps": 3, "h2d_bytes_per_second": 2e9, "alone": 5000, "peer": {"rows_per_second": 2000, "processes": 4}}"#;
    let answered = asked(&format!("echo warming up\necho '{answer}'")).expect(0);
    for told in [
        "| 1,000 rows/s; 3 of 200 steps starved (1.50 %); 2.00 GB/s to the device |",
        "| 5,000 rows/s; PyTorch's DataLoader of 4 processes 2,000 (2.5 times) |",
    ] {
        assert!(answered.stdout.contains(told), "{}", answered.stdout);
    }
    let failed = asked("echo 'no memory' >&2\nexit 3").expect(78);
    assert_eq!(
        failed
            .stdout
            .matches("PyTorch's loader failed: no memory")
            .count(),
        2,
        "{}",
        failed.stdout
    );
}

/// Packs a program; NVRTC has so many bytes.
fn bundle(
    shop: &TestDirectory,
    program: &str,
    nvrtc_bytes: usize,
    bytes_max: usize,
) -> ProgramOutput {
    std::fs::create_dir_all(shop.path("forebay")).unwrap();
    shop.write("forebay/__init__.py", "");
    let wheel = shop.path("forebay-1.whl");
    let zipped = Command::new("python3")
        .args(["-m", "zipfile", "-c"])
        .arg(&wheel)
        .arg(shop.path("forebay"))
        .status();
    assert!(zipped.unwrap().success());
    // Bytes that no compression makes fewer: those of a generator (xorshift).
    let next = |state: &u64| {
        let state = state ^ (state << 13);
        let state = state ^ (state >> 7);
        Some(state ^ (state << 17))
    };
    let bytes: Vec<u8> = std::iter::successors(Some(1_u64), next)
        .map(|state| state as u8)
        .take(nvrtc_bytes)
        .collect();
    std::fs::create_dir_all(shop.path("nvrtc")).unwrap();
    for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
        std::fs::write(shop.path("nvrtc").join(name), &bytes).unwrap();
    }
    let mut command = Command::new(repository().join("benches/gpu/bundle"));
    command
        .arg(shop.path("gpu.tar.xz"))
        .env("FOREBAY", program)
        .env("FOREBAY_WHEEL", wheel);
    command
        .env("FOREBAY_NVRTC", shop.path("nvrtc"))
        .env("BYTES_MAX", bytes_max.to_string())
        .env("TMPDIR", shop.path(""));
    command.output().unwrap().into()
}

#[test]
fn the_bundle_of_the_bench_runs_where_it_is_unpacked() {
    let shop = TestDirectory::new();
    // The program of these tests is too large to be packed again and again.
    let program = shop.write("program", &format!("#!/bin/sh\nexec '{FOREBAY}' \"$@\"\n"));
    bundle(&shop, &program, 0, 60 << 20).expect(0);
    let unpacked = Command::new("tar")
        .arg("-C")
        .arg(shop.path(""))
        .arg("-xf")
        .arg(shop.path("gpu.tar.xz"))
        .status();
    assert!(unpacked.unwrap().success());
    let at = shop.path("forebay-gpu");
    for file in [
        "run",
        "forebay",
        "train.yaml",
        "loader.py",
        "LICENSE",
        "python/forebay/__init__.py",
        "lib/libnvrtc.so.13",
    ] {
        assert!(at.join(file).exists(), "{file}");
    }
    let mut command = Command::new(at.join("run"));
    command.env_remove("FOREBAY").current_dir("/");
    let call = quick_bench(&shop, command, &shop.at("no-python"), &ALL, &[]).expect(0);
    assert_eq!(violations(&shop), Vec::<String>::new());
    assert_eq!(
        call.stdout.matches("| simulated |").count(),
        6,
        "{}",
        call.stdout
    );
}

#[test]
fn the_bundle_of_the_bench_is_bounded() {
    let shop = TestDirectory::new();
    let program = shop.write("program", "#!/bin/sh\n");
    let with = bundle(&shop, &program, 100_000, 1 << 20).expect(0);
    assert!(!with.stderr.contains("without NVRTC"), "{}", with.stderr);
    let without = bundle(&shop, &program, 100_000, 50_000).expect(0);
    assert!(
        without.stderr.contains("without NVRTC: the archive has"),
        "{}",
        without.stderr
    );
    let refused = bundle(&shop, &program, 100_000, 100).expect(1);
    assert!(
        refused
            .stderr
            .contains("the archive is larger than 100 bytes"),
        "{}",
        refused.stderr
    );
}

#[test]
fn the_bench_of_a_gpu_tells_what_is_missing_and_what_is_bad() {
    let shop = TestDirectory::new();
    let call = bench(&shop, &["libcuda.so", "libnvrtc.so"], &[]).expect(0);
    assert_eq!(
        call.stdout
            .matches("| cuBLAS is missing: `pip install nvidia-cublas`")
            .count(),
        4,
        "{}",
        call.stdout
    );
    let call = bench(&shop, &ALL, &[("FAKE_CUDA_FAULT", "launch:5")]).expect(78);
    assert!(call.stdout.contains("| FAILED |"), "{}", call.stdout);
    let call = bench(&shop, &ALL, &[("FAKE_CUDA_DEVICES", "0")]).expect(78);
    assert!(call.stdout.is_empty(), "{}", call.stdout);
    assert!(
        call.stderr
            .contains("there is no GPU to measure: a driver, but no device"),
        "{}",
        call.stderr
    );
}
