//! The process is killed, as by `kill -9`, at every step that changes what is stored. The same command
//! then comes to what it would have come to, and redoes nothing that was committed.
//!
//! The quick form kills each kind of step once, in one of the jobs. The long one, in each of them every step that names something, and a
//! hundred more that a seed chooses among all (files growing, temporary files). With sources, state and
//! output in a bucket, too:
//!
//! ```text
//! FOREBAY_KILLS=100 cargo test -p forebay --test forebay nights::kills::
//! ```

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::nights::changed_history::{FUSED_SPEC, NightlyFixture};
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, content};

/// A run, and what lies there before it.
struct CrashJob {
    nights: NightlyFixture,
    args: Vec<String>,
    /// Serves the bucket in which everything lies, if it does not lie on a disk.
    server: Option<S3Server>,
}

/// Where the folder of the bucket is.
const LAKE: &str = "buckets/lake";

/// What a run should come to.
#[derive(PartialEq)]
struct CrashResult {
    rows: Option<RecordBatch>,
    artifacts: Vec<(String, Vec<u8>)>,
}

impl CrashJob {
    /// A run over some days; each of `nights` runs over its days first, and is committed.
    fn new(nights: &[usize], args: &[String], last: usize) -> CrashJob {
        CrashJob::over(NightlyFixture::new(true).with_early_split(), None).after(nights, args, last)
    }

    /// The same with everything in a bucket.
    fn in_bucket(nights: &[usize], last: usize) -> CrashJob {
        let all = NightlyFixture::new(true).with_early_split();
        let shop = &all.shop;
        ["history", "out", "state"].iter().for_each(|dir| {
            std::fs::create_dir_all(shop.path(LAKE).join(dir)).unwrap();
        });
        std::fs::create_dir_all(shop.path("tmp")).unwrap();
        let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        let spec = spec
            .replace("path: history", "path: s3://lake/history")
            .replace("default: out", "default: s3://lake/out");
        shop.write("spec.yaml", &spec);
        let server = S3Server::start(&shop.path("buckets"));
        CrashJob::over(all, Some(server)).after(nights, &[], last)
    }

    fn over(nights: NightlyFixture, server: Option<S3Server>) -> CrashJob {
        CrashJob {
            nights,
            args: Vec::new(),
            server,
        }
    }

    fn after(self, nights: &[usize], args: &[String], last: usize) -> CrashJob {
        let job = CrashJob {
            args: args.to_vec(),
            ..self
        };
        let mut shown = 0;
        for until in nights {
            job.show(shown..*until);
            shown = *until;
            job.forebay(&["run", "spec.yaml"]).expect(0);
        }
        job.show(shown..last);
        job.remember();
        job
    }

    /// Keeps everything as it is now.
    fn remember(&self) {
        for dir in self.directories() {
            std::fs::create_dir_all(self.path(dir)).unwrap();
            copy_preserving(&self.path(dir), &self.nights.shop.path("before").join(dir));
        }
    }

    /// Something that lies on the disk or in the bucket.
    fn path(&self, name: &str) -> PathBuf {
        self.nights.shop.path(&self.place(name))
    }

    fn place(&self, name: &str) -> String {
        if self.server.is_some() {
            format!("{LAKE}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Files that are old enough to be taken note of.
    fn show(&self, days: std::ops::Range<usize>) {
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        for day in days {
            let file = self.path("history").join(&self.nights.days[day]);
            std::fs::copy(
                self.nights.shop.path("all").join(&self.nights.days[day]),
                &file,
            )
            .unwrap();
            std::fs::File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        match &self.server {
            None => self
                .nights
                .shop
                .command(&[args, &["--json", "--state=state"]].concat()),
            Some(server) => {
                let args = [args, &["--json", "--state=s3://lake/state"]].concat();
                let mut command = server.command(&self.nights.shop, &args);
                command.env("TMPDIR", self.nights.shop.path("tmp"));
                command
            }
        }
    }

    fn forebay(&self, args: &[&str]) -> ProgramOutput {
        self.command(args).watched().into()
    }

    fn job(&self) -> Command {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.command(
            &[
                &[
                    "run",
                    "spec.yaml",
                    "--threads=2",
                    "--signal-nothing-new",
                    "--run-id=night",
                ],
                &args[..],
            ]
            .concat(),
        )
    }

    /// Everything as before the run.
    fn again(&self) {
        for dir in self.directories() {
            let _ = std::fs::remove_dir_all(self.path(dir));
            copy_preserving(&self.nights.shop.path("before").join(dir), &self.path(dir));
        }
    }

    /// What a run changes.
    fn directories(&self) -> &'static [&'static str] {
        if self.server.is_some() {
            &["out", "state"]
        } else {
            &["out", ".out.forebay", "state"]
        }
    }

    /// What readers see.
    fn seen(&self) -> Option<RecordBatch> {
        let shown = self
            .nights
            .shop
            .root(&self.place("out"))
            .join("_manifest.json")
            .exists();
        shown.then(|| self.nights.shop.visible(&self.place("out")))
    }

    fn result(&self) -> CrashResult {
        CrashResult {
            rows: self.seen(),
            artifacts: content(&self.path("state/artifacts")),
        }
    }

    /// What is committed (a span with the last of its partial states), and when it was written.
    fn committed(&self) -> BTreeMap<String, SystemTime> {
        let mut found = BTreeMap::new();
        let kinds = ["states", "passes", "shards", "carries"];
        for dir in kinds
            .into_iter()
            .filter(|dir| self.path("state").join(dir).exists())
        {
            for (name, _) in content(&self.path("state").join(dir)) {
                let name = format!("state/{dir}/{name}");
                found.insert(
                    name.clone(),
                    self.path(&name).metadata().unwrap().modified().unwrap(),
                );
            }
        }
        found
    }

    /// Kills the run at each of its steps that `moments` choose, and lets it go on.
    fn killed_and_resumed(&self, turn: usize) {
        let shop = &self.nights.shop;
        let before = self.seen();
        let calm: ProgramOutput = self
            .job()
            .env("FOREBAY_KILL_LOG", shop.path("steps"))
            .watched()
            .into();
        let calm = calm.expect(0).summary();
        let expected = self.result();
        let kept = self.committed();
        let kept: Vec<&String> = kept
            .keys()
            .filter(|name| name.contains("/carries/"))
            .collect();
        let steps = std::fs::read_to_string(shop.path("steps")).unwrap();
        let steps: Vec<String> = steps
            .lines()
            .map(|step| step_kind(step, &shop.at("")))
            .collect();
        let moments = chosen_steps(&steps, turn);
        for (nth, moment) in moments.iter().copied().enumerate() {
            let step = format!("step {moment} of {}: {}", steps.len(), steps[moment]);
            self.again();
            let killed = self
                .job()
                .env("FOREBAY_KILL_AT", moment.to_string())
                .watched();
            assert_eq!(
                killed.status.signal(),
                Some(9),
                "{step}: {}",
                String::from_utf8_lossy(&killed.stderr)
            );
            let seen = self.seen();
            assert!(
                seen == before || seen == expected.rows,
                "{step}: something between shows"
            );
            if seen.is_some()
                && shop
                    .path("out")
                    .read_dir()
                    .is_ok_and(|mut files| files.next().is_some())
            {
                let current = Some(shop.rows("out"));
                assert!(
                    current == before || current == expected.rows,
                    "{step}: the directory shows something between"
                );
            }
            let committed = self.committed();
            let call: ProgramOutput = self.job().watched().into();
            assert!(
                [0, 99].contains(&call.code),
                "{step}: {}\n{}",
                call.stdout,
                call.stderr
            );
            let resumed = call.summary();
            assert!(self.result() == expected, "{step}: another result");
            if self.server.is_none() {
                assert!(
                    shop.rows("out") == *expected.rows.as_ref().unwrap(),
                    "{step}: the directory shows another"
                );
            }
            let now = self.committed();
            for (name, written) in &committed {
                assert_eq!(
                    now.get(name),
                    Some(written),
                    "{step}: {name} was done again"
                );
            }
            let lost: Vec<_> = kept
                .iter()
                .filter(|name| !now.contains_key(**name))
                .collect();
            assert!(lost.is_empty(), "{step}: the next night needs {lost:?}");
            for (pass, calm) in passes(&resumed).zip(passes(&calm)) {
                let id = pass["id"].as_str().unwrap();
                let known = pass["work"] == "write"
                    && committed.contains_key(&format!("state/passes/{id}.json"));
                assert!(
                    !known || pass["reused"] == true,
                    "{step}: {pass} was done again"
                );
                let learned = pass["work"] == "learn"
                    && !steps[moment..].iter().any(|step| step.contains("partials"));
                assert!(
                    !learned || pass["rows_in"] == pass["rows_kept"],
                    "{step}: {pass} has read again"
                );
                assert_eq!(pass["id"], calm["id"]);
            }
            if nth + 1 < moments.len() && random_kill_count().is_none() {
                continue;
            }
            self.forebay(&["cache", "gc", "--older-than", "0s"])
                .expect(0);
            assert_eq!(
                temporary_files(&self.path("")),
                Vec::<String>::new(),
                "{step}"
            );
            let scratch = self
                .server
                .iter()
                .flat_map(|_| std::fs::read_dir(shop.path("tmp")).unwrap());
            assert_eq!(scratch.count(), 0, "{step}");
            self.forebay(&["cache", "verify"]).expect(0);
            let again: ProgramOutput = self.job().watched().into();
            again.expect(99);
        }
    }
}

fn passes(summary: &Value) -> impl Iterator<Item = &Value> {
    summary["passes"].as_array().unwrap().iter()
}

/// Links and times as they are.
pub fn copy_preserving(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    assert!(
        Command::new("cp")
            .args(["-a".as_ref(), from.as_os_str(), to.as_os_str()])
            .status()
            .unwrap()
            .success()
    );
}

/// A step without what is particular to it: ids, and where the tests lie.
pub fn step_kind(step: &str, root: &str) -> String {
    let plain = step.replace(root, "");
    let id = |part: &&str| {
        part.len() >= 32 && part.bytes().take(32).all(|byte| byte.is_ascii_hexdigit())
    };
    plain
        .split('/')
        .map(|part| if id(&part) { &part[..0] } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

/// How many moments the long form chooses.
fn random_kill_count() -> Option<u64> {
    std::env::var("FOREBAY_KILLS").ok()?.parse().ok()
}

/// Which steps to be killed at: in the quick form every third kind of step, from that of this turn on.
fn chosen_steps(steps: &[String], turn: usize) -> Vec<usize> {
    let mut chosen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut moments = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if random_kill_count().is_some() && step.contains('/') {
            moments.push(at);
        }
        chosen.entry(step).or_insert(at);
    }
    let random = (0..random_kill_count().unwrap_or(0)).map(|seed| {
        let x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20) as usize % steps.len()
    });
    let every = if random_kill_count().is_some() { 1 } else { 3 };
    moments.extend(
        chosen
            .into_values()
            .skip(turn % every)
            .step_by(every)
            .chain(random),
    );
    moments.sort_unstable();
    moments.dedup();
    moments
}

/// Temporary files and directories below a directory.
pub fn temporary_files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)
        .unwrap()
        .map(std::result::Result::unwrap)
    {
        let name = entry.file_name().into_string().unwrap();
        let temporary = ["tmp-", ".tmp", ".attempt-"]
            .iter()
            .any(|begin| name.starts_with(begin));
        if temporary || name.contains('#') {
            found.push(entry.path().display().to_string());
        } else if entry.file_type().unwrap().is_dir() {
            found.extend(temporary_files(&entry.path()));
        }
    }
    found
}

#[test]
fn a_first_run_survives_kills() {
    CrashJob::new(&[], &[], 6).killed_and_resumed(0);
}

#[test]
fn a_later_night_survives_kills() {
    // The third: what the first one showed goes, and what the second one showed stays for its readers.
    CrashJob::new(&[5, 6], &[], 7).killed_and_resumed(1);
}

#[test]
fn a_fused_night_survives_kills() {
    let nights = NightlyFixture::with_spec(&FUSED_SPEC.replace("MORE", ""));
    CrashJob::over(nights, None)
        .after(&[9], &[], 10)
        .killed_and_resumed(2);
}

#[test]
fn an_interval_run_survives_kills() {
    let all = NightlyFixture::new(true).with_early_split();
    let day = |day: usize| {
        let name = all.days[day].split('.').next().unwrap();
        name[name.len() - 10..].to_owned()
    };
    let job = CrashJob::new(&[], &["--interval".to_owned(), day(3), day(5)], 6);
    // Beside another one.
    let first: ProgramOutput = job
        .command(&["run", "spec.yaml", "--interval", &day(1), &day(3)])
        .watched()
        .into();
    first.expect(0);
    std::fs::remove_dir_all(job.nights.shop.path("before")).unwrap();
    job.remember();
    job.killed_and_resumed(2);
}

#[test]
fn a_night_in_a_bucket_survives_kills() {
    CrashJob::in_bucket(&[5], 6).killed_and_resumed(0);
}
