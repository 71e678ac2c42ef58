//! Aggregates on workers: the same rows as without them. Workers merge the shares of groups that
//! their states have in common, and leave other groups to the coordinator.

use std::fs::File;

use arrow::array::RecordBatch;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, workers_option};

/// Groups of any key, with functions of numbers and of the order of rows.
const GROUPS: &str = r#"
version: 1
name: groups
params:
  out: { type: path }
sources:
  demand: { parquet: { path: history }TIME }
steps:
  groups:
    from: demand
    do:
      - derive: { key: "KEY" }
      - aggregate:
          by: [key]
          compute:
            rows: { count: "*" }
            total: { sum: qty }
            price: { mean: price }
            spread: { std: price }
            high: { max: price }
            item: { min: item_id }
            prices: { approx_n_unique: price }
            first: { first: qty }
            last: { last: price }
            sales: { list: { column: qty, limit: 5, beyond: truncate } }
sinks:
  table: { from: groups, parquet: { path: "${out}" } }
"#;

/// A group for each series, which all units have rows of.
const SERIES: &str = "concat(store_id, item_id)";

/// A group for each row, but for those of a few days, which units may have in common, and for null.
const ROWS: &str = "CASE WHEN date IN (DATE '2016-04-20', DATE '2016-05-03', DATE '2016-05-18') \
    THEN concat(store_id, item_id) WHEN promotion THEN NULL ELSE concat(store_id, item_id, date) END";

/// Settings of a source whose later files are later days.
const IN_TIME_ORDER: &str = ", time: date, keys: [store_id, item_id]";

/// The step that workers log for each share that they merge.
const SHARE_MERGED: &str = "merge a share of states";

/// A job on some days of demand.
struct GroupJob {
    shop: TestDirectory,
    days: Vec<String>,
    range_bytes: u64,
}

impl GroupJob {
    /// All days are read as so many units at most.
    fn of_units(units: u64) -> GroupJob {
        let shop = TestDirectory::new();
        let days = shop.days("history");
        let mut bytes = 0;
        for day in &days {
            let file = File::open(shop.path(&format!("history/{day}"))).unwrap();
            let reader = SerializedFileReader::new(file).unwrap();
            for group in reader.metadata().row_groups() {
                bytes += group.compressed_size() as u64;
            }
        }
        GroupJob {
            shop,
            days,
            range_bytes: bytes / units,
        }
    }

    fn write_spec(&self, time: &str, key: &str) {
        let spec = GROUPS.replace("TIME", time).replace("KEY", key);
        self.shop.write("spec.yaml", &spec);
    }

    /// The rows of a run in a state directory; `workers` may be none.
    fn run(&self, name: &str, workers: &[&WorkerProcess]) -> RecordBatch {
        let out = format!("--param=out={name}/out");
        let state = format!("--state={name}/state");
        let args = ["run", "spec.yaml", "--json", "--memory=2GiB", "--threads=2"];
        let mut command = self.shop.command(&args);
        command
            .args([&out, &state])
            .env("FOREBAY_RANGE_BYTES", self.range_bytes.to_string());
        if !workers.is_empty() {
            command.arg(workers_option(workers));
        }
        let call: ProgramOutput = command.watched().into();
        call.expect(0);
        self.shop.rows(&format!("{name}/out"))
    }

    /// A worker that divides all states into shares, and logs its steps.
    fn worker(&self, log: &str) -> WorkerProcess {
        let envs = [
            ("FOREBAY_RANGE_BYTES", self.range_bytes.to_string()),
            ("FOREBAY_DIVIDED_BYTES", "0".to_owned()),
            ("FOREBAY_KILL_LOG", self.shop.at(log)),
        ];
        let envs = envs.each_ref().map(|(name, value)| (*name, value.as_str()));
        WorkerProcess::start(&self.shop, &[], &envs)
    }

    /// Number of shares that a worker has merged. A worker without a step has no log.
    fn shares_merged(&self, log: &str) -> usize {
        let steps = std::fs::read_to_string(self.shop.path(log)).unwrap_or_default();
        steps.lines().filter(|step| *step == SHARE_MERGED).count()
    }

    /// Hides or shows the last day of the history.
    fn rename_last_day(&self, from: &str, to: &str) {
        let day = &self.days[self.days.len() - 1];
        let path = |folder: &str| self.shop.path(&format!("{folder}/{day}"));
        std::fs::create_dir_all(self.shop.path(to)).unwrap();
        std::fs::rename(path(from), path(to)).unwrap();
    }
}

#[test]
fn workers_merge_the_groups_that_their_states_have_in_common() {
    for (name, key, are_shared) in [("series", SERIES, true), ("rows", ROWS, false)] {
        let job = GroupJob::of_units(8);
        job.write_spec("", key);
        let expected = job.run("here", &[]);
        let workers = [job.worker("log-0"), job.worker("log-1")];
        let rows = job.run("there", &[&workers[0], &workers[1]]);
        assert!(
            rows == expected,
            "groups of {name}: other rows with workers"
        );
        let merged = job.shares_merged("log-0") + job.shares_merged("log-1");
        assert_eq!(merged > 0, are_shared, "groups of {name}: {merged} shares");
        let divided = std::fs::read_dir(job.shop.path("there/state/partials")).unwrap();
        let names = divided.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let units = names.filter(|name| name.ends_with(".shares")).count();
        assert!(units > 1, "groups of {name}: {units} units");
    }
}

/// The whole history is a run, to which each night adds a day: workers commit the shares of the
/// run, which are those of the result.
#[test]
fn nights_on_workers_merge_the_run_of_the_whole_history() {
    for key in [SERIES, ROWS] {
        let job = GroupJob::of_units(1);
        job.write_spec(IN_TIME_ORDER, key);
        job.rename_last_day("history", "hidden");
        let worker = job.worker("log");
        let first_night = job.run("there", &[&worker]);
        assert!(
            first_night == job.run("first", &[]),
            "{key}: the first night"
        );
        let first_merged = job.shares_merged("log");
        job.rename_last_day("hidden", "history");
        let expected = job.run("second", &[]);
        assert!(first_night != expected, "{key}: the last day has no rows");
        assert!(
            job.run("there", &[&worker]) == expected,
            "{key}: one more day"
        );
        let merged = job.shares_merged("log");
        assert!(merged > first_merged, "{key}: nothing was merged");
        let verified = ["cache", "verify", "--state=there/state"];
        job.shop.forebay(&verified).expect(0);
    }
}
