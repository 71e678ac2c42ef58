//! Circles of steps.

use std::collections::BTreeMap;

/// Steps that read each other in a cycle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepCycle<'a> {
    /// The steps in the order in which each reads the next; the last is the first again.
    pub steps: Vec<&'a str>,
    /// The use that closes the circle, by its place in the list of uses.
    pub closed_by: usize,
}

impl StepCycle<'_> {
    /// Message in one sentence.
    pub fn message(&self) -> String {
        match self.steps.as_slice() {
            [only, _] => format!("`{only}` reads itself"),
            steps => format!("steps depend on each other: {}", steps.join(" -> ")),
        }
    }
}

/// Each cycle of steps once. `uses` are pairs of a step and one that it reads.
pub(crate) fn step_cycles<'a>(
    steps: &[&'a str],
    uses: &[(&'a str, &'a str)],
) -> Vec<StepCycle<'a>> {
    // False for a step on the current path, true for one whose uses were all followed.
    let mut is_done: BTreeMap<&str, bool> = BTreeMap::new();
    let mut cycles = Vec::new();
    for step in steps {
        if is_done.contains_key(step) {
            continue;
        }
        // Depth first without recursion: each step with its uses that are still to be followed.
        let mut path = vec![(*step, uses_of(step, uses))];
        is_done.insert(step, false);
        while let Some((name, ahead)) = path.last_mut() {
            let Some(at) = ahead.pop() else {
                is_done.insert(name, true);
                path.pop();
                continue;
            };
            let (_, next) = uses[at];
            match is_done.get(next) {
                Some(true) => {}
                Some(false) => {
                    let first = path.iter().position(|(step, _)| *step == next);
                    let cycle = path[first.unwrap_or_default()..].iter();
                    let cycle = cycle.map(|(name, _)| *name).chain([next]);
                    cycles.push(StepCycle {
                        steps: cycle.collect(),
                        closed_by: at,
                    });
                }
                None => {
                    is_done.insert(next, false);
                    path.push((next, uses_of(next, uses)));
                }
            }
        }
    }
    cycles
}

/// Positions of the uses of a step.
fn uses_of(step: &str, uses: &[(&str, &str)]) -> Vec<usize> {
    (0..uses.len()).filter(|at| uses[*at].0 == step).collect()
}
