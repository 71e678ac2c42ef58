//! The commit protocol's decisions: observed facts in, one decision out.

/// What was found where a record should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// Nothing.
    Absent,
    /// A record of this id.
    Ours {
        /// All data that it names is there with the right size.
        intact: bool,
    },
    /// A record that this version cannot read.
    Foreign,
}

/// What to do before the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It is done: take the result.
    Reuse,
    /// Do it.
    Work,
    /// Do it again, because what the record names is gone or unreadable.
    Repair,
}

/// A finished pass is never done twice; a record whose data is gone counts as no record.
pub fn before(record: Record) -> Before {
    match record {
        Record::Absent => Before::Work,
        Record::Ours { intact: true } => Before::Reuse,
        Record::Ours { intact: false } | Record::Foreign => Before::Repair,
    }
}

/// What putting the record came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was created.
    Created,
    /// One was there already.
    Exists {
        /// With the same bytes.
        same: bool,
        /// And all that it names is there.
        intact: bool,
    },
}

/// What to do after the record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Our result is the result.
    Committed,
    /// Somebody else's intact result stands; ours is thrown away.
    LostRace,
    /// What stands is broken: replace it.
    Replace,
}

/// Identical bytes are our own success, whoever wrote them. A broken record is replaced only by
/// a run that saw it broken.
pub fn after(before: Before, outcome: Outcome) -> After {
    match (before, outcome) {
        (_, Outcome::Created | Outcome::Exists { same: true, intact: true }) => After::Committed,
        (_, Outcome::Exists { same: false, intact: true }) => After::LostRace,
        (Before::Repair | Before::Work, Outcome::Exists { intact: false, .. }) => After::Replace,
        (Before::Reuse, Outcome::Exists { intact: false, .. }) => After::LostRace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [Record; 4] =
        [Record::Absent, Record::Ours { intact: true }, Record::Ours { intact: false }, Record::Foreign];

    #[test]
    fn before_is_total_and_reuses_only_what_is_whole() {
        let decisions = RECORDS.map(before);
        assert_eq!(decisions, [Before::Work, Before::Reuse, Before::Repair, Before::Repair]);
    }

    #[test]
    fn after_never_replaces_an_intact_result() {
        for before in RECORDS.map(before) {
            for (same, intact) in [(false, false), (false, true), (true, false), (true, true)] {
                let decision = after(before, Outcome::Exists { same, intact });
                if intact {
                    assert_eq!(decision, if same { After::Committed } else { After::LostRace });
                } else {
                    assert_ne!(decision, After::Committed, "a broken result must not count as committed");
                }
            }
            assert_eq!(after(before, Outcome::Created), After::Committed);
        }
    }
}
