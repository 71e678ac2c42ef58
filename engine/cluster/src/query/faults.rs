//! Faults as errors of the engine. Between processes the engine keeps of a foreign error its text alone.

use std::error::Error;
use std::fmt;

use datafusion::error::DataFusionError;
use forebay_model::{Fault, WireFault};
use forebay_plan::OpId;
use serde::{Deserialize, Serialize};

/// Prefix of a fault in the text of an error.
const MARK: &str = "forebay-fault ";

/// A fault of a worker, and the window whose assumed row order was wrong.
#[derive(Debug, Serialize, Deserialize)]
struct WireError {
    fault: WireFault,
    order_failure: Option<OpId>,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)?;
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Error for WireError {}

/// The error whose text holds a fault.
pub fn wire_error(fault: &Fault, order_failure: Option<OpId>) -> DataFusionError {
    DataFusionError::External(Box::new(WireError {
        fault: fault.into(),
        order_failure,
    }))
}

/// The fault in the text of an error, with the window whose row order was wrong.
pub fn remote_fault(error: &DataFusionError) -> Option<(Fault, Option<OpId>)> {
    let text = error.to_string();
    let (_, json) = text.split_once(MARK)?;
    // Other errors may have added text behind it.
    let first = serde_json::Deserializer::from_str(json)
        .into_iter::<WireError>()
        .next()?;
    let WireError {
        fault,
        order_failure,
    } = first.ok()?;
    Some((fault.into(), order_failure))
}

#[cfg(test)]
mod tests {
    use forebay_model::codes;

    use super::*;

    #[test]
    fn faults_survive_texts_around_them() {
        let fault = Fault::new(codes::BAD_ROW, "row 3 {is} \"bad\"")
            .file("a.parquet")
            .hint("mend it");
        let far = DataFusionError::Execution(format!(
            "worker: {}; and so on",
            wire_error(&fault, Some(7))
        ));
        let far = DataFusionError::Context("stage 1".into(), Box::new(far));
        let (found, order_failure) = remote_fault(&far).unwrap();
        assert_eq!(found.code().name, fault.code().name);
        assert_eq!(found.to_string(), fault.to_string());
        assert_eq!(found.hint_text(), Some("mend it"));
        assert_eq!(order_failure, Some(7));
        assert!(remote_fault(&DataFusionError::Execution("division by zero".into())).is_none());
        assert!(remote_fault(&DataFusionError::Execution(format!("{MARK}{{broken"))).is_none());
    }
}
