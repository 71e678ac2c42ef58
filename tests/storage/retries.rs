//! How long storage is waited for, which of its answers end a run at once, and what they say.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::request_failures::RequestFailure;
use crate::support::s3_server::{S3Server, SECRET};
use crate::support::{ProgramOutput, TestDirectory};

/// A small job over a bucket `lake`.
fn shop() -> (TestDirectory, S3Server) {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path("buckets/lake/in")).unwrap();
    shop.write(
        "buckets/lake/in/a.csv",
        "price,day\n1,2020-01-01\n2,2020-01-02\n3,2020-01-03\n",
    );
    let spec = "version: 1\nname: small\nparams: { in: { type: path, default: s3://lake/in }, out: { type: path } }\n\
                sources: { days: { csv: { path: \"${in}\" } } }\n\
                steps: { scaled: { from: days, do: [ standardize: { columns: [price] } ] } }\n\
                sinks: { table: { from: scaled, parquet: { path: \"${out}\" } } }\n";
    shop.write("small.yaml", spec);
    let server = S3Server::start(&shop.path("buckets"));
    (shop, server)
}

/// The job with other places than the usual ones.
fn bucket_job(server: &S3Server, shop: &TestDirectory, places: &[&str]) -> Command {
    let usual = ["--param=out=s3://lake/out", "--state=s3://lake/state"];
    let option = |place: &str| place.split("s3://").next().unwrap().to_owned();
    let other = |place: &&str| !places.iter().any(|given| option(given) == option(place));
    let args: Vec<&str> = usual
        .into_iter()
        .filter(other)
        .chain(places.iter().copied())
        .collect();
    let mut command = server.command(
        shop,
        &[
            &["run", "small.yaml", "--json", "--memory=256MiB"],
            &args[..],
        ]
        .concat(),
    );
    command.env_remove("AWS_MAX_ATTEMPTS");
    command
}

fn wait_for_output(mut command: Command) -> ProgramOutput {
    command.output().unwrap().into()
}

#[track_caller]
fn expect(call: ProgramOutput, exit: i32, code: &str, says: &[&str]) {
    let call = call.expect(exit);
    assert!(call.stderr.contains(code), "{}", call.stderr);
    for word in says {
        assert!(call.stderr.contains(word), "no `{word}` in {}", call.stderr);
    }
    assert!(!call.stderr.contains(SECRET) && !call.stdout.contains(SECRET));
}

#[test]
fn refused_connections_use_up_a_time() {
    let (shop, mut server) = shop();
    server.endpoint = "http://127.0.0.1:9".to_owned();
    let begin = Instant::now();
    let mut command = bucket_job(&server, &shop, &[]);
    command.env("FOREBAY_RETRY_SECONDS", "2");
    expect(
        wait_for_output(command),
        75,
        "FB0401",
        &["attempts over", "FOREBAY_RETRY_SECONDS"],
    );
    assert!(
        begin.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begin.elapsed()
    );
    for (name, value) in [
        ("FOREBAY_RETRY_SECONDS", "soon"),
        ("FOREBAY_RETRY_SECONDS", "-1"),
        ("AWS_MAX_ATTEMPTS", "0"),
    ] {
        let mut command = bucket_job(&server, &shop, &[]);
        command.env(name, value);
        expect(wait_for_output(command), 78, "FB0104", &[name, value]);
    }
}

#[test]
fn a_missing_bucket_is_named_before_anything_is_read() {
    let (shop, server) = shop();
    let read = Arc::new(AtomicU64::new(0));
    for place in [
        "--param=out=s3://nowhere/out",
        "--state=s3://nowhere/state",
        "--param=in=s3://nowhere/in",
    ] {
        let counter = read.clone();
        server.inject_failures(move |asked| {
            counter.fetch_add(
                u64::from(asked.target.contains("in/a.csv")),
                Ordering::Relaxed,
            );
            None
        });
        let call = wait_for_output(bucket_job(&server, &shop, &[place]));
        expect(
            call,
            78,
            "FB0403",
            &[
                "the bucket `nowhere` does not exist",
                "s3://nowhere/",
                "hint",
            ],
        );
        assert_eq!(read.load(Ordering::Relaxed), 0, "{place}");
        assert!(!shop.path("buckets/lake/out").exists());
    }
    server.stop_failures();
    wait_for_output(bucket_job(&server, &shop, &[])).expect(0);
}

#[test]
fn a_bucket_that_may_not_be_written_is_named_before_the_first_pass() {
    let (shop, server) = shop();
    server.inject_failures(move |asked| {
        let is_write = ["PUT", "POST"].contains(&&*asked.method);
        (is_write && asked.target.contains("/out"))
            .then_some(RequestFailure::Says(403, "AccessDenied"))
    });
    let call = wait_for_output(bucket_job(&server, &shop, &[]));
    assert!(!call.stderr.contains("in pass"), "{}", call.stderr);
    expect(
        call,
        78,
        "FB0403",
        &["storage refused access", "s3://lake/out"],
    );
    server.stop_failures();
    wait_for_output(bucket_job(&server, &shop, &[])).expect(0);
    // Uploads that were tried have left nothing.
    for (name, _) in crate::support::content(&shop.path("buckets")) {
        assert!(!name.contains("trial"), "{name}");
    }
}

/// A bucket that may not be listed is the user's to mend: a repetition does not help.
#[test]
fn a_refused_listing_is_no_reason_to_try_again() {
    let (shop, server) = shop();
    server.inject_failures(|asked| {
        let is_listing = asked.method == "GET" && asked.target.contains("list-type");
        is_listing.then_some(RequestFailure::Refused(403))
    });
    let call = wait_for_output(bucket_job(&server, &shop, &[]));
    expect(
        call,
        78,
        "FB0403",
        &["storage refused access", "s3://lake/"],
    );
    server.stop_failures();
}

#[test]
fn missing_credentials_name_their_variables() {
    let (shop, server) = shop();
    let without = |names: &[&str]| {
        let mut command = bucket_job(&server, &shop, &[]);
        for name in names {
            command.env_remove(name);
        }
        command
            .env("HOME", shop.path(""))
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    };
    let key = "AWS_ACCESS_KEY_ID";
    let secret = "AWS_SECRET_ACCESS_KEY";
    expect(
        wait_for_output(without(&[key, secret])),
        78,
        "FB0403",
        &["lake", key, secret, "AWS_PROFILE"],
    );
    expect(
        wait_for_output(without(&[secret])),
        78,
        "FB0403",
        &["AWS_SECRET_ACCESS_KEY is not"],
    );
    expect(
        wait_for_output(without(&[key])),
        78,
        "FB0403",
        &["AWS_ACCESS_KEY_ID is not"],
    );
    let mut named = without(&[key, secret]);
    named.env("AWS_PROFILE", "nightly");
    expect(
        wait_for_output(named),
        78,
        "FB0403",
        &["nightly", ".aws/credentials"],
    );
}

#[test]
fn expired_credentials_are_read_again_or_keep_what_is_committed() {
    // Variables cannot change while a run goes on: it ends at once, and goes on later.
    let (shop, server) = shop();
    server.inject_failures(|asked| {
        (asked.method == "PUT" && asked.target.contains("/out/"))
            .then_some(RequestFailure::Says(400, "ExpiredToken"))
    });
    let call = wait_for_output(bucket_job(&server, &shop, &[]));
    expect(call, 75, "FB0406", &["expired", "what is committed stays"]);
    assert!(server.stop_failures() >= 1);
    let again = wait_for_output(bucket_job(&server, &shop, &[]))
        .expect(0)
        .summary();
    assert_eq!(
        again["passes"][0]["reused"], true,
        "what was learned was learned again"
    );

    // A file can: the credentials that are in it at first are wrong, too.
    let (shop, server) = self::shop();
    std::fs::create_dir(shop.path(".aws")).unwrap();
    let write = |path: &std::path::Path, secret: &str| {
        let text =
            format!("[default]\naws_access_key_id = key\naws_secret_access_key = {secret}\n");
        std::fs::write(path, text).unwrap();
    };
    let file = shop.path(".aws/credentials");
    write(&file, "of-yesterday");
    let renewed = file.clone();
    let mut left = 3;
    server.inject_failures(move |_| {
        left -= i32::from(left >= 0);
        if left == 0 {
            write(&renewed, SECRET);
        }
        (left >= 0).then_some(RequestFailure::Says(400, "ExpiredToken"))
    });
    let mut command = bucket_job(&server, &shop, &[]);
    command
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_SECRET_ACCESS_KEY")
        .env("HOME", shop.path(""));
    wait_for_output(command).expect(0);
    assert_eq!(server.stop_failures(), 3);
}

#[test]
fn paths_that_stay_wrong_are_not_tried_again() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("folder")).unwrap();
    shop.write("a.csv", "price\n1\n2\n");
    let spec = |input: &str, out: &str| {
        let spec = format!(
            "version: 1\nname: small\nsources: {{ days: {{ csv: {{ path: {input} }} }} }}\n\
             steps: {{ scaled: {{ from: days, do: [ standardize: {{ columns: [price] }} ] }} }}\n\
             sinks: {{ table: {{ from: scaled, parquet: {{ path: {out} }} }} }}\n"
        );
        shop.write("spec.yaml", &spec);
    };
    let long = "x".repeat(300);
    spec("a.csv", &long);
    let call = shop.forebay(&["run", "spec.yaml", "--memory=256MiB"]);
    assert!(
        [65, 78].contains(&call.code),
        "{}: {}",
        call.code,
        call.stderr
    );
    spec("a.csv/b.csv", "out");
    let call = shop.forebay(&["run", "spec.yaml", "--memory=256MiB"]);
    assert!(
        [65, 78].contains(&call.code),
        "{}: {}",
        call.code,
        call.stderr
    );
    shop.forebay(&["run", "folder"]).expect(78);
    shop.forebay(&["run", "a.csv/spec.yaml"]).expect(78);
    for listen in ["nonsense", "127.0.0.1", "192.0.2.1:0"] {
        for command in [["worker", "--listen"], ["top", "--listen"]] {
            let call = shop.forebay(&[command[0], command[1], listen]).expect(78);
            assert!(call.stderr.contains("hint"), "{listen}: {}", call.stderr);
        }
    }
}
