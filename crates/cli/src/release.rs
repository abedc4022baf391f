//! `testudo release`: lets the clear traffic of a shut prefix pass.

use crate::confirm;
use crate::daemon::{self, DaemonArgs};
use serde::Serialize;
use std::net::IpAddr;
use std::process::ExitCode;
use testudo_base::prefix::{Prefix, PrefixError};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;
use testudo_vici::shut::Released;

/// The prefix to release.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The prefix, as `testudo shut` lists it.
    #[arg(value_parser = prefix)]
    prefix: Prefix,
    /// Does it without a confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The daemon's answer.
#[derive(Debug, Serialize)]
struct Opened {
    prefix: String,
    #[serde(flatten)]
    released: Released,
}

/// Why an argument is not the prefix to release.
#[derive(Debug, thiserror::Error)]
enum PrefixArgError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error("{text} has bits behind its length, expected {prefix}")]
    HostBits { text: String, prefix: Prefix },
}

/// Refuses bits behind the length: the operator may mean another prefix.
fn prefix(text: &str) -> Result<Prefix, PrefixArgError> {
    let prefix: Prefix = text.parse()?;
    let address = text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    if address != Some(prefix.addr()) {
        return Err(PrefixArgError::HostBits { text: text.to_owned(), prefix });
    }
    Ok(prefix)
}

/// Asks the operator for confirmation, then the daemon; failures go to standard error.
pub(crate) fn run(args: &ReleaseArgs) -> ExitCode {
    let goes_on = if args.yes { Ok(true) } else { confirmed(args) };
    match goes_on {
        Ok(true) => daemon::show("release", &args.daemon, |client, _| release(client, args), format),
        Ok(false) => refused(&format!("{} stays shut", args.prefix)),
        Err(failed) => failed,
    }
}

fn refused(why: &str) -> ExitCode {
    eprintln!("testudo release: {why}");
    ExitCode::FAILURE
}

/// A refusal of the daemon comes before the confirmation.
fn confirmed(args: &ReleaseArgs) -> Result<bool, ExitCode> {
    if !confirm::is_possible() {
        return Err(refused(confirm::IMPOSSIBLE));
    }
    let check = |client: &mut Client| request(client, args, |message| message.add("check", "yes"));
    let released = daemon::ask("release", &args.daemon, |client, _| check(client))?;
    let question = question(args.prefix, released);
    confirm::ask(&question).map_err(|error| refused(&error.to_string()))
}

fn question(prefix: Prefix, Released { clustered, inside }: Released) -> String {
    let except = match inside {
        0 => String::new(),
        inside => format!(", but for {}", stay_shut(inside)),
    };
    let node = if clustered { " on this node" } else { "" };
    format!("clear traffic of {prefix} will pass{node}{except}; go on? [y/N] ")
}

fn stay_shut(inside: u64) -> String {
    match inside {
        1 => "a prefix inside it that stays shut".to_owned(),
        inside => format!("{inside} prefixes inside it that stay shut"),
    }
}

fn release(client: &mut Client, args: &ReleaseArgs) -> Result<Opened, Error> {
    let released = request(client, args, |message| {
        if let Some(user) = daemon::user() {
            message.add("by", user);
        }
    })?;
    Ok(Opened { prefix: args.prefix.to_string(), released })
}

fn request(
    client: &mut Client,
    args: &ReleaseArgs,
    more: impl FnOnce(&mut Message),
) -> Result<Released, Error> {
    let mut message = Message::new().with("prefix", args.prefix.to_string());
    more(&mut message);
    Released::from_message(&client.command("testudo-release", message)?)
}

fn format(opened: &Opened) -> String {
    let Opened { prefix, released: Released { clustered, inside } } = opened;
    let mut out = match inside {
        0 => format!("Clear traffic of {prefix} passes.\n"),
        inside => format!("Clear traffic of {prefix} passes, but for {}.\n", stay_shut(*inside)),
    };
    if *clustered {
        out.push_str("On this node alone: `testudo shut` at the others tells where it is shut too.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_meant_as_it_is_written() {
        assert_eq!(prefix("10.2.0.0/16").unwrap().to_string(), "10.2.0.0/16");
        assert_eq!(prefix("fd00::1").unwrap().to_string(), "fd00::1/128");
        assert_eq!(
            prefix("10.2.0.1/16").unwrap_err().to_string(),
            "10.2.0.1/16 has bits behind its length, expected 10.2.0.0/16"
        );
        assert_eq!(
            prefix("2001:db8::1/32").unwrap_err().to_string(),
            "2001:db8::1/32 has bits behind its length, expected 2001:db8::/32"
        );
        assert_eq!(prefix("0.0.0.0/0").unwrap().to_string(), "0.0.0.0/0");
        assert_eq!(prefix("::/0").unwrap().to_string(), "::/0");
        for text in ["", "/", "10.2/16", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8/8", "x/8"] {
            let why = prefix(text).unwrap_err().to_string();
            assert!(why.contains("expected ADDRESS/LENGTH"), "{why}");
        }
    }

    #[test]
    fn the_question_tells_what_passes_and_what_does_not() {
        let site = prefix("10.2.0.0/16").unwrap();
        let ask = |clustered, inside| question(site, Released { clustered, inside });
        assert_eq!(ask(false, 0), "clear traffic of 10.2.0.0/16 will pass; go on? [y/N] ");
        assert_eq!(
            ask(true, 2),
            "clear traffic of 10.2.0.0/16 will pass on this node, but for 2 prefixes inside it that stay shut; go on? [y/N] "
        );
    }
}
