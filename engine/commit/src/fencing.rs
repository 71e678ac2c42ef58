//! Attempts of one run id: the latest attempt continues; earlier attempts stop and report a takeover.
//!
//! ```text
//! runs/<id>/1.json, 2.json, ...   the origin of each attempt: each is put only if it is absent
//! ```
//!
//! An attempt cannot tell whether an earlier one still runs: a scheduler starts the next attempt seconds after
//! it killed the last one, perhaps on another machine. So attempts do not wait for each other and do not compare
//! clocks: before an attempt commits, it checks whether a later attempt exists.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_model::{ContentId, Fault, Result, codes};
use forebay_storage::{AttemptOrigin, StorageClient, StorageLocation};
use serde_json::json;
use uuid::Uuid;

/// Interval at which a reading attempt checks for a takeover, so that it does not read on in vain.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A run's right to commit, until a later attempt takes it.
pub struct AttemptFence {
    io: StorageClient,
    place: StorageLocation,
    run_id: String,
    /// Number of the attempt, from 1.
    number: u64,
    looked: Mutex<Instant>,
}

impl fmt::Debug for AttemptFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of {}", self.number, self.run_id)
    }
}

impl AttemptFence {
    /// Takes the run over from its present attempt, if there is one.
    pub fn acquire(
        io: &StorageClient,
        root: &StorageLocation,
        run_id: &str,
        run: ContentId,
    ) -> Result<AttemptFence> {
        let location = root.join(&format!("runs/{run}"));
        let named = |name: &str| name.strip_suffix(".json")?.parse::<u64>().ok();
        let attempts = io.list(&location)?;
        let newest = attempts
            .iter()
            .filter_map(|object| named(object.location.filename()?))
            .max();
        let looked = Mutex::new(Instant::now());
        let mut fence = AttemptFence {
            io: io.clone(),
            place: location,
            run_id: run_id.to_owned(),
            number: newest.unwrap_or(0) + 1,
            looked,
        };
        // Processes of two machines may look alike.
        let began = AttemptOrigin::current_process();
        let token = Uuid::new_v4().simple().to_string();
        let bytes = json!({
            "host": began.host,
            "process": began.process,
            "began": began.began,
            "token": token,
        });
        let bytes = Bytes::from(bytes.to_string());
        // An attempt that took this number meanwhile counts as earlier.
        while !io.put_if_absent(&fence.attempt_location(fence.number), bytes.clone())? {
            fence.number += 1;
        }
        Ok(fence)
    }

    /// Number of the attempt, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Origin of the previous attempt; `None` for the first one.
    pub fn previous_attempt(&self) -> Result<Option<AttemptOrigin>> {
        if self.number == 1 {
            Ok(None)
        } else {
            self.read_attempt(self.number - 1)
        }
    }

    /// Fails where a later attempt has the run.
    pub fn check(&self) -> Result<()> {
        let next = self.number + 1;
        let Some(began) = self.read_attempt(next)? else {
            return Ok(());
        };
        let message = format!(
            "attempt {next} of run `{}` took over from this one: {began}",
            self.run_id
        );
        let hint = "what is committed stays: that attempt goes on from it, and the same command \
                    finds its result";
        Err(Fault::new(codes::TAKEN_OVER, message).hint(hint))
    }

    /// Like `check`, at most once per `LOOK_EVERY`.
    pub fn check_throttled(&self) -> Result<()> {
        // The thread that holds the lock performs the check.
        let Ok(mut looked) = self.looked.try_lock() else {
            return Ok(());
        };
        if looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        *looked = Instant::now();
        self.check()
    }

    fn attempt_location(&self, number: u64) -> StorageLocation {
        self.place.join(&format!("{number}.json"))
    }

    fn read_attempt(&self, number: u64) -> Result<Option<AttemptOrigin>> {
        let Some(bytes) = self.io.get(&self.attempt_location(number))? else {
            return Ok(None);
        };
        let unreadable =
            |error| Fault::new(codes::STATE_VERSION, "an attempt cannot be read").cause(error);
        serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
    }
}
