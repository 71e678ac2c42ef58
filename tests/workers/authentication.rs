//! Which processes a worker and a coordinator believe, and who may ask `top`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::support::{ProgramOutput, TestDirectory};
use crate::workers::runs::{CuttingProxy, WorkerProcess};

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

/// The beginning of a connection of HTTP/2, and a request for the version of a worker whose body does not end.
fn endless_request() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // Fields without an index: method, scheme, path and content type.
    let mut fields = vec![0x83, 0x86];
    for (name, value) in [
        (":path", "/worker.WorkerService/GetWorkerInfo"),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        fields.push(0);
        for text in [name, value] {
            fields.push(text.len() as u8);
            fields.extend(text.as_bytes());
        }
    }
    bytes.extend([0, 0, fields.len() as u8, 1, 4, 0, 0, 0, 1]);
    bytes.extend(fields);
    // Frames of 16,384 bytes of data.
    for _ in 0..64 {
        bytes.extend([0, 0x40, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend([0; 0x4000]);
    }
    bytes
}

/// Memory of a process, without the pages of its program.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Peers that prove nothing take neither memory nor places from a worker.
#[test]
fn peers_without_a_proof_take_little() {
    const PEERS: usize = 80;
    /// Connections without a proof that a worker keeps.
    const KEPT: usize = 64;
    let shop = shop();
    let worker = WorkerProcess::start(&shop, &[], &[]);
    let before = resident_kib(worker.child.id());
    let request = endless_request();
    let mut peers: Vec<TcpStream> = Vec::new();
    for _ in 0..PEERS {
        let mut peer = TcpStream::connect(&worker.address).unwrap();
        // The system's buffers take a part of it, and then nothing moves.
        peer.set_write_timeout(Some(std::time::Duration::from_millis(50)))
            .unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(60)))
            .unwrap();
        let _ = peer.write_all(&request);
        peers.push(peer);
    }
    // The first ones have made room for the last ones.
    for peer in &mut peers[..PEERS - KEPT] {
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert!(answer.len() < 4096);
    }
    let grown = resident_kib(worker.child.id()).saturating_sub(before);
    assert!(grown < 32 << 10, "the worker took {grown} KiB");
    // Its own coordinators find a place all the same, and all others are gone after ten seconds.
    output(run(&shop, &worker.address)).expect(0);
    let began = std::time::Instant::now();
    for peer in &mut peers[PEERS - KEPT..] {
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(40));
}

/// A worker without a free descriptor goes on once there is one.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_without_descriptors_waits_for_one() {
    let shop = shop();
    let program = shop.command(&[]);
    let mut command = Command::new("bash");
    let script = "ulimit -n 48; exec \"$0\" \"$@\"";
    command
        .args(["-c", script])
        .arg(program.get_program())
        .args([
            "worker",
            "--listen=127.0.0.1:0",
            "--threads=1",
            "--memory=128MiB",
        ])
        .current_dir(shop.path(""))
        .envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let worker = WorkerProcess::of(command);
    let peers: Vec<TcpStream> = (0..60)
        .map(|_| TcpStream::connect(&worker.address).unwrap())
        .collect();
    drop(peers);
    output(run(&shop, &worker.address)).expect(0);
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

/// Encoders recurse for each level of a type: a deep one is refused before the run, and does not end the program.
#[test]
fn columns_of_deep_types_are_refused_before_the_run() {
    let shop = TestDirectory::new();
    let spec = "version: 1\nname: z\nsources: { a: { json: { path: a.json } } }\n\
                steps: { f: { from: a, do: [ { filter: \"x > 0\" } ] } }\n\
                sinks: { t: { from: f, parquet: { path: out } } }\n";
    shop.write("spec.yaml", spec);
    for (open, close) in [("[", "]"), ("{\"k\": ", "}")] {
        let line = |levels: usize| {
            format!(
                "{{\"x\": 1, \"n\": {}1{}}}\n",
                open.repeat(levels),
                close.repeat(levels)
            )
        };
        shop.write("a.json", &line(32));
        shop.forebay(&["run", "spec.yaml", "--state=state"])
            .expect(0);
        shop.write("a.json", &line(50));
        for command in ["check", "run"] {
            let call = shop.forebay(&[command, "spec.yaml"]).expect(78);
            for word in ["FB0303", "`n` nests 50 levels"] {
                assert!(call.stderr.contains(word), "{command}: {}", call.stderr);
            }
        }
    }
}
