//! The record of each decision: standard error, and the system's log.

use super::policy::Request;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const LOG: &str = "/dev/log";
/// Facility authpriv (RFC 5424 §6.2.1 has it as 10), times 8.
const AUTHPRIV: u8 = 10 << 3;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// Records who may do what or may not, and why.
pub(super) fn record(request: Request<'_>, allowed: bool, why: &str) {
    let line = line(request, allowed, why);
    // Neither a full disk nor a closed pipe may keep a decision from being carried out.
    let _ = writeln!(std::io::stderr(), "testudo migrate: {line}");
    // A system without a log has no record but standard error.
    let _ = send(Path::new(LOG), &message(allowed, &line));
}

fn send(log: &Path, message: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A log that is stuck must not keep a migration from being refused.
    socket.set_nonblocking(true)?;
    socket.send_to(message.as_bytes(), log).map(drop)
}

/// As syslog(3) sends it; the log adds the time.
fn message(allowed: bool, line: &str) -> String {
    let priority = AUTHPRIV + if allowed { NOTICE } else { WARNING };
    format!("<{priority}>testudo[{}]: {line}", std::process::id())
}

/// One line whatever the name of the virtual machine contains.
fn line(request: Request<'_>, allowed: bool, why: &str) -> String {
    let Request { caller, vm, action, to } = request;
    let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
    let decision = if allowed { "allowed" } else { "refused" };
    format!(
        "{decision} {} of \"{}\"{to} by {caller}: {}",
        action.name(),
        vm.escape_debug(),
        why.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use super::super::caller::Caller;
    use super::super::policy::Action;
    use super::*;

    #[test]
    fn a_record_is_one_line_with_who_what_where_and_why() {
        let caller = Caller { uid: 1000, name: Some("alice".to_owned()) };
        let to = Some("192.0.2.2".parse().unwrap());
        let request = Request { caller: &caller, vm: "web1", action: Action::Migrate, to };
        let allowed = line(request, true, "m.toml:2");
        assert_eq!(allowed, "allowed migrate of \"web1\" to 192.0.2.2 by alice (uid 1000): m.toml:2");
        let forged = Request { vm: "web1\n<80>sshd: all is well", ..request };
        let refused = line(forged, false, "no rule");
        assert!(!refused.contains('\n') && refused.starts_with("refused migrate"), "{refused}");
        assert!(message(true, &allowed).starts_with("<85>testudo["));
        assert!(message(false, &refused).starts_with("<84>testudo["));
    }

    #[test]
    fn the_system_log_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(send(&path, "lost").is_err());
        let log = UnixDatagram::bind(&path).unwrap();
        send(&path, "<85>testudo[1]: kept").unwrap();
        let mut got = [0; 64];
        let len = log.recv(&mut got).unwrap();
        assert_eq!(&got[..len], b"<85>testudo[1]: kept");
    }
}
