//! Where a training is computed: what its spec asks for, and what is found on this machine.

use forebay_model::Result;
use forebay_run::{Course, Trained};

use super::config::Train;
use super::engine::Host;
use super::place::{Precision, TrainOn};
use super::trainer;

/// The precision of the GPU on which a training is computed; `None` where that is the processor. Fails where a
/// GPU was asked for by name and cannot be used.
pub fn precision(config: &Train) -> Result<Option<Precision>> {
    let precision = config.precision.unwrap_or(Precision::Bf16);
    Ok(match config.device {
        TrainOn::Cpu => None,
        TrainOn::Auto => found::wrong(0, precision)?.is_none().then_some(precision),
        TrainOn::Cuda(number) => match found::wrong(number, precision)? {
            None => Some(precision),
            Some(wrong) => return Err(wrong.fault(number)),
        },
    })
}

/// Trains there.
pub fn train(config: &Train, course: &Course<'_>) -> Result<Trained> {
    #[cfg(feature = "cuda")]
    if let Some(precision) = precision(config)? {
        let number = match config.device {
            TrainOn::Cuda(number) => number,
            TrainOn::Cpu | TrainOn::Auto => 0,
        };
        let cuda = crate::feed::Cuda::open(number as usize)?;
        let cuda = cuda.ok_or_else(|| found::Wrong::Missing(crate::feed::found_cuda()).fault(number))?;
        return config.train_on(course, &cuda, precision);
    }
    #[cfg(feature = "cuda")]
    if config.device == TrainOn::Auto
        && let Some(found::Wrong::Computes { what, .. }) = found::wrong(0, config.precision.unwrap_or(Precision::Bf16))?
    {
        let message = format!("`{}` is trained on the processor: the GPU cannot be used: {what}", course.sink());
        course.tell(forebay_storage::Event::Warning { message });
    }
    trainer::run(config, course, |state| Ok(Host::new(config, &state.shape, course.threads)))
}

/// What is found of GPUs.
mod found {
    use forebay_model::{Fault, codes};

    /// Why a GPU cannot be used.
    #[derive(Debug, Clone)]
    pub enum Wrong {
        /// There is none: what was found instead.
        Missing(String),
        /// It is there, and does not compute as it should.
        #[cfg(feature = "cuda")]
        Computes { what: String, hint: Option<String> },
    }

    impl Wrong {
        /// Where it was asked for by name.
        pub fn fault(&self, number: u32) -> Fault {
            let name = super::TrainOn::Cuda(number);
            match self {
                Wrong::Missing(found) => {
                    let message = format!("`device: {name}` asks for a GPU that this machine does not have: {found}");
                    Fault::new(codes::UNSUPPORTED, message)
                        .hint("run where there is one (`forebay doctor` says what is found), or leave `device` out")
                }
                #[cfg(feature = "cuda")]
                Wrong::Computes { what, hint } => {
                    let message = format!("`device: {name}` cannot be used: {what}");
                    let hint = hint.as_deref().unwrap_or("leave `device` out to train on the processor");
                    Fault::new(codes::UNSUPPORTED, message).hint(hint)
                }
            }
        }
    }

    #[cfg(feature = "cuda")]
    pub use of_cuda::wrong;

    #[cfg(not(feature = "cuda"))]
    pub fn wrong(_: u32, _: super::Precision) -> forebay_model::Result<Option<Wrong>> {
        Ok(Some(Wrong::Missing(crate::feed::found_cuda())))
    }

    #[cfg(feature = "cuda")]
    mod of_cuda {
        use std::collections::BTreeMap;
        use std::panic::catch_unwind;
        use std::sync::{Mutex, PoisonError};

        use forebay_model::Result;

        use super::Wrong;
        use crate::feed::{Cuda, found_cuda};
        use crate::train::device::check;
        use crate::train::place::Precision;

        /// What was found of each GPU: it is looked at once, as it is asked for several times in a run.
        static SEEN: Mutex<BTreeMap<(u32, Precision), Option<Wrong>>> = Mutex::new(BTreeMap::new());

        /// Why a GPU cannot be used; `None` where it computes what the processor does.
        pub fn wrong(number: u32, precision: Precision) -> Result<Option<Wrong>> {
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(seen.entry((number, precision)).or_insert_with(|| look(number, precision)).clone())
        }

        fn look(number: u32, precision: Precision) -> Option<Wrong> {
            let look = || -> Result<Option<Wrong>> {
                let Some(cuda) = Cuda::open(number as usize)? else { return Ok(Some(Wrong::Missing(found_cuda()))) };
                Ok(check(&cuda, precision)?.map(|what| Wrong::Computes { what, hint: None }))
            };
            // The bindings panic where a library lacks what they look for; the processor is there all the same.
            match catch_unwind(look) {
                Ok(Ok(wrong)) => wrong,
                Ok(Err(fault)) => {
                    let hint = fault.hint_text().map(str::to_owned);
                    Some(Wrong::Computes { what: fault.to_string(), hint })
                }
                Err(_) => {
                    let what = "its libraries are not those that are needed".to_owned();
                    Some(Wrong::Computes { what, hint: None })
                }
            }
        }
    }
}
