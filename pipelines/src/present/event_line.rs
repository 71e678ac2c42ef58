//! Events as lines of text.

use forebay_storage::Event;

use super::training;

/// Text of an event in a line of its own, if it has one.
pub(super) fn event_line(event: &Event) -> Option<String> {
    Some(match event {
        Event::AtRisk {
            deadline,
            end,
            action,
        } => {
            let end = end
                .as_ref()
                .map_or_else(String::new, |end| format!(" (the run would end at {end})"));
            let consequence = match *action {
                "none" => "nothing more can be done, the run goes on".to_owned(),
                "stop" => "the run stops".to_owned(),
                rung => format!("the run goes on with {rung}"),
            };
            format!("the deadline {deadline} is at risk{end}: {consequence}")
        }
        Event::TakenOver {
            run_id,
            attempt,
            from,
        } => {
            let previous = attempt - 1;
            format!(
                "attempt {attempt} of run `{run_id}`: attempt {previous} stops if it is still at \
                 work ({from})"
            )
        }
        Event::Waiting {
            source,
            wanted: expected,
            found: present,
        } => format!("waiting for `{source}`: {expected} wanted, {present} found"),
        Event::TrainingResumed { sink, step, steps } => {
            format!("{sink}: goes on after step {step} of {steps}")
        }
        Event::TrainingEpoch { epoch, .. } if !training::is_shown(epoch.epoch) => return None,
        Event::TrainingEpoch {
            sink,
            epoch,
            seconds,
            bottleneck,
            skipped_rows,
            ..
        } => {
            let line = training::epoch(epoch);
            let skipped = if *skipped_rows > 0 {
                format!(", {skipped_rows} rows left out")
            } else {
                String::new()
            };
            format!("{sink}: {line} ({seconds:.1} s, waits for {bottleneck}{skipped})")
        }
        Event::Warning { message } => format!("warning: {message}"),
        _ => return None,
    })
}
