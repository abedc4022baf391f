//! `updown` and `hostaccess`: a program and its arguments. strongSwan passes the line to a shell;
//! this gateway runs the program itself, so that no word is interpreted by a shell.
//!
//! A line that cannot be run does not cause its connection to be refused: without its policies the
//! protected traffic would pass in clear.

use super::fields::Fields;
use super::refusal::{Refusal, Why, expected, quote};
use super::value;
use crate::message::Message;
use testudo_ike::config::UpdownScript;

/// Characters that a shell would interpret.
const SHELL_CHARS: &str = "|&;<>()$`\\\"'*?[]{}~#!";

/// Decodes both keys; `hostaccess` concerns the script only. A script that [`not_run`] reports is
/// left out.
pub(super) fn script(section: &mut Fields<'_>) -> Result<Option<UpdownScript>, Refusal> {
    let host_access = section.parsed("hostaccess", value::boolean)?.unwrap_or(false);
    let words = section.text("updown")?.and_then(|text| words(text).ok()).unwrap_or_default();
    let mut words = words.into_iter();
    Ok(words.next().map(|program| UpdownScript { program, arguments: words.collect(), host_access }))
}

/// Why the script of a child is never run, for the log; `None` if it can be.
pub(super) fn not_run(path: &str, child: &Message) -> Option<String> {
    let text = child.text("updown")?;
    let Why(why) = words(text).err()?;
    Some(warning(path, &format!("found {}, {why}", quote(text.as_bytes()))))
}

/// The warning for the child at that path.
pub(super) fn warning(path: &str, why: &str) -> String {
    format!("{path}.updown: {why}; the script is not run, and the tunnel comes up without it")
}

fn words(text: &str) -> Result<Vec<String>, Why> {
    if text.chars().any(|c| c.is_control() || SHELL_CHARS.contains(c)) {
        return Err(expected(
            "a program and its arguments, without quotes or other shell syntax: no shell runs it",
        ));
    }
    let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    match words.first() {
        Some(program) if !program.starts_with('/') => Err(expected("an absolute path to a program")),
        _ => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_arguments() {
        assert_eq!(
            words("/usr/lib/ipsec/_updown iptables"),
            Ok(vec!["/usr/lib/ipsec/_updown".into(), "iptables".into()])
        );
        assert_eq!(words(" "), Ok(vec![]));
    }

    #[test]
    fn scripts_that_are_not_run_are_reported() {
        let child = |text: &str| Message::new().with("updown", text);
        let path = "connections.gw.children.net";
        assert_eq!(not_run(path, &child("/usr/lib/ipsec/_updown iptables")), None);
        assert_eq!(not_run(path, &child("")), None);
        let said = not_run(path, &child("ipsec _updown")).unwrap();
        let why = "found \"ipsec _updown\", expected an absolute path to a program";
        assert!(said.starts_with(&format!("{path}.updown: {why}; the script is not run")), "{said}");
    }

    #[test]
    fn nothing_is_left_to_a_shell() {
        for text in
            ["_updown", "./updown", "/etc/up; reboot", "/etc/up $HOME", "/etc/up 'a b'", "A=1 /etc/up"]
        {
            assert!(words(text).is_err(), "{text}");
        }
    }
}
