//! The image of a served artifact: the commands of its Dockerfile, without a container.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{TestDirectory, repository};

const SPEC: &str = "version: 1\nname: shop\nsources:\n  demand: { parquet: { path: data } }\n\
                    steps:\n  features: { from: demand, do: [{ standardize: { columns: [qty] } }] }\n\
                    sinks:\n  table: { from: features, parquet: { path: out } }\n";

/// A server that is killed at the end of a test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The words of an instruction such as `CMD [...]`.
fn words_of(instruction: &str) -> Vec<String> {
    let file = repository().join("pipelines/serving/Dockerfile");
    let text = std::fs::read_to_string(file).unwrap().replace("\\\n", "");
    let line = text.lines().find(|line| line.starts_with(instruction));
    let line = line.unwrap();
    let list = line.find('[').unwrap();
    serde_json::from_str(&line[list..]).unwrap()
}

fn is_healthy(port: &str) -> bool {
    let words = words_of("HEALTHCHECK");
    let check = Command::new(&words[0])
        .args(words[1..].iter().map(|word| word.replace("8080", port)))
        .stderr(Stdio::null())
        .status();
    check.unwrap().success()
}

#[test]
fn the_image_serves_a_copied_artifact_and_checks_its_health() {
    let shop = TestDirectory::new();
    shop.demand("data", 1000);
    shop.write("spec.yaml", SPEC);
    let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let artifact = run.summary()["artifact_path"].as_str().unwrap().to_owned();
    let copied = Command::new("cp")
        .args(["-r", &artifact, "model"])
        .current_dir(shop.path("."))
        .status();
    assert!(copied.unwrap().success());
    let mut words = words_of("CMD").into_iter();
    assert_eq!(words.next().as_deref(), Some("forebay"));
    let words: Vec<String> = words
        .map(|word| word.replace("/model", "model").replace(":8080", ":0"))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Without a token, no address that other machines reach is served.
    let refused = shop.forebay(&words);
    assert!(refused.stderr.contains("FB0504"), "{}", refused.stderr);
    let mut server = Server(
        shop.command(&words)
            .env("FOREBAY_TOKEN", "a-token-of-some-length-0123456789")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving `shop`"), "{line}");
    let port = line.trim().rsplit(':').next().unwrap().to_owned();
    assert!(is_healthy(&port));
    drop(server);
    assert!(!is_healthy(&port));
}
