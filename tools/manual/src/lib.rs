//! Whether a page of docs/reference has every command, option and argument that clap knows. For the
//! tests of the programs.
#![forbid(unsafe_code)]

use clap::{Arg, Command};

/// What the page lacks of `command`, which people call `name`, and of its subcommands. Each has a
/// chapter `## NAME`, with options as `` `--long ``... and arguments as `` `NAME` ``. A command
/// that has nothing but subcommands needs none.
pub fn missing(command: &Command, name: &str, page: &str) -> Vec<String> {
    let mut missing = match chapter(page, name) {
        None if command.has_subcommands() && command.get_arguments().next().is_none() => Vec::new(),
        None => vec![name.to_owned()],
        Some(chapter) => {
            let arguments = command.get_arguments().filter(|argument| !stands_in(chapter, argument));
            arguments.map(|argument| format!("{name} {}", argument.get_id())).collect()
        }
    };
    for subcommand in command.get_subcommands() {
        let name = format!("{name} {}", subcommand.get_name());
        missing.extend(self::missing(subcommand, &name, page));
    }
    missing
}

/// What follows the heading of a command, up to the next.
fn chapter<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n## {name}\n"))?;
    rest.split("\n## ").next()
}

fn stands_in(chapter: &str, argument: &Arg) -> bool {
    let shown = match argument.get_long() {
        Some("help" | "version") => return true,
        Some(long) => format!("`--{long}"),
        None => {
            let named = argument.get_value_names().and_then(|names| names.first());
            format!("`{}`", named.map_or(argument.get_id().as_str(), |name| name.as_str()))
        }
    };
    let whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
    let short = argument.get_short().is_none_or(|short| chapter.contains(&format!("`-{short}`")));
    short && chapter.split(shown.as_str()).skip(1).any(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_lacks_something_is_found_out() {
        let sub = Command::new("sub").arg(Arg::new("file")).arg(Arg::new("wait").long("wait").short('w'));
        let command = Command::new("main").subcommand(sub.arg(Arg::new("node").value_name("NODE")));
        let of = |page: &str| missing(&command, "main", page);
        assert_eq!(of("\n## main\n"), ["main sub"]);
        assert_eq!(of("\n## main sub\n`--waiting` `NODE`\n## x\n`FILE`"), ["main sub file", "main sub wait"]);
        assert_eq!(of("\n## main sub\n`--wait S`, `-w` `NODE` `file`"), Vec::<String>::new());
    }

    #[test]
    fn options_of_the_program_itself_need_a_chapter() {
        let command = Command::new("main").arg(Arg::new("config").long("config"));
        let of = |page: &str| missing(&command, "main", page);
        assert_eq!(of("\n## another\n`--config`"), ["main"]);
        assert_eq!(of("\n## main\n`--configured`"), ["main config"]);
        assert_eq!(of("\n## main\n`--config FILE`"), Vec::<String>::new());
    }
}
