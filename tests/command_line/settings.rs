//! Where memory, threads, state and workers come from: flags, the environment, a project's file, the user's file.

use std::collections::BTreeMap;

use crate::support::watched_command::WatchedCommand;
use crate::support::{ProgramOutput, TestDirectory, ready_made};

/// A place that can name a value.
struct Origin {
    flag: &'static [&'static str],
    variable: Option<(&'static str, &'static str)>,
    project: &'static str,
    user: &'static str,
    /// What `doctor` says then.
    expected: &'static str,
}

const NONE: Origin = Origin {
    flag: &[],
    variable: None,
    project: "",
    user: "",
    expected: "",
};

fn call(
    shop: &TestDirectory,
    folder: &str,
    args: &[&str],
    variables: &[(&str, &str)],
) -> ProgramOutput {
    let mut command = shop.command(args);
    command
        .current_dir(shop.path(folder))
        .envs(variables.iter().copied())
        .watched()
        .into()
}

/// The lines of `doctor`, by their first word.
fn doctor(
    shop: &TestDirectory,
    folder: &str,
    args: &[&str],
    variables: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let answer = call(shop, folder, &[&["doctor"], args].concat(), variables).expect(0);
    let lines = answer
        .stdout
        .lines()
        .filter_map(|line| line.split_once("  "));
    lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Adds the origins one by one, the weakest first: each must take the place of all before it.
fn check_precedence(name: &str, origins: &[Origin]) {
    let shop = TestDirectory::new();
    std::fs::create_dir_all(shop.path(".config/forebay")).unwrap();
    std::fs::create_dir_all(shop.path("project/deep/down")).unwrap();
    let mut flag: &[&str] = &[];
    let mut variables: Vec<(&str, &str)> = Vec::new();
    for origin in origins {
        if !origin.user.is_empty() {
            shop.write(".config/forebay/config.toml", origin.user);
        }
        if !origin.project.is_empty() {
            shop.write("project/forebay.toml", origin.project);
        }
        flag = if origin.flag.is_empty() {
            flag
        } else {
            origin.flag
        };
        variables.extend(origin.variable);
        let expected = origin.expected.replace("[DIR]", &shop.at(""));
        for folder in ["project", "project/deep/down"] {
            let found = &doctor(&shop, folder, flag, &variables)[name];
            let project = if folder == "project" {
                "forebay.toml".to_owned()
            } else {
                shop.at("project/forebay.toml")
            };
            let expected = expected.replace("[PROJECT]", &project);
            assert!(
                found.contains(&expected),
                "`{expected}` is not in `{found}`, in {folder}"
            );
        }
    }
}

#[test]
fn a_flag_comes_before_the_environment_the_project_the_user_and_the_default() {
    check_precedence(
        "memory",
        &[
            Origin {
                expected: ", from the default",
                ..NONE
            },
            Origin {
                user: "# mine\nmemory = \"65MiB\"\n",
                expected: "68.2 MB of ",
                ..NONE
            },
            Origin {
                expected: "from [DIR].config/forebay/config.toml:2",
                ..NONE
            },
            Origin {
                project: "\n\nmemory = \"66MiB\"",
                expected: "69.2 MB of ",
                ..NONE
            },
            Origin {
                expected: "from [PROJECT]:3",
                ..NONE
            },
            Origin {
                variable: Some(("FOREBAY_MEMORY", "67MiB")),
                expected: "from FOREBAY_MEMORY",
                ..NONE
            },
            Origin {
                flag: &["--memory=68MiB"],
                expected: "71.3 MB of ",
                ..NONE
            },
            Origin {
                expected: "from --memory",
                ..NONE
            },
        ],
    );
    check_precedence(
        "threads",
        &[
            Origin {
                expected: ", from the default",
                ..NONE
            },
            Origin {
                user: "threads = 11",
                expected: "11 of ",
                ..NONE
            },
            Origin {
                project: "threads = 1_2",
                expected: "12 of ",
                ..NONE
            },
            Origin {
                variable: Some(("FOREBAY_THREADS", "13")),
                expected: "13 of ",
                ..NONE
            },
            Origin {
                flag: &["--threads=14"],
                expected: "14 of ",
                ..NONE
            },
        ],
    );
    check_precedence(
        "state",
        &[
            Origin {
                expected: ".forebay, from the default; can be read and written",
                ..NONE
            },
            Origin {
                user: "state = \"/tmp\"",
                expected: "/tmp, from [DIR].config/forebay/config.toml:1",
                ..NONE
            },
            // Beside the file, from wherever the program is called.
            Origin {
                project: "state = 'kept'",
                expected: "kept, from [PROJECT]:1",
                ..NONE
            },
            Origin {
                variable: Some(("FOREBAY_STATE", "there")),
                expected: "there, from FOREBAY_STATE",
                ..NONE
            },
            Origin {
                flag: &["--state=here"],
                expected: "here, from --state",
                ..NONE
            },
        ],
    );
    check_precedence(
        "workers",
        &[
            Origin {
                expected: "none, from the default",
                ..NONE
            },
            Origin {
                user: "local_workers = 3",
                expected: "3 of this machine, from ",
                ..NONE
            },
            Origin {
                project: "workers = [\"a:1\", \"b:2\"]",
                expected: "a:1, b:2, from [PROJECT]:1",
                ..NONE
            },
            Origin {
                variable: Some(("FOREBAY_WORKERS", "c:3, d:4")),
                expected: "c:3, d:4, from FOREBAY_W",
                ..NONE
            },
            Origin {
                flag: &["--local-workers=0"],
                expected: "none, from --local-workers",
                ..NONE
            },
        ],
    );
}

#[test]
fn a_run_takes_its_settings() {
    let shop = TestDirectory::new();
    let data = shop.demand("demand", 1000);
    std::fs::create_dir_all(shop.path("project/deep")).unwrap();
    shop.write(
        "project/forebay.toml",
        "threads = 1\nmemory = \"256MiB\"\nstate = \"kept\"\n",
    );
    let spec = ready_made("demand.yaml");
    let fit = ["fit", &spec, &format!("--param=history={data}"), "--json"];
    let summary = call(&shop, "project/deep", &fit, &[]).expect(0).summary();
    // The state lies beside the file that names it.
    let artifact = summary["artifact_path"].as_str().unwrap();
    assert!(
        artifact.starts_with(&shop.at("project/kept/artifacts/")),
        "{artifact}"
    );
    assert!(
        shop.path("project/kept/artifacts").is_dir()
            && !shop.path("project/deep/.forebay").exists()
    );
    let usage = |folder| call(&shop, folder, &["cache", "ls"], &[]).expect(0).stdout;
    assert_ne!(usage("project/deep"), usage(""));
    // Settings count as flags do: too little memory, and workers that are not there.
    call(&shop, "project/deep", &fit, &[("FOREBAY_MEMORY", "1MiB")]).expect(78);
    let elsewhere = [
        ("FOREBAY_WORKERS", "127.0.0.1:1"),
        ("FOREBAY_STATE", "elsewhere"),
    ];
    let lonely = call(
        &shop,
        "project/deep",
        &[&fit[..], &["--grace-seconds=0.1"]].concat(),
        &elsewhere,
    )
    .expect(75);
    assert_eq!(
        lonely.summary()["fault"]["code"],
        "FB0501",
        "{}",
        lonely.stdout
    );
}

#[test]
fn wrong_settings_are_faults_with_file_and_line() {
    let cases: &[(&str, &[&str])] = &[
        (
            "memory = 4",
            &[
                "`memory` is a whole number, not a string",
                "forebay.toml:1:10",
                "write \"4GiB\"",
            ],
        ),
        (
            "\nmemory = \"4 apples\"",
            &[
                "`memory` is `4 apples`, not a size",
                "forebay.toml:2:10",
                "write 512MiB or 4GiB",
            ],
        ),
        ("memory = \"4\"", &["`memory` is 4 bytes", "write 4GiB"]),
        (
            "threads = \"4\"",
            &[
                "`threads` is a string, not a whole number",
                "forebay.toml:1:11",
                "write 4",
            ],
        ),
        (
            "threads = 0",
            &["`threads` must be between 1 and 1024", "forebay.toml:1:11"],
        ),
        (
            "threads = -1",
            &["`threads` is -1, not a number of this size"],
        ),
        ("state = true", &["`state` is true or false, not a string"]),
        (
            "workers = \"a:1\"",
            &["`workers` is a string, not a list", "write [\"host:7400\"]"],
        ),
        (
            "workers = [1]",
            &["`workers` is a whole number, not a string"],
        ),
        (
            "workers = []\nlocal_workers = 2",
            &[
                "`local_workers` and `workers` exclude each other",
                "forebay.toml:2:17",
            ],
        ),
        (
            "memroy = \"4GiB\"",
            &[
                "there is no setting `memroy`",
                "forebay.toml:1:1",
                "did you mean `memory`?",
            ],
        ),
        (
            "threads = 0\nmemory = 1",
            &["`threads` must", "`memory` is", "2 problems were found"],
        ),
        (
            "memory =",
            &["FB0101", "the settings are not TOML", "forebay.toml:1:"],
        ),
    ];
    let shop = TestDirectory::new();
    for (text, parts) in cases {
        shop.write("forebay.toml", text);
        let answer = shop.forebay(&["doctor"]).expect(78);
        for part in *parts {
            assert!(
                answer.stderr.contains(part),
                "`{part}` is missing for `{text}` in\n{}",
                answer.stderr
            );
        }
    }
    std::fs::remove_file(shop.path("forebay.toml")).unwrap();
    let variables: &[(&str, &str, &str)] = &[
        (
            "FOREBAY_MEMORY",
            "lots",
            "`FOREBAY_MEMORY` is `lots`, not a size",
        ),
        (
            "FOREBAY_THREADS",
            "many",
            "`FOREBAY_THREADS` is `many`, not a whole number",
        ),
        (
            "FOREBAY_LOCAL_WORKERS",
            "-1",
            "`FOREBAY_LOCAL_WORKERS` is `-1`, not a whole number",
        ),
    ];
    for (name, value, part) in variables {
        let answer = call(&shop, "", &["doctor"], &[(name, value)]).expect(78);
        assert!(answer.stderr.contains(part), "{}", answer.stderr);
        // A variable that is empty says nothing.
        call(&shop, "", &["doctor"], &[(name, "")]).expect(0);
    }
    // A file of the user counts everywhere: a path in it must be the same everywhere.
    std::fs::create_dir_all(shop.path(".config/forebay")).unwrap();
    shop.write(".config/forebay/config.toml", "state = \"kept\"");
    let answer = shop.forebay(&["doctor"]).expect(78);
    assert!(
        answer
            .stderr
            .contains("`state` names `kept`, a relative path"),
        "{}",
        answer.stderr
    );
}
