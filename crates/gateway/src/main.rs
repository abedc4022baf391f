//! testudod: the gateway daemon.
//!
//! Reads `testudo.toml`, checks its rights, and hands over to [`event_loop`]. All protocol work is
//! done in the crates below; this one owns the sockets, the threads and the order of things.
#![forbid(unsafe_code)]
// The wire and operators reach most of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod alarms;
mod backoff;
mod check;
mod children;
mod clock;
mod cluster;
mod config;
mod crypto;
mod datapath;
mod entropy;
mod error;
mod event_loop;
mod gateway;
mod icmp_sockets;
mod ike;
mod ike_sockets;
mod jobs;
mod log;
mod policies;
mod pool;
mod prefix;
mod prefix_map;
mod privileges;
mod processors;
mod program;
mod queue_assignment;
mod reader;
mod remote_sas;
mod reserved;
mod resolver;
mod updown;
mod vici_control;
mod vici_notes;
mod vici_socket;
mod virtual_ips;

use clap::Parser;
use config::Config;
use error::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A gateway that is built for use must not contain the bugs that the simulator plants.
const _: () =
    assert!(cfg!(debug_assertions) || !testudo_planted::COMPILED, "bugs of the simulator are compiled in");

const SIGNALS: &str = "Signals: SIGTERM and SIGINT delete all SAs at the peers and end; a node of a cluster leaves them to \
                       the others. SIGHUP changes nothing: connections and secrets are loaded by swanctl --load-all.";

/// How long the end waits for the reader of the log.
const END_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a panic waits for that reader: workers go on meanwhile.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// The Testudo IPsec gateway.
#[derive(Parser)]
#[command(name = "testudod", version, about = "The Testudo IPsec gateway", after_help = SIGNALS)]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/testudo/testudo.toml")]
    config: PathBuf,
    /// Check testudo.toml and this host, say what the gateway would do, and leave. Changes
    /// nothing. Exit code 1: testudod would not start.
    #[arg(long, conflicts_with = "cleanup")]
    check: bool,
    /// With --check: what swanctl is to load.
    #[arg(long, value_name = "FILE", default_value = "/etc/swanctl/swanctl.conf", requires = "check")]
    swanctl: PathBuf,
    /// Take away the XDP filter, its maps, the TUN and the routes that a gateway left behind, and
    /// leave. Protected traffic is no longer held back after this.
    #[arg(long)]
    cleanup: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string()),
    };
    if arguments.check {
        return check::run(&config, &arguments.swanctl);
    }
    if let Err(error) = log::start(config.log) {
        return fail(&format!("cannot start the log: {error}"));
    }
    end_on_panic();
    let result = check_rights().and_then(|()| {
        if arguments.cleanup { datapath::DataPath::cleanup(&config) } else { event_loop::run(config) }
    });
    let code = result.map_or_else(|error| fail(&error.to_string()), |()| ExitCode::SUCCESS);
    log::finish(END_FLUSH_TIMEOUT);
    code
}

/// A panic is a bug. In a crypto thread only its handshake suffers; elsewhere the state may be half
/// changed, so the process ends at once and fails closed.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        log::panicked(panic);
        if !std::thread::current().name().is_some_and(|name| name.starts_with(crypto::THREAD_NAME_PREFIX)) {
            log::finish(PANIC_FLUSH_TIMEOUT);
            std::process::abort();
        }
    }));
}

fn check_rights() -> Result<()> {
    let missing = privileges::missing()?;
    if !missing.is_empty() {
        return Err(Error::Rights(missing));
    }
    privileges::raise_memlock();
    privileges::protect_secrets()
}

/// Before there is a log, or where the operator sits at the terminal, errors go to stderr as they
/// are.
fn fail(error: &str) -> ExitCode {
    error.lines().for_each(|line| log::say(&format!("testudod: {line}\n")));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_option_is_documented() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md"));
        let missing = testudo_manual::missing(&Arguments::command(), "testudod", page);
        assert_eq!(missing, Vec::<String>::new());
    }
}
