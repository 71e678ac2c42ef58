//! The decision about the deadline, from numbers alone.

/// A plan is on time if this share of its remaining time is to spare.
const MARGIN: f64 = 0.1;

/// A plan that is late, too, is taken only if it saves this share of the remaining time.
const SAVES_MIN: f64 = 0.1;

/// Seconds that a change of plan may take at most: the clock is checked every second, and the run ends its current
/// step.
const SWITCH_SECONDS_MAX: f64 = 2.0;

/// Share of the time to the deadline that a change of plan may take: of a run of seconds, the clock is checked more
/// often.
const SWITCH_SHARE: f64 = 0.1;

/// Share of the time to the deadline that remains when a run without any estimate gives up its
/// plan: one that has not ended by then hardly ends in time.
const LAST_SHARE: f64 = 0.05;

/// Action to take about the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// No action: the run is on time.
    OnTime,
    /// Continue with this plan, by its index.
    Take(usize),
    /// No plan is on time: the run continues with a warning.
    Late,
    /// Stop: the deadline has passed, and the spec says to stop then.
    Stop,
}

/// Reliability of the estimate of the remaining time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Plans can only be compared with each other: neither an earlier run nor this one gives
    /// seconds.
    None,
    /// The estimate is in seconds, which may be wrong.
    Likely,
    /// The current plan is late even if the remaining time is as short as it may be.
    Sure,
}

/// Decides at a time in seconds. `remaining` has the seconds of each plan: first of the current plan, then
/// of the lower levels in order, `None` for plans that are not open.
///
/// A run that is not surely late continues as long as the first plan that is on time will also be
/// on time later: its estimate may be wrong.
pub(crate) fn decide(
    now: f64,
    deadline: f64,
    remaining: &[Option<f64>],
    evidence: Evidence,
    fail: bool,
) -> DeadlineAction {
    if now >= deadline && fail {
        return DeadlineAction::Stop;
    }
    if now < deadline * (1.0 - LAST_SHARE) && evidence == Evidence::None {
        return DeadlineAction::OnTime;
    }
    let Some(here) = remaining.first().copied().flatten() else {
        return DeadlineAction::OnTime;
    };
    let fits = |remaining: f64| now + remaining * (1.0 + MARGIN) <= deadline;
    if fits(here) {
        return DeadlineAction::OnTime;
    }
    let may_wait = now < deadline && evidence != Evidence::Sure;
    let options = || {
        remaining
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(option, remaining)| Some((option, (*remaining)?)))
    };
    if let Some((option, remaining)) = options().find(|(_, remaining)| fits(*remaining)) {
        let fits_later = now + switch_seconds(deadline) + remaining * (1.0 + MARGIN) <= deadline;
        return if may_wait && fits_later {
            DeadlineAction::OnTime
        } else {
            DeadlineAction::Take(option)
        };
    }
    match options().min_by(|(_, a), (_, b)| a.total_cmp(b)) {
        Some((option, remaining)) if !may_wait && remaining < here * (1.0 - SAVES_MIN) => {
            DeadlineAction::Take(option)
        }
        _ => DeadlineAction::Late,
    }
}

/// Seconds that a change of plan may take in a run that has this time to its deadline.
fn switch_seconds(deadline: f64) -> f64 {
    (SWITCH_SHARE * deadline).min(SWITCH_SECONDS_MAX)
}

/// Seconds between two checks of the clock in a run that has this time to its deadline.
pub(crate) fn check_seconds(deadline: f64) -> f64 {
    const LEAST: f64 = 0.05;
    (switch_seconds(deadline) / 2.0).max(LEAST)
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
                        for evidence in [Evidence::None, Evidence::Likely, Evidence::Sure] {
                            for fail in [false, true] {
                                let options = [*here, one, two];
                                let verdict = decide(now, 100.0, &options, evidence, fail);
                                check(now, &options, evidence, fail, verdict);
                                seen.insert(format!("{verdict:?}"));
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }

    fn check(
        now: f64,
        options: &[Option<f64>],
        evidence: Evidence,
        fail: bool,
        verdict: DeadlineAction,
    ) {
        let context = format!("{now} {options:?} {evidence:?} {fail} {verdict:?}");
        let fits_at = |now: f64, option: usize| {
            options[option].is_some_and(|remaining| now + 1.1 * remaining <= 100.0)
        };
        let fits = |option: usize| fits_at(now, option);
        let may_wait = evidence != Evidence::Sure && now < 100.0;
        let first = (1..options.len()).find(|option| fits(*option));
        match verdict {
            DeadlineAction::Stop => assert!(fail && now >= 100.0, "{context}"),
            DeadlineAction::OnTime => {
                let knows_nothing = evidence == Evidence::None && now < 95.0;
                let waits = may_wait && first.is_some_and(|first| fits_at(now + 2.0, first));
                assert!(knows_nothing || fits(0) || waits, "{context}");
            }
            DeadlineAction::Take(option) => {
                assert!(
                    !fits(0) && options[option].is_some() && option > 0,
                    "{context}"
                );
                // In order: nothing before it would do, unless nothing does at all.
                assert!(first.is_none_or(|first| first == option), "{context}");
                assert!(options[option] < options[0], "{context}");
                // What is not sure is decided at the last moment.
                let is_last = first.is_some_and(|first| !fits_at(now + 2.0, first));
                assert!(!may_wait || is_last, "{context}");
            }
            DeadlineAction::Late => {
                assert!((0..options.len()).all(|option| !fits(option)), "{context}");
                let quicker = options[1..]
                    .iter()
                    .flatten()
                    .any(|remaining| *remaining < 0.9 * options[0].unwrap());
                assert!(!quicker || may_wait, "{context}");
            }
        }
        assert!(
            !(fail && now >= 100.0) || verdict == DeadlineAction::Stop,
            "{context}"
        );
    }
}
