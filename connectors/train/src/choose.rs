//! Choice of the device of a training, from its spec and the GPUs of this machine.

use forebay_contract::{TrainingContext, TrainingOutput};
use forebay_device::Precision;
use forebay_model::Result;

use super::config::TrainConfig;
use super::engine::HostEngine;
use super::place::TrainingDevice;
use super::trainer::{self, PreparedTraining};

/// The precision of the GPU on which a training is computed; `None` for the processor. Fails if a
/// GPU was requested by name and cannot be used.
pub fn gpu_precision(config: &TrainConfig) -> Result<Option<Precision>> {
    let precision = config.precision.unwrap_or(Precision::Bf16);
    Ok(match config.device {
        TrainingDevice::Cpu => None,
        TrainingDevice::Auto => found::wrong(0, precision)?.is_none().then_some(precision),
        TrainingDevice::Cuda(number) => match found::wrong(number, precision)? {
            None => Some(precision),
            Some(wrong) => return Err(wrong.fault(number)),
        },
    })
}

/// Trains there.
pub fn train_where_chosen(
    config: &TrainConfig,
    context: &TrainingContext<'_>,
) -> Result<TrainingOutput> {
    #[cfg(feature = "cuda")]
    if let Some(precision) = gpu_precision(config)? {
        let number = match config.device {
            TrainingDevice::Cuda(number) => number,
            TrainingDevice::Cpu | TrainingDevice::Auto => 0,
        };
        let cuda = forebay_device::CudaDevice::open(number as usize)?;
        let cuda = cuda.ok_or_else(|| {
            found::GpuProblem::Missing(forebay_device::describe_cuda()).fault(number)
        })?;
        return config.train_on(context, &cuda, precision);
    }
    #[cfg(feature = "cuda")]
    if config.device == TrainingDevice::Auto
        && let Some(found::GpuProblem::Computes { what: problem, .. }) =
            found::wrong(0, config.precision.unwrap_or(Precision::Bf16))?
    {
        let message = format!(
            "`{}` is trained on the processor: the GPU cannot be used: {problem}",
            context.sink()
        );
        context.emit(forebay_storage::Event::Warning { message });
    }
    let prepared = PreparedTraining::new(config, context);
    trainer::run(&prepared, context, |state| {
        let threads = context.threads;
        Ok(HostEngine::new(&prepared.config, &state.shape, threads))
    })
}

/// Detection of GPUs.
mod found {
    use forebay_model::{Fault, codes};

    /// Reason why a GPU cannot be used.
    #[derive(Debug, Clone)]
    pub enum GpuProblem {
        /// There is no GPU; contains a description of the devices that exist instead.
        Missing(String),
        /// The GPU exists, but does not compute correctly.
        #[cfg(feature = "cuda")]
        Computes { what: String, hint: Option<String> },
    }

    impl GpuProblem {
        /// Fault for a GPU that was requested by name.
        pub fn fault(&self, number: u32) -> Fault {
            let name = super::TrainingDevice::Cuda(number);
            match self {
                GpuProblem::Missing(devices) => {
                    let message = format!(
                        "`device: {name}` asks for a GPU that this machine does not have: {devices}"
                    );
                    Fault::new(codes::UNSUPPORTED, message).hint(
                        "run where there is one (`forebay doctor` says what is found), or \
                         leave `device` out",
                    )
                }
                #[cfg(feature = "cuda")]
                GpuProblem::Computes {
                    what: problem,
                    hint,
                } => {
                    let message = format!("`device: {name}` cannot be used: {problem}");
                    let hint = hint
                        .as_deref()
                        .unwrap_or("leave `device` out to train on the processor");
                    Fault::new(codes::UNSUPPORTED, message).hint(hint)
                }
            }
        }
    }

    #[cfg(feature = "cuda")]
    pub use of_cuda::wrong;

    #[cfg(not(feature = "cuda"))]
    pub fn wrong(_: u32, _: super::Precision) -> forebay_model::Result<Option<GpuProblem>> {
        Ok(Some(GpuProblem::Missing(forebay_device::describe_cuda())))
    }

    #[cfg(feature = "cuda")]
    mod of_cuda {
        use std::collections::BTreeMap;
        use std::panic::catch_unwind;
        use std::sync::{Mutex, PoisonError};

        use forebay_device::{CudaDevice, Precision, describe_cuda};
        use forebay_model::Result;

        use super::GpuProblem;
        use crate::device::check_device;

        /// Result of the check of each GPU: it is made once, since it is needed several times in a
        /// run.
        static SEEN: Mutex<BTreeMap<(u32, Precision), Option<GpuProblem>>> =
            Mutex::new(BTreeMap::new());

        /// Reason why a GPU cannot be used; `None` if it computes like the processor.
        pub fn wrong(number: u32, precision: Precision) -> Result<Option<GpuProblem>> {
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(seen
                .entry((number, precision))
                .or_insert_with(|| probe_gpu(number, precision))
                .clone())
        }

        fn probe_gpu(number: u32, precision: Precision) -> Option<GpuProblem> {
            let look = || -> Result<Option<GpuProblem>> {
                let Some(cuda) = CudaDevice::open(number as usize)? else {
                    return Ok(Some(GpuProblem::Missing(describe_cuda())));
                };
                Ok(
                    check_device(&cuda, precision)?.map(|problem| GpuProblem::Computes {
                        what: problem,
                        hint: None,
                    }),
                )
            };
            // The bindings panic where a library lacks a symbol. The processor trains without it.
            match catch_unwind(look) {
                Ok(Ok(wrong)) => wrong,
                Ok(Err(fault)) => {
                    let hint = fault.hint_text().map(str::to_owned);
                    Some(GpuProblem::Computes {
                        what: fault.to_string(),
                        hint,
                    })
                }
                Err(_) => {
                    let problem = "its libraries are not those that are needed".to_owned();
                    Some(GpuProblem::Computes {
                        what: problem,
                        hint: None,
                    })
                }
            }
        }
    }
}
