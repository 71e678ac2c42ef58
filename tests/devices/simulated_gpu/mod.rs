//! A device that trains without a GPU: the kernels' own source, compiled for the host, and two queues whose work
//! is done late and in any order that events allow. Memory that goes while it is in use, and slots that are
//! written while they are copied, are seen.

mod library;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forebay::connectors::{
    Accelerator, ColumnMajorProduct, ComputeDevice, DeviceKernels, MatrixProduct,
};
use forebay::feed::{SlotAllocator, SlotMemory};
use forebay::prelude::*;

use library::KernelLibrary;
pub use library::ThreadOrder;

enum SimulatedWork {
    Do(Box<dyn FnOnce() + Send>),
    Record { event: usize, nth: u64 },
    Wait { event: usize, nth: u64 },
}

#[derive(Default)]
struct SimulatedQueues {
    copies: VecDeque<SimulatedWork>,
    compute: VecDeque<SimulatedWork>,
    /// How often each event was recorded, and how many of these have come.
    recorded: Vec<u64>,
    come: BTreeMap<usize, u64>,
    random: u64,
    /// Steps of trainings that were begun.
    steps: u64,
}

impl SimulatedQueues {
    fn random(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Does the first work of a queue, if it can be done.
    fn advance(&mut self, of_copies: bool) -> bool {
        let queue = if of_copies {
            &mut self.copies
        } else {
            &mut self.compute
        };
        match queue.pop_front() {
            None => return false,
            Some(SimulatedWork::Wait { event, nth }) => {
                if self.come.get(&event).copied().unwrap_or(0) < nth {
                    queue.push_front(SimulatedWork::Wait { event, nth });
                    return false;
                }
            }
            Some(SimulatedWork::Record { event, nth }) => drop(self.come.insert(event, nth)),
            Some(SimulatedWork::Do(work)) => work(),
        }
        true
    }

    fn advance_some(&mut self) {
        for _ in 0..self.random() % 4 {
            let first = self.random().is_multiple_of(2);
            let _ = self.advance(first);
        }
    }

    fn finish(&mut self) {
        while self.advance(true) || self.advance(false) {}
        assert!(
            self.copies.is_empty() && self.compute.is_empty(),
            "the queues wait for each other"
        );
    }
}

/// A step, and a flag.
type StopRequest = (u64, Arc<AtomicBool>);

/// The device. Clones are the same one.
#[derive(Clone)]
pub struct SimulatedGpu {
    queues: Arc<Mutex<SimulatedQueues>>,
    threads: ThreadOrder,
    /// What is another way in the kernels' source, and how.
    changed: Option<(&'static str, &'static str)>,
    /// At which step a run is asked to stop, and by which flag.
    stop: Arc<Mutex<Option<StopRequest>>>,
    /// What was done that no device would bear.
    pub wrong: Arc<Mutex<Vec<&'static str>>>,
}

impl fmt::Debug for SimulatedGpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Simulated")
    }
}

impl SimulatedGpu {
    /// One whose queues advance as chance wants it.
    pub fn new(random: u64, threads: ThreadOrder) -> SimulatedGpu {
        let queues = Arc::new(Mutex::new(SimulatedQueues {
            random,
            ..SimulatedQueues::default()
        }));
        SimulatedGpu {
            queues,
            threads,
            changed: None,
            stop: Arc::default(),
            wrong: Arc::default(),
        }
    }

    /// The same with other kernels.
    pub fn changed(self, from: &'static str, to: &'static str) -> SimulatedGpu {
        SimulatedGpu {
            changed: Some((from, to)),
            ..self
        }
    }

    /// Asks a run to stop at a step.
    pub fn stop_at(&self, step: u64, flag: Arc<AtomicBool>) {
        *self.stop.lock().unwrap() = Some((step, flag));
    }

    fn lock(&self) -> MutexGuard<'_, SimulatedQueues> {
        self.queues.lock().unwrap()
    }

    fn put_work(&self, of_copies: bool, work: SimulatedWork) {
        let mut queues = self.lock();
        if of_copies {
            queues.copies.push_back(work)
        } else {
            queues.compute.push_back(work)
        }
        queues.advance_some();
    }

    fn wait(&self, of_copies: bool, event: usize) {
        let nth = self.lock().recorded[event];
        self.put_work(of_copies, SimulatedWork::Wait { event, nth });
    }

    fn record(&self, of_copies: bool, event: usize) {
        let nth = {
            let mut queues = self.lock();
            queues.recorded[event] += 1;
            queues.recorded[event]
        };
        self.put_work(of_copies, SimulatedWork::Record { event, nth });
    }

    /// Queues a copy. The owner of either side must wait until `left` is as before.
    fn copy_later(
        &self,
        of_copies: bool,
        from: u64,
        to: u64,
        bytes: usize,
        left: Option<Arc<AtomicU64>>,
    ) {
        if let Some(left) = &left {
            left.fetch_add(1, Ordering::SeqCst);
        }
        let work = move || {
            #[allow(unsafe_code)]
            // SAFETY: owners wait; memory that goes too early is seen by `SimulatedGpuMemory`.
            unsafe {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
            }
            if let Some(left) = left {
                left.fetch_sub(1, Ordering::SeqCst);
            }
        };
        self.put_work(of_copies, SimulatedWork::Do(Box::new(work)));
    }

    fn wait_for(&self, left: &AtomicU64) {
        while left.load(Ordering::SeqCst) > 0 {
            let mut queues = self.lock();
            let _ = queues.advance(true) || queues.advance(false);
        }
    }
}

/// Memory on the device.
pub struct SimulatedGpuMemory {
    words: Vec<u64>,
    bytes: usize,
    device: SimulatedGpu,
}

impl Drop for SimulatedGpuMemory {
    fn drop(&mut self) {
        let queues = self.device.lock();
        if !queues.copies.is_empty() || !queues.compute.is_empty() {
            self.device
                .wrong
                .lock()
                .unwrap()
                .push("memory went while it was in use");
        }
    }
}

fn address<T>(values: &[T]) -> u64 {
    values.as_ptr() as u64
}

impl ComputeDevice for SimulatedGpu {
    type Memory = SimulatedGpuMemory;
    type Event = usize;

    fn memory(&self, bytes: usize) -> Result<SimulatedGpuMemory> {
        Ok(SimulatedGpuMemory {
            words: vec![0; bytes.div_ceil(8)],
            bytes,
            device: self.clone(),
        })
    }

    fn event(&self) -> Result<usize> {
        let mut queues = self.lock();
        queues.recorded.push(0);
        Ok(queues.recorded.len() - 1)
    }

    fn copies_wait(&self, event: &usize) -> Result<()> {
        self.wait(true, *event);
        Ok(())
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut SimulatedGpuMemory) -> Result<()> {
        let any: &dyn std::any::Any = from;
        let slot = any
            .downcast_ref::<SimulatedGpuSlot>()
            .ok_or_else(|| Fault::internal("another slot"))?;
        assert!(slot.bytes.len() <= to.bytes);
        self.copy_later(
            true,
            address(&slot.bytes),
            address(&to.words),
            slot.bytes.len(),
            Some(slot.left.clone()),
        );
        Ok(())
    }

    fn record_copied(&self, event: &mut usize) -> Result<()> {
        self.record(true, *event);
        Ok(())
    }

    fn compute_waits(&self, event: &usize) -> Result<()> {
        self.wait(false, *event);
        Ok(())
    }

    fn record_computed(&self, event: &mut usize) -> Result<()> {
        self.record(false, *event);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.lock().finish();
        Ok(())
    }
}

/// What is read back later.
pub struct SimulatedReadback {
    bytes: Vec<u8>,
    left: Arc<AtomicU64>,
    device: SimulatedGpu,
}

impl Drop for SimulatedReadback {
    fn drop(&mut self) {
        self.device.wait_for(&self.left);
    }
}

impl Accelerator for SimulatedGpu {
    type Program = Arc<KernelLibrary>;
    type Letter = SimulatedReadback;

    fn slot_allocator(&self) -> Arc<dyn SlotAllocator> {
        Arc::new(self.clone())
    }

    fn load_program(&self, _: &DeviceKernels, precision: Precision) -> Result<Arc<KernelLibrary>> {
        Ok(KernelLibrary::of(precision, self.threads, self.changed))
    }

    fn address(&self, memory: &SimulatedGpuMemory) -> u64 {
        address(&memory.words)
    }

    fn upload(&self, bytes: &[u8], to: &mut SimulatedGpuMemory) -> Result<()> {
        assert!(bytes.len() <= to.bytes);
        let bytes = bytes.to_vec();
        let to = address(&to.words);
        #[allow(unsafe_code)]
        // SAFETY: as large, and memory that goes too early is seen by `SimulatedGpuMemory`.
        let work = move || unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len())
        };
        self.put_work(false, SimulatedWork::Do(Box::new(work)));
        Ok(())
    }

    fn download(&self, from: &SimulatedGpuMemory, bytes: &mut [u8]) -> Result<()> {
        self.lock().finish();
        let all = from.words.iter().flat_map(|word| word.to_ne_bytes());
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn allocate_readback(&self, bytes: usize) -> Result<SimulatedReadback> {
        Ok(SimulatedReadback {
            bytes: vec![0; bytes],
            left: Arc::default(),
            device: self.clone(),
        })
    }

    fn enqueue_readback(
        &self,
        from: &SimulatedGpuMemory,
        letter: &mut SimulatedReadback,
    ) -> Result<()> {
        let bytes = letter.bytes.len();
        assert!(bytes <= from.bytes);
        self.copy_later(
            false,
            address(&from.words),
            address(&letter.bytes),
            bytes,
            Some(letter.left.clone()),
        );
        Ok(())
    }

    fn wait_readback(&self, letter: &mut SimulatedReadback, bytes: &mut [u8]) -> Result<()> {
        self.wait_for(&letter.left);
        bytes.copy_from_slice(&letter.bytes);
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn launch(
        &self,
        program: &Arc<KernelLibrary>,
        kernel: &'static str,
        arguments: &[u64],
    ) -> Result<()> {
        assert!(arguments[0] > 0, "GPUs refuse kernels without threads");
        if kernel == "control" {
            let mut queues = self.lock();
            queues.steps += 1;
            if let Some((step, flag)) = &*self.stop.lock().unwrap() {
                flag.fetch_or(queues.steps == *step, Ordering::SeqCst);
            }
        }
        let kernel = program.kernel(kernel);
        let arguments = arguments.to_vec();
        // SAFETY: the caller's, and memory that goes too early is seen by `SimulatedGpuMemory`.
        self.put_work(
            false,
            SimulatedWork::Do(Box::new(move || unsafe { kernel(arguments.as_ptr()) })),
        );
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn multiply(&self, program: &Arc<KernelLibrary>, product: &MatrixProduct) -> Result<()> {
        let ColumnMajorProduct {
            a_transposed,
            b_transposed,
            m,
            n,
            k,
            a,
            lda,
            b,
            ldb,
            c,
            ldc,
        } = product.column_major();
        // What cuBLAS demands.
        assert!(m > 0 && n > 0 && k > 0 && ldc >= m);
        assert!(lda >= if a_transposed { k } else { m } && ldb >= if b_transposed { n } else { k });
        let multiply = program.product();
        let way_a = u64::from(a_transposed);
        let way_b = u64::from(b_transposed);
        // SAFETY: as above.
        let work = move || unsafe { multiply(way_a, way_b, m, n, k, a, lda, b, ldb, c, ldc) };
        self.put_work(false, SimulatedWork::Do(Box::new(work)));
        Ok(())
    }
}

/// A slot from which the device copies by itself.
struct SimulatedGpuSlot {
    bytes: Vec<u8>,
    /// Copies from here that are still to be done.
    left: Arc<AtomicU64>,
    device: SimulatedGpu,
}

impl Drop for SimulatedGpuSlot {
    fn drop(&mut self) {
        self.device.wait_for(&self.left);
    }
}

impl SlotMemory for SimulatedGpuSlot {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.device.wait_for(&self.left);
        Ok(&mut self.bytes)
    }
}

impl SlotAllocator for SimulatedGpu {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        Ok(Box::new(SimulatedGpuSlot {
            bytes: vec![0; bytes],
            left: Arc::default(),
            device: self.clone(),
        }))
    }
}
