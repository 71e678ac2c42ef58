//! Two processes at one run: the later attempt continues, and the earlier one reports the takeover.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::nights::changed_history::NightlyFixture;
use crate::support::s3_server::S3Server;
use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, content};

/// How long a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same job on a disk and in a bucket.
struct FencedJob {
    nights: NightlyFixture,
    server: Option<S3Server>,
}

impl FencedJob {
    fn on_disk() -> FencedJob {
        let nights = NightlyFixture::new(false).with_early_split();
        (0..6).for_each(|day| nights.show(day));
        FencedJob {
            nights,
            server: None,
        }
    }

    fn in_bucket() -> FencedJob {
        let job = FencedJob::on_disk();
        let shop = &job.nights.shop;
        ["out", "state"]
            .iter()
            .for_each(|dir| std::fs::create_dir_all(shop.path("buckets/lake").join(dir)).unwrap());
        let spec = std::fs::read_to_string(shop.path("spec.yaml")).unwrap();
        shop.write(
            "spec.yaml",
            &spec.replace("default: out", "default: s3://lake/out"),
        );
        let server = S3Server::start(&shop.path("buckets"));
        FencedJob {
            server: Some(server),
            ..job
        }
    }

    fn command(&self, run_id: &str, args: &[&str]) -> Command {
        let run_id = format!("--run-id={run_id}");
        let args = [
            &["run", "spec.yaml", "--json", "--threads=2", &run_id],
            args,
        ]
        .concat();
        match &self.server {
            None => self
                .nights
                .shop
                .command(&[&args[..], &["--state=state"]].concat()),
            Some(server) => server.command(
                &self.nights.shop,
                &[&args[..], &["--state=s3://lake/state"]].concat(),
            ),
        }
    }

    fn run(&self, run_id: &str, args: &[&str]) -> ProgramOutput {
        self.command(run_id, args).watched().into()
    }

    /// What readers see, byte by byte.
    fn shown(&self) -> Vec<(String, Vec<u8>)> {
        let lake = if self.server.is_some() {
            "buckets/lake/"
        } else {
            ""
        };
        let root = self.nights.shop.root(&format!("{lake}out"));
        let manifest = std::fs::read(root.join("_manifest.json")).unwrap();
        [
            content(&self.nights.shop.path(&format!("{lake}state/artifacts"))),
            vec![("manifest".to_owned(), manifest)],
        ]
        .concat()
    }
}

/// A process that was sent to sleep at some moment.
struct SuspendedProcess {
    child: Child,
}

impl SuspendedProcess {
    /// Waits until it sleeps.
    fn at(moment: &str, mut command: Command) -> SuspendedProcess {
        command
            .env("FOREBAY_KILL_ON", moment)
            .env("FOREBAY_KILL_WITH", "stop");
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let mut held = SuspendedProcess { child };
        loop {
            let status =
                std::fs::read_to_string(format!("/proc/{}/stat", held.child.id())).unwrap();
            if status
                .rsplit(')')
                .next()
                .unwrap()
                .trim_start()
                .starts_with('T')
            {
                return held;
            }
            assert!(
                held.child.try_wait().unwrap().is_none(),
                "it never came to {moment}"
            );
            assert!(begin.elapsed() < PATIENCE, "it does not come to {moment}");
            std::thread::yield_now();
        }
    }

    /// Wakes it and waits for its end.
    fn wake(mut self) -> ProgramOutput {
        assert!(
            Command::new("kill")
                .args(["-CONT", &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let mut call = ProgramOutput {
            code: 0,
            stdout: String::new(),
            stderr: String::new(),
        };
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut call.stdout)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut call.stderr)
            .unwrap();
        call.code = self.child.wait().unwrap().code().unwrap_or(-1);
        call
    }
}

impl Drop for SuspendedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn takeover_events(call: &ProgramOutput) -> Vec<Value> {
    let events = call
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    events
        .filter(|event: &Value| event["event"] == "taken_over")
        .collect()
}

/// A run that sleeps at `moment` loses to the next attempt, and says so when it wakes up.
fn loses_at(job: &FencedJob, moment: &str) {
    let held = SuspendedProcess::at(moment, job.command("night-1", &[]));
    let winner = job.run("night-1", &[]).expect(0);
    let [event] = &takeover_events(&winner)[..] else {
        panic!("{}", winner.stdout)
    };
    assert_eq!(
        (&event["run_id"], &event["attempt"]),
        (&"night-1".into(), &2.into())
    );
    assert_eq!(event["from"]["process"], held.child.id());
    let shown = job.shown();
    let loser = held.wake().expect(75);
    let fault = loser.summary()["fault"].clone();
    assert_eq!(
        (&fault["code"], &fault["exit_code"]),
        (&"FB0405".into(), &75.into()),
        "{moment}"
    );
    assert!(
        fault["message"]
            .as_str()
            .unwrap()
            .starts_with("attempt 2 of run `night-1` took over"),
        "{fault}"
    );
    assert!(
        job.shown() == shown,
        "{moment}: the attempt that lost changed what is seen"
    );
    // The same command finds the result.
    let again = job.run("night-1", &[]).expect(0);
    assert_eq!(
        (
            &again.summary()["nothing_new"],
            &takeover_events(&again)[0]["attempt"]
        ),
        (&true.into(), &3.into())
    );
    assert!(job.shown() == shown);
}

#[test]
fn the_last_attempt_at_a_run_wins_and_the_other_says_so() {
    // Before anything is learned, while rows are written, and when they are about to be recorded.
    for moment in [
        "have put state/runs",
        "name state/partials",
        "write a file of rows",
        "put state/passes",
    ] {
        loses_at(&FencedJob::on_disk(), moment);
    }
}

#[test]
fn the_last_attempt_wins_in_a_bucket() {
    // The last one has read the manifest that it wants to replace.
    for moment in [
        "put s3://lake/state/states",
        "have put s3://lake/state/passes",
    ] {
        loses_at(&FencedJob::in_bucket(), moment);
    }
}

#[test]
fn a_killed_attempt_leaves_no_lock() {
    let job = FencedJob::on_disk();
    for (number, moment) in ["have put state/runs", "state/states"]
        .into_iter()
        .enumerate()
    {
        let killed = job
            .command("night-1", &[])
            .env("FOREBAY_KILL_ON", moment)
            .watched();
        assert_eq!(killed.status.code(), None, "attempt {}", number + 1);
    }
    let call = job.run("night-1", &[]).expect(0);
    assert_eq!(takeover_events(&call)[0]["attempt"], 3);
}

/// Another run of the same pipeline, or the same run of another job, is none of its business.
#[test]
fn only_the_same_run_is_taken_over() {
    let job = FencedJob::on_disk();
    let held = SuspendedProcess::at("write a file of rows", job.command("night-1", &[]));
    assert_eq!(
        takeover_events(&job.run("night-2", &[]).expect(0)),
        Vec::<Value>::new()
    );
    assert_eq!(
        takeover_events(&job.run("night-1", &["--param=out=elsewhere"]).expect(0)),
        Vec::<Value>::new()
    );
    held.wake().expect(0);
}

/// However many begin at once: one of them brings it to its end, and all others say why they do not.
#[test]
fn of_several_that_begin_at_once_one_wins() {
    let job = FencedJob::on_disk();
    let calm = FencedJob::on_disk();
    calm.run("calm", &[]).expect(0);
    let run = |_| {
        job.command("night-1", &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let runs: Vec<Child> = (0..4).map(run).collect();
    let calls: Vec<ProgramOutput> = runs
        .into_iter()
        .map(|run| run.wait_with_output().unwrap().into())
        .collect();
    assert!(calls.iter().any(|call| call.code == 0), "{calls:?}");
    for loser in calls.iter().filter(|call| call.code != 0) {
        assert_eq!(
            (loser.code, &loser.summary()["fault"]["code"]),
            (75, &"FB0405".into()),
            "{loser:?}"
        );
    }
    assert!(job.nights.shop.rows("out") == calm.nights.shop.rows("out"));
}
