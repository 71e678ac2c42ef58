//! Memory for what an operator makes of a batch.

use std::sync::Arc;

use forebay_model::{AdmittedMemory, Result};
use forebay_plan::{ADMITTED_BYTES_MIN, AdmitBytes, CheckStop};
use forebay_storage::MemoryBudget;

/// The memory of a run for an operator of the query engine, which must not wait on a thread of the engine.
pub fn admission(memory: MemoryBudget) -> AdmitBytes {
    Arc::new(move |bytes| {
        if bytes < ADMITTED_BYTES_MIN {
            return Ok(AdmittedMemory::default());
        }
        reserve(memory, bytes, &mut || false)
    })
}

/// The memory of a run for what the steps make of its rows. A step waits while others make what they reserved, and stops
/// with its run.
pub fn waiting_admission(memory: MemoryBudget, check_stop: CheckStop) -> AdmitBytes {
    Arc::new(move |bytes| {
        if bytes < ADMITTED_BYTES_MIN {
            return Ok(AdmittedMemory::default());
        }
        let admitted = reserve(memory, bytes, &mut || check_stop().is_ok());
        if admitted.is_err() {
            check_stop()?;
        }
        admitted
    })
}

fn reserve(
    memory: MemoryBudget,
    bytes: usize,
    waits: &mut dyn FnMut() -> bool,
) -> Result<AdmittedMemory> {
    match memory.reserve(bytes as u64, waits) {
        Ok(reservation) => Ok(AdmittedMemory::reserved_by(reservation)),
        Err(shortage) => {
            let hint = format!(
                "make the texts shorter, lower `--batch-rows`, or give {}",
                shortage.sufficient_option()
            );
            Err(shortage.fault("what the step makes of a chunk").hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_model::{Fault, codes};

    use super::*;

    #[test]
    fn a_step_of_a_stopped_run_does_not_wait_for_memory() {
        let stopped: CheckStop = Arc::new(|| Err(Fault::new(codes::INTERRUPTED, "stop")));
        let admit = waiting_admission(MemoryBudget::new(64 << 20), stopped);
        assert!(admit(ADMITTED_BYTES_MIN - 1).is_ok());
        let fault = admit(1 << 40).map(drop).unwrap_err();
        assert_eq!(fault.code(), codes::INTERRUPTED);
    }

    #[test]
    fn a_step_that_alone_needs_too_much_is_refused_at_once() {
        let running: CheckStop = Arc::new(|| Ok(()));
        let memory = MemoryBudget::new(64 << 20);
        for admit in [admission(memory), waiting_admission(memory, running)] {
            let fault = admit(1 << 40).map(drop).unwrap_err();
            assert_eq!(fault.code(), codes::MEMORY);
            let hint = fault.hint_text().unwrap_or_default();
            assert!(hint.contains("or give --memory "), "{hint}");
        }
    }
}
