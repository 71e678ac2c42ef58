//! The context of a span across processes, by W3C's Trace Context.

use std::fmt;
use std::str::FromStr;

/// The header that carries it, and the variable of the same name in capitals.
pub const TRACE_HEADER: &str = "traceparent";

/// A span, and the trace that it belongs to. Its text is that of the header: `00-<trace>-<span>-<flags>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; never 0.
    pub trace: u128,
    /// The span; never 0.
    pub span: u64,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sampled: spans are sent or not made at all.
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// Not a text of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTraceContext;

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Version, trace, span and flags; unknown versions have these parts, too.
        let parts: Vec<&str> = text.split('-').collect();
        let [_, trace, span, _] = parts.as_slice() else {
            return Err(NoTraceContext);
        };
        // `from_str_radix` also takes a sign, which is no digit.
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if !is_hex(trace, 32) || !is_hex(span, 16) {
            return Err(NoTraceContext);
        }
        let trace = u128::from_str_radix(trace, 16).map_err(|_| NoTraceContext)?;
        let span = u64::from_str_radix(span, 16).map_err(|_| NoTraceContext)?;
        if trace == 0 || span == 0 {
            Err(NoTraceContext)
        } else {
            Ok(TraceContext { trace, span })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_as_the_specification_says() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let expected = TraceContext {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 0x00f0_67aa_0ba9_02b7,
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!(expected.to_string(), text);
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let signed = "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for wrong in [
            "",
            "00-1-2-01",
            zeros,
            signed,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(
                wrong.parse::<TraceContext>(),
                Err(NoTraceContext),
                "{wrong}"
            );
        }
    }
}
