//! Which processes a worker and a coordinator believe, and who may ask `top`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::{CuttingProxy, WorkerProcess};

/// A small job, ready to run.
fn shop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.write(
        "a.csv",
        "price,day\n1,2020-01-01\n2,2020-01-02\n3,2020-01-03\n",
    );
    let spec = "version: 1\nname: small\nsources: { days: { csv: { path: a.csv } } }\n\
                steps: { scaled: { from: days, do: [ standardize: { columns: [price] } ] } }\n\
                sinks: { table: { from: scaled, parquet: { path: out } } }\n";
    shop.write("small.yaml", spec);
    shop
}

/// A run of the job from its beginning.
fn run(shop: &TestDirectory, address: &str) -> Command {
    let _ = std::fs::remove_dir_all(shop.path("state"));
    let workers = format!("--workers={address}");
    let options = ["--grace-seconds=1", "--memory=256MiB", "--state=state"];
    shop.command(&[&["run", "small.yaml", "--json", &workers], &options[..]].concat())
}

fn output(mut command: Command) -> ProgramOutput {
    command.output().unwrap().into()
}

#[test]
fn a_worker_without_a_given_token_serves_its_user_alone() {
    let shop = shop();
    let worker = WorkerProcess::start(&shop, &[], &[]);
    let token = shop.user_token();
    let mode = std::fs::metadata(&token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        std::fs::metadata(token.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    let secret = std::fs::read_to_string(&token).unwrap();
    assert!(secret.trim().len() >= 40);
    // The same user finds the token without being told.
    output(run(&shop, &worker.address)).expect(0);

    // Another user has another one, and neither is told that of the other.
    let mut other = run(&shop, &worker.address);
    other.env("XDG_STATE_HOME", shop.path("other"));
    let call = output(other).expect(75);
    assert!(call.stderr.contains("FB0504"), "{}", call.stderr);
    let others = std::fs::read_to_string(shop.path("other/forebay/token")).unwrap();
    assert_ne!(secret, others);
    assert!(!call.stderr.contains(secret.trim()) && !call.stderr.contains(others.trim()));

    // A file that others may read is no secret any more.
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let call = output(run(&shop, &worker.address)).expect(78);
    assert!(
        call.stderr.contains("FB0504") && call.stderr.contains("chmod 600"),
        "{}",
        call.stderr
    );
}

#[test]
fn a_process_that_passes_messages_on_is_not_believed() {
    let shop = shop();
    let worker = WorkerProcess::start(&shop, &[], &[]);
    let proxy = CuttingProxy::start(&worker.address, u64::MAX);
    let call = output(run(&shop, &proxy.address)).expect(75);
    assert!(
        call.stderr.contains("FB0504") && call.stderr.contains("forwarded"),
        "{}",
        call.stderr
    );
}

#[test]
fn files_and_variables_that_hold_no_token_are_faults() {
    let shop = shop();
    shop.write("empty", "");
    shop.write("blank", " \n\n");
    shop.write("large", &"x".repeat(5000));
    shop.write("open", "river\n");
    std::fs::set_permissions(shop.path("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::create_dir(shop.path("folder")).unwrap();
    std::fs::write(shop.path("bytes"), [0xff, 0xfe, 0x00]).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(shop.path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let cases = [
        ("empty", "is empty"),
        ("blank", "is empty"),
        ("large", "too large"),
        ("open", "may write"),
        ("folder", "no regular file"),
        ("bytes", "no text"),
        ("pipe", "no regular file"),
        ("missing", "cannot be read"),
    ];
    for (file, says) in cases {
        let file = format!("--token-file={file}");
        let mut coordinator = run(&shop, "127.0.0.1:9");
        coordinator.arg(&file);
        for command in [
            coordinator,
            shop.command(&["worker", "--listen=127.0.0.1:0", &file]),
        ] {
            let call = output(command).expect(78);
            assert!(call.stderr.contains(says), "{file}: {}", call.stderr);
        }
    }
    for mut command in [
        run(&shop, "127.0.0.1:9"),
        shop.command(&["worker", "--listen=127.0.0.1:0"]),
    ] {
        command.env("FOREBAY_TOKEN", " ");
        let call = output(command).expect(78);
        assert!(
            call.stderr.contains("FOREBAY_TOKEN is set, and empty"),
            "{}",
            call.stderr
        );
    }
}

/// `forebay top --listen`; it ends with this.
struct TopServer {
    child: Child,
    address: String,
}

impl Drop for TopServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TopServer {
    fn start(shop: &TestDirectory, args: &[&str]) -> TopServer {
        let mut command = shop.command(&[&["top", "--listen"], args].concat());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        TopServer {
            child,
            address: format!("127.0.0.1:{port}"),
        }
    }

    fn answer(&self, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: here\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn top_tells_other_machines_nothing_without_a_token() {
    let shop = TestDirectory::new();
    let call = shop.forebay(&["top", "--listen", "0.0.0.0:0"]).expect(78);
    assert!(
        call.stderr.contains("FB0504") && call.stderr.contains("--token-file"),
        "{}",
        call.stderr
    );
    shop.write("empty", "\n");
    shop.forebay(&["top", "--listen", "0.0.0.0:0", "--token-file", "empty"])
        .expect(78);

    let here = TopServer::start(&shop, &["127.0.0.1:0"]);
    assert!(here.answer("").starts_with("HTTP/1.1 200"));
    shop.write("token", "river\n");
    let open = TopServer::start(&shop, &["0.0.0.0:0", "--token-file", "token"]);
    for headers in [
        "",
        "Authorization: Bearer lake\r\n",
        "Authorization: river\r\n",
        "X: Bearer river\r\n",
    ] {
        let answer = open.answer(headers);
        assert!(
            answer.starts_with("HTTP/1.1 401") && !answer.contains("queued"),
            "{headers}: {answer}"
        );
    }
    let answer = open.answer("authorization: bearer river\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"queued\":0"),
        "{answer}"
    );
}
