//! Circles of steps.

use std::collections::BTreeMap;

/// Steps that read each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepCycle<'a> {
    /// The steps in the order in which each reads the next; the last is the first again.
    pub steps: Vec<&'a str>,
    /// The use that closes the circle, by its place in the list of uses.
    pub closed_by: usize,
}

impl StepCycle<'_> {
    /// One sentence.
    pub fn message(&self) -> String {
        match self.steps.as_slice() {
            [only, _] => format!("`{only}` reads itself"),
            steps => format!("steps depend on each other: {}", steps.join(" -> ")),
        }
    }
}

/// Each circle of steps once. `uses` are pairs of a step and one that it reads.
pub(crate) fn step_cycles<'a>(
    steps: &[&'a str],
    uses: &[(&'a str, &'a str)],
) -> Vec<StepCycle<'a>> {
    // Whether a step is done with.
    let mut state: BTreeMap<&str, bool> = BTreeMap::new();
    let mut found = Vec::new();
    // Depth first without recursion: each step with its uses that are still to be followed.
    let follow =
        |name: &str| -> Vec<usize> { (0..uses.len()).filter(|at| uses[*at].0 == name).collect() };
    for step in steps {
        if state.contains_key(step) {
            continue;
        }
        let mut open = vec![(*step, follow(step))];
        state.insert(step, false);
        while let Some((name, ahead)) = open.last_mut() {
            let Some(at) = ahead.pop() else {
                state.insert(name, true);
                open.pop();
                continue;
            };
            let next = uses[at].1;
            match state.get(next) {
                Some(true) => {}
                Some(false) => {
                    let from = open
                        .iter()
                        .position(|(known, _)| *known == next)
                        .unwrap_or_default();
                    let steps = open[from..]
                        .iter()
                        .map(|(name, _)| *name)
                        .chain([next])
                        .collect();
                    found.push(StepCycle {
                        steps,
                        closed_by: at,
                    });
                }
                None => {
                    state.insert(next, false);
                    open.push((next, follow(next)));
                }
            }
        }
    }
    found
}
