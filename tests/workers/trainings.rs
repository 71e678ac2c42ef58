//! Models of groups that workers train: the same bits as without workers, also where workers or the coordinator are
//! killed.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{WorkerProcess, events, workers_option};

/// Groups of which some have few rows; those above them predict for these.
const SPEC: &str = r#"
version: 1
name: groups
params:
  out: { type: path, default: out }
sources:
  demand: { parquet: { path: history }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - filter: "qty IS NOT NULL"
      - lag: { columns: [qty], by: [7d, 14d] }
split: { train: "date < DATE '2016-05-12'", validation: "date >= DATE '2016-05-12'" }
label: { column: qty, horizon: 7d, known: [category, department, price, promotion, event] }
sinks:
  trees:
    from: features
    train:
      path: "${out}/trees"
      model: gbdt
      rounds: 8
      leaves: 5
      min_leaf_rows: 5
      dense: [qty_lag_7d, qty_lag_14d, price]
      categorical: []
      quantiles: [0.9]
      by: [store_id, category]
      fallback: parent
      min_rows: 60
"#;

struct GroupsJob {
    shop: TestDirectory,
    model: Vec<u8>,
    groups: Value,
}

impl GroupsJob {
    fn new() -> GroupsJob {
        let shop = TestDirectory::new();
        shop.days("history");
        shop.write("spec.yaml", SPEC);
        let mut job = GroupsJob {
            shop,
            model: Vec::new(),
            groups: Value::Null,
        };
        let summary = job.run("here", &[]).expect(0).summary();
        (job.model, job.groups) = (job.model_of("here"), summary["models"][0]["groups"].clone());
        let count = |name: &str| job.groups[name].as_u64().unwrap();
        assert!(
            count("trained") > 4 && count("parents") > 0 && count("fallbacks") > 0,
            "{}",
            job.groups
        );
        job
    }

    fn command(&self, name: &str, more: &[&str]) -> Command {
        let out = format!("--param=out={name}");
        let state = format!("--state={name}/state");
        self.shop.command(
            &[
                &[
                    "run",
                    "spec.yaml",
                    "--json",
                    "--memory=256MiB",
                    "--threads=2",
                    &out,
                    &state,
                ],
                more,
            ]
            .concat(),
        )
    }

    fn run(&self, name: &str, more: &[&str]) -> ProgramOutput {
        self.command(name, more).watched().into()
    }

    fn model_of(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.shop.path(&format!("{name}/trees/model.safetensors"))).unwrap()
    }

    /// Rows and models that were on their way, and are kept no more.
    fn left(&self, name: &str) -> usize {
        let count = |dir: &str| {
            std::fs::read_dir(self.shop.path(&format!("{name}/state/{dir}")))
                .map_or(0, Iterator::count)
        };
        count("checkpoints") + count("exchanges")
    }

    fn worker(&self, envs: &[(&str, &str)]) -> WorkerProcess {
        WorkerProcess::start(&self.shop, &[], envs)
    }
}

#[test]
fn models_of_groups_have_the_same_bits() {
    let job = GroupsJob::new();
    for count in [1, 3] {
        let name = format!("on{count}");
        let done = job
            .run(&name, &[&format!("--local-workers={count}")])
            .expect(0);
        assert!(
            job.model_of(&name) == job.model,
            "{count} workers come to something else"
        );
        assert_eq!(done.summary()["models"][0]["groups"], job.groups);
        assert_eq!(job.left(&name), 0);
        assert!(events(&done, "worker_moved").count() > 0);
    }
    // What stands is not trained again, wherever it was trained.
    let text = SPEC
        .replace("out}/trees", "out}/trees\"\n      validation: \"validation")
        .replace(
            "date < DATE '2016-05-12'",
            "date < DATE '2016-05-12' AND date > DATE '2016-04-14'",
        );
    job.shop.write("spec.yaml", &text);
    let again = job.run("on3", &["--local-workers=2"]).expect(0).summary();
    let here = job.run("here", &[]).expect(0).summary();
    assert_eq!(again["models"][0]["groups"], here["models"][0]["groups"]);
    assert!(job.model_of("on3") == job.model_of("here"));
}

#[test]
fn a_worker_that_dies_while_it_trains_costs_only_its_groups() {
    let job = GroupsJob::new();
    let calm = job.worker(&[]);
    // Before the models are kept, and before the coordinator hears of it.
    for (number, step) in ["name", "have named"].into_iter().enumerate() {
        let name = format!("killed{number}");
        let mut doomed = job.worker(&[(
            "FOREBAY_KILL_ON",
            &format!("{step} {name}/state/exchanges/"),
        )]);
        // The only worker dies, and the run ends so that it can go on: on another one.
        job.run(&name, &[&workers_option(&[&doomed]), "--grace-seconds=1"])
            .expect(75);
        assert_eq!(doomed.end(), -9, "{step}: the worker lives");
        let done = job.run(&name, &[&workers_option(&[&calm])]).expect(0);
        assert!(
            job.model_of(&name) == job.model,
            "{step}: something else comes of it"
        );
        assert_eq!(
            (&done.summary()["models"][0]["groups"], job.left(&name)),
            (&job.groups, 0)
        );
    }
}

#[test]
fn a_killed_coordinator_goes_on_with_what_workers_have_trained() {
    let job = GroupsJob::new();
    let workers = [job.worker(&[]), job.worker(&[])];
    let workers = workers_option(&workers.iter().collect::<Vec<_>>());
    let log = job.shop.at("steps");
    let logged: ProgramOutput = job
        .command("logged", &[&workers])
        .env("FOREBAY_KILL_LOG", &log)
        .watched()
        .into();
    logged.expect(0);
    let steps = std::fs::read_to_string(&log).unwrap();
    let keeps = |(_, step): &(usize, &str)| {
        step.starts_with("have named") && (step.contains("checkpoints/") || step.contains("-rows"))
    };
    let moments: Vec<usize> = steps
        .lines()
        .enumerate()
        .filter(keeps)
        .map(|(at, _)| at)
        .collect();
    assert!(moments.len() > 8, "{steps}");
    for moment in [
        moments[1],
        moments[moments.len() / 2],
        moments[moments.len() - 1],
    ] {
        let name = format!("orphaned{moment}");
        let killed = job
            .command(&name, &[&workers])
            .env("FOREBAY_KILL_AT", moment.to_string())
            .watched();
        assert_eq!(
            killed.status.signal(),
            Some(9),
            "{}",
            String::from_utf8_lossy(&killed.stderr)
        );
        let resumed = job.run(&name, &[&workers]).expect(0).summary();
        assert!(
            job.model_of(&name) == job.model,
            "step {moment}: something else comes of it"
        );
        let groups = &resumed["models"][0]["groups"];
        let all = |name: &str| groups[name].as_u64().unwrap();
        assert_eq!(
            all("trained") + all("reused"),
            job.groups["trained"].as_u64().unwrap(),
            "{groups}"
        );
        assert_eq!(job.left(&name), 0, "step {moment}");
    }
}
