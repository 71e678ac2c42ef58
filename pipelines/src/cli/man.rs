//! `forebay man`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Arg, Args, Command};
use forebay_model::Result;

use super::groups::{self, DOCUMENTS};

/// Print the manual page. `forebay man | man -l -` shows it; packages write it to `man1/forebay.1`.
#[derive(Debug, Args)]
pub(crate) struct ManCommand {}

impl ManCommand {
    pub fn run(self, program: &Command) -> Result<ExitCode> {
        super::write_stdout(&manual(program))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The exit codes, as in the guide.
const EXIT_CODES: [(&str, &str); 8] = [
    ("0", "done"),
    ("64", "the command line is wrong"),
    ("65", "the data are wrong, or a rule does not hold"),
    ("70", "a bug"),
    (
        "75",
        "try again: interrupted, late, or another attempt is at work",
    ),
    ("78", "the spec or a setting is wrong"),
    ("98", "degraded to be on time, with --signal-ladder"),
    ("99", "nothing new, with --signal-nothing-new"),
];

/// The manual page in the macros of man(7).
fn manual(program: &Command) -> String {
    let version = program.get_version().unwrap_or_default();
    let mut page = format!(".TH FOREBAY 1 \"\" \"forebay {version}\" \"User Commands\"\n");
    page += ".SH NAME\n";
    let about = program.get_about().map(ToString::to_string);
    let _ = writeln!(page, "forebay \\- {}", escaped(&about.unwrap_or_default()));
    page += ".SH SYNOPSIS\n.B forebay\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
    let groups = groups::groups(program);
    for group in &groups {
        let _ = writeln!(page, ".SS {}", escaped(group.title));
        for command in &group.commands {
            let name = escaped(command.get_name());
            let about = escaped(&groups::short_about(command));
            let _ = writeln!(page, ".TP\n.B {name}\n{about}.");
        }
    }
    for command in groups.iter().flat_map(|group| &group.commands) {
        add_command(&mut page, "forebay", command);
    }
    page += ".SH EXIT STATUS\n";
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(page, ".TP\n.B {code}\n{}", escaped(meaning));
    }
    let _ = writeln!(page, ".SH SEE ALSO\n{}", escaped(DOCUMENTS));
    page
}

/// A section about a command, and those of its own commands.
fn add_command(page: &mut String, parent: &str, command: &Command) {
    let name = format!("{parent} {}", command.get_name());
    let _ = writeln!(page, ".SH {}", escaped(&name.to_uppercase()));
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        add_text(page, &about.to_string());
    }
    for argument in command.get_arguments() {
        if !argument.is_hide_set() {
            add_argument(page, argument);
        }
    }
    for inner in command.get_subcommands() {
        add_command(page, &name, inner);
    }
}

fn add_argument(page: &mut String, argument: &Arg) {
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("\\fB\\-{short}\\fR"));
    }
    if let Some(long) = argument.get_long() {
        names.push(format!("\\fB\\-\\-{}\\fR", escaped(long)));
    }
    let mut head = names.join(", ");
    if argument.get_action().takes_values() {
        for value in argument.get_value_names().unwrap_or_default() {
            let _ = write!(head, " \\fI{}\\fR", escaped(value));
        }
    }
    let _ = writeln!(page, ".TP\n{}", head.trim_start());
    let help = argument.get_long_help().or_else(|| argument.get_help());
    if let Some(help) = help {
        add_text(page, &help.to_string());
    }
}

/// Adds paragraphs. A line that begins with a dot would be a macro.
fn add_text(page: &mut String, text: &str) {
    for line in text.lines() {
        if line.trim().is_empty() {
            page.push_str(".sp\n");
        } else {
            page.push_str(&escaped(line.trim()));
            page.push('\n');
        }
    }
}

/// A line of text in the language of man pages.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        return format!("\\&{text}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_lists_commands_and_options() {
        let page = manual(&crate::cli::command());
        for part in [
            ".TH FOREBAY 1 \"\" \"forebay ",
            "\n.SS Begin and check\n.TP\n.B init\nMake a small project.\n",
            "\n.SH FOREBAY PREVIEW\n",
            "\\fB\\-\\-sample\\-rows\\fR \\fIN\\fR\n",
            "\n.SH FOREBAY CACHE GC\n",
            "\n.TP\n.B 75\ntry again",
        ] {
            assert!(page.contains(part), "no `{part}` in\n{page}");
        }
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn text_is_no_macro() {
        assert_eq!(escaped(".forebay"), "\\&.forebay");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
    }
}
