//! The commit protocol's decisions: observed facts in, one decision out.

/// State of the location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// No record.
    Absent,
    /// A record of this id.
    Ours {
        /// True if all data that it names exists with the right size.
        intact: bool,
    },
    /// A record that this version cannot read.
    Foreign,
}

/// Decision before the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReuseDecision {
    /// The work is done: take the result.
    Reuse,
    /// Do it.
    Work,
    /// Repeat the work, because an object that the record names is missing or unreadable.
    Repair,
}

/// A finished pass is never done twice; a record whose data is gone counts as no record.
pub fn decide_reuse(record: RecordState) -> ReuseDecision {
    match record {
        RecordState::Absent => ReuseDecision::Work,
        RecordState::Ours { intact: true } => ReuseDecision::Reuse,
        RecordState::Ours { intact: false } | RecordState::Foreign => ReuseDecision::Repair,
    }
}

/// Outcome of putting a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The record was created.
    Created,
    /// A record existed already.
    Exists {
        /// True if it has the same bytes.
        same: bool,
        /// True if all data that it names exists.
        intact: bool,
    },
}

/// Action after a record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitAction {
    /// Our result is the result.
    Committed,
    /// Another run's intact result stands; ours is discarded.
    LostRace,
    /// The existing record is broken: replace it.
    Replace,
}

/// Identical bytes count as our own success, also when another run wrote them. A broken record is
/// replaced only by a run that saw it broken.
pub fn decide_commit(reuse: ReuseDecision, outcome: PutOutcome) -> CommitAction {
    match (reuse, outcome) {
        (
            _,
            PutOutcome::Created
            | PutOutcome::Exists {
                same: true,
                intact: true,
            },
        ) => CommitAction::Committed,
        (
            _,
            PutOutcome::Exists {
                same: false,
                intact: true,
            },
        ) => CommitAction::LostRace,
        (ReuseDecision::Repair | ReuseDecision::Work, PutOutcome::Exists { intact: false, .. }) => {
            CommitAction::Replace
        }
        (ReuseDecision::Reuse, PutOutcome::Exists { intact: false, .. }) => CommitAction::LostRace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [RecordState; 4] = [
        RecordState::Absent,
        RecordState::Ours { intact: true },
        RecordState::Ours { intact: false },
        RecordState::Foreign,
    ];

    #[test]
    fn reuse_needs_an_intact_record() {
        let decisions = RECORDS.map(decide_reuse);
        assert_eq!(
            decisions,
            [
                ReuseDecision::Work,
                ReuseDecision::Reuse,
                ReuseDecision::Repair,
                ReuseDecision::Repair
            ]
        );
    }

    #[test]
    fn commit_never_replaces_an_intact_result() {
        for before in RECORDS.map(decide_reuse) {
            for (same, intact) in [(false, false), (false, true), (true, false), (true, true)] {
                let decision = decide_commit(before, PutOutcome::Exists { same, intact });
                if intact {
                    assert_eq!(
                        decision,
                        if same {
                            CommitAction::Committed
                        } else {
                            CommitAction::LostRace
                        }
                    );
                } else {
                    assert_ne!(
                        decision,
                        CommitAction::Committed,
                        "a broken result must not count as committed"
                    );
                }
            }
            assert_eq!(
                decide_commit(before, PutOutcome::Created),
                CommitAction::Committed
            );
        }
    }
}
