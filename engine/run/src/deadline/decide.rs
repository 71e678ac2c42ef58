//! The decision what to do about the deadline, from numbers alone.

/// A plan is on time if this share of its remaining time is to spare.
const MARGIN: f64 = 0.1;

/// A plan that is late, too, is taken only if it saves this share of the remaining time.
const SAVES_MIN: f64 = 0.1;

/// What to do about the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// Nothing: the run is on time.
    OnTime,
    /// Continue with this plan, by its index.
    Take(usize),
    /// No plan is on time: the run continues with a warning.
    Late,
    /// Stop: the deadline has passed, and the spec asks for that.
    Stop,
}

/// Decides at a time in seconds. `left` has the remaining time of each plan: first of the current plan, then of the lower
/// levels in order, `None` for plans that are not open. `known` tells whether these are seconds, measured in earlier runs
/// or by progress, or only relative to each other.
pub(crate) fn decide(
    now: f64,
    deadline: f64,
    left: &[Option<f64>],
    known: bool,
    fail: bool,
) -> DeadlineAction {
    if now >= deadline && fail {
        return DeadlineAction::Stop;
    }
    if now < deadline && !known {
        return DeadlineAction::OnTime;
    }
    let Some(here) = left.first().copied().flatten() else {
        return DeadlineAction::OnTime;
    };
    let fits = |left: f64| now + left * (1.0 + MARGIN) <= deadline;
    if fits(here) {
        return DeadlineAction::OnTime;
    }
    let options = || {
        left.iter()
            .enumerate()
            .skip(1)
            .filter_map(|(option, left)| Some((option, (*left)?)))
    };
    if let Some((option, _)) = options().find(|(_, left)| fits(*left)) {
        return DeadlineAction::Take(option);
    }
    match options().min_by(|(_, a), (_, b)| a.total_cmp(b)) {
        Some((option, left)) if left < here * (1.0 - SAVES_MIN) => DeadlineAction::Take(option),
        _ => DeadlineAction::Late,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_is_right_for_all_small_inputs() {
        let lefts = [
            None,
            Some(0.0),
            Some(5.0),
            Some(9.0),
            Some(50.0),
            Some(95.0),
            Some(200.0),
        ];
        let moments = [0.0, 10.0, 90.0, 99.0, 100.0, 150.0];
        let mut seen = std::collections::BTreeSet::new();
        for now in moments {
            for here in &lefts[1..] {
                for one in lefts {
                    for two in lefts {
                        for known in [false, true] {
                            for fail in [false, true] {
                                let options = [*here, one, two];
                                let verdict = decide(now, 100.0, &options, known, fail);
                                check(now, &options, known, fail, verdict);
                                seen.insert(format!("{verdict:?}"));
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }

    fn check(now: f64, options: &[Option<f64>], known: bool, fail: bool, verdict: DeadlineAction) {
        let context = format!("{now} {options:?} {known} {fail} {verdict:?}");
        let fits = |option: usize| options[option].is_some_and(|left| now + 1.1 * left <= 100.0);
        match verdict {
            DeadlineAction::Stop => assert!(fail && now >= 100.0, "{context}"),
            DeadlineAction::OnTime => assert!((!known && now < 100.0) || fits(0), "{context}"),
            DeadlineAction::Take(option) => {
                assert!(
                    !fits(0) && options[option].is_some() && option > 0,
                    "{context}"
                );
                // In order: nothing before it would do, unless nothing does at all.
                let first = (1..options.len()).find(|option| fits(*option));
                assert!(first.is_none_or(|first| first == option), "{context}");
                assert!(options[option] < options[0], "{context}");
            }
            DeadlineAction::Late => {
                assert!((0..options.len()).all(|option| !fits(option)), "{context}");
                let quicker = options[1..]
                    .iter()
                    .flatten()
                    .any(|left| *left < 0.9 * options[0].unwrap());
                assert!(!quicker, "{context}");
            }
        }
        assert!(
            !(fail && now >= 100.0) || verdict == DeadlineAction::Stop,
            "{context}"
        );
    }
}
