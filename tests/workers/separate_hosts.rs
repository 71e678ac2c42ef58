//! Workers on hosts of their own: network namespaces with cables between them, one of which is pulled.
//! Skipped where a test may not make such hosts.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{TestDirectory, content, ready_made};
use crate::workers::runs::{WorkerProcess, certificates};

/// Hosts `hub`, `a` and `b`, of which the first has a cable to each of the others. They go with this.
struct NetworkHosts(String);

impl NetworkHosts {
    fn new() -> Option<NetworkHosts> {
        let hosts = NetworkHosts(format!("forebay-{}", std::process::id()));
        let there = ["hub", "a", "b"]
            .iter()
            .all(|host| ip(&format!("netns add {}", hosts.name(host))));
        let cabled = there
            && [("a", 1), ("b", 2)]
                .iter()
                .all(|(host, net)| hosts.cable(host, *net));
        if !cabled {
            println!("SKIPPED: this user may not make network namespaces");
        }
        cabled.then_some(hosts)
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.0)
    }

    fn cable(&self, host: &str, net: u8) -> bool {
        let hub = self.name("hub");
        let host_name = self.name(host);
        ip(&format!(
            "-n {hub} link add to-{host} type veth peer name eth0 netns {host_name}"
        )) && ip(&format!(
            "-n {hub} addr add 10.231.{net}.1/30 dev to-{host}"
        )) && ip(&format!("-n {hub} link set to-{host} up"))
            && ip(&format!(
                "-n {host_name} addr add 10.231.{net}.2/30 dev eth0"
            ))
            && ip(&format!("-n {host_name} link set eth0 up"))
    }

    fn disconnect(&self, host: &str) {
        assert!(ip(&format!(
            "-n {} link set to-{host} down",
            self.name("hub")
        )));
    }

    /// The same command on a host.
    fn command_on(&self, host: &str, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there
            .args(["netns", "exec", &self.name(host)])
            .arg(command.get_program())
            .args(command.get_args());
        there.current_dir(command.get_current_dir().unwrap());
        there.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        there
    }
}

impl Drop for NetworkHosts {
    fn drop(&mut self) {
        for host in ["hub", "a", "b"] {
            ip(&format!("netns del {}", self.name(host)));
        }
    }
}

fn ip(args: &str) -> bool {
    let mut command = Command::new("ip");
    command
        .args(args.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn a_host_whose_cable_is_pulled_costs_only_what_it_was_doing() {
    let Some(hosts) = NetworkHosts::new() else {
        return;
    };
    let shop = TestDirectory::new();
    shop.days("history");
    let spec = ready_made("demand.yaml");
    let run = |name: &str| {
        let out = format!("--param=out={name}/out");
        let state = format!("--state={name}/state");
        let args = [
            "run",
            &spec,
            "--json",
            "--memory=256MiB",
            "--threads=2",
            "--param=history=history",
            &out,
            &state,
        ];
        let mut command = shop.command(&args);
        command.env("FOREBAY_RANGE_BYTES", "2000");
        command
    };
    let here = run("here").output().unwrap();
    assert!(
        here.status.success(),
        "{}",
        String::from_utf8_lossy(&here.stderr)
    );
    let secrets = certificates(&shop, "ours");
    let token = format!("--token-file={}", shop.write("token", "river\n"));
    let worker = |host: &str, net: u8| {
        let listen = format!("--listen=10.231.{net}.2:0");
        let mut command =
            shop.command(&["worker", &listen, "--threads=1", "--memory=128MiB", &token]);
        command.args(&secrets);
        let mut command = hosts.command_on(host, &command);
        WorkerProcess::of({
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            command
        })
    };
    let a = worker("a", 1);
    let b = worker("b", 2);
    let mut command = run("away");
    command
        .arg(format!("--workers={},{}", a.address, b.address))
        .args(&secrets);
    command.args([token.as_str(), "--tls-name=forebay", "--lease-seconds=2"]);
    let mut child = hosts
        .command_on("hub", &command)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pulled = false;
    let mut lost = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let is_b = event["worker"] == b.address.as_str();
        if is_b && event["event"] == "worker_joined" && !pulled {
            hosts.disconnect("b");
            pulled = true;
        }
        if is_b && event["event"] == "worker_lost" && lost.is_none() {
            lost = event["why"].as_str().map(str::to_owned);
        }
    }
    assert!(child.wait().unwrap().success());
    // Whether it had taken the task or not, silence told.
    let silent = ["nothing was heard", "without an answer"];
    assert!(
        pulled
            && silent
                .iter()
                .any(|why| lost.as_ref().is_some_and(|lost| lost.contains(why))),
        "{lost:?}"
    );
    assert!(shop.visible("here/out") == shop.visible("away/out"));
    assert!(
        content(&shop.path("here/state/artifacts")) == content(&shop.path("away/state/artifacts"))
    );
}
