//! Messages about trainings.

/// A training that begins.
pub(super) struct NewTraining {
    /// The address of the server.
    pub server: String,
    pub sink: String,
    /// The id of the training.
    pub training: String,
    pub experiment: String,
    pub millis: i64,
    pub parameters: Vec<(String, String)>,
    pub tags: Vec<(String, String)>,
}

/// Messages to the thread that sends to servers.
pub(super) enum TrackingMessage {
    Begin(NewTraining),
    Metrics {
        sink: String,
        step: u64,
        millis: i64,
        values: Vec<(String, f64)>,
    },
    /// All trainings of the run ended, with this status.
    End {
        status: &'static str,
        millis: i64,
        tags: Vec<(String, Vec<(String, String)>)>,
    },
}
