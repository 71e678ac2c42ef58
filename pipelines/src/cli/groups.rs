//! Commands by what people do with them: in the help of the program and in its manual page.

use anstyle::Style;
use clap::Command;

/// Page of the documents.
pub(super) const DOCUMENTS: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/pipelines/docs");

/// Commands for one purpose.
pub(super) struct CommandGroup<'a> {
    pub title: &'static str,
    pub commands: Vec<&'a Command>,
}

/// Titles of the groups, and the names of their commands in the order of their use.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Begin and check",
        &[
            "init", "new", "generate", "check", "fmt", "test", "preview", "profile", "explain",
        ],
    ),
    ("Run", &["run", "backfill", "fit", "apply", "feed"]),
    ("Forecast", &["backtest", "predict", "score"]),
    (
        "Look at results",
        &["ui", "report", "show", "diff", "drift", "top"],
    ),
    ("Serve and hand over", &["serve", "export"]),
    (
        "Machines",
        &[
            "worker",
            "certificates",
            "cache",
            "doctor",
            "schema",
            "completions",
            "man",
        ],
    ),
];

/// Title of the commands that are in no other group.
const OTHERS: &str = "Others";

/// The commands that people see, by group.
pub(super) fn groups(program: &Command) -> Vec<CommandGroup<'_>> {
    let mut groups = Vec::new();
    let mut ungrouped: Vec<&Command> = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .collect();
    for (title, names) in GROUPS {
        let commands = names
            .iter()
            .filter_map(|name| program.find_subcommand(name))
            .collect();
        groups.push(CommandGroup { title, commands });
        ungrouped.retain(|command| !names.contains(&command.get_name()));
    }
    if !ungrouped.is_empty() {
        groups.push(CommandGroup {
            title: OTHERS,
            commands: ungrouped,
        });
    }
    groups
}

/// Template of the program's help, with the commands by group.
pub(super) fn help_template(program: &Command) -> String {
    let heading = Style::new().bold().underline();
    let name = Style::new().bold();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for group in groups(program) {
        text += &format!("\n{heading}{}:{heading:#}\n", group.title);
        for command in group.commands {
            // Styles have no width of their own: the name is padded before.
            let padded = format!("{:12}", command.get_name());
            let about = short_about(command);
            text += &format!("  {name}{padded}{name:#}  {about}\n");
        }
    }
    text += &format!("\n{heading}Options:{heading:#}\n{{options}}\n\n");
    text += "`forebay COMMAND --help` lists the options of a command. First steps:\n  \
             forebay init shop && cd shop && ./test\n\n";
    text + &format!("Documents: {DOCUMENTS}\n")
}

/// The first clause of what a command does.
pub(super) fn short_about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let end = about.find([',', ':', ';', '.']).unwrap_or(about.len());
    about[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::CommandLine;

    #[test]
    fn each_command_is_in_one_group_and_fits_80_columns() {
        let program = CommandLine::command();
        let mut names = Vec::new();
        for group in groups(&program) {
            assert_ne!(group.title, OTHERS, "list the new command in GROUPS");
            for command in group.commands {
                let about = short_about(command);
                assert!(about.len() > 8 && about.len() <= 64, "{about}");
                names.push(command.get_name().to_owned());
            }
        }
        let listed = GROUPS.iter().flat_map(|(_, names)| names.iter());
        assert_eq!(names.len(), listed.count(), "a listed command is none");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn help_has_groups_and_the_documents() {
        let program = CommandLine::command();
        let template = help_template(&program);
        let help = program.help_template(template).render_help().to_string();
        for part in [
            "Usage: forebay <COMMAND>",
            "Begin and check:\n  init          Make a small project\n",
            "Forecast:\n  backtest      Test forecasts on the past\n",
            "Options:\n  -h, --help",
            DOCUMENTS,
        ] {
            assert!(help.contains(part), "no `{part}` in\n{help}");
        }
    }
}
