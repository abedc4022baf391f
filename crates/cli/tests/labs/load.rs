//! `testudo load`, and the unit that uses it, with a swanctl that only says how it was called.

use crate::support::{answered, install};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use testudo_vici::cluster::ClusterReport;
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;

const UNIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/testudod.service"));
const GW: &str = "connections {\ngw {\nlocal {\nauth = psk\n}\nremote {\nauth = psk\n}\n}\n}\n";

/// A directory with files and with a swanctl that ends with code 22.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.program("swanctl", "echo swanctl \"$@\"; exit 22");
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn program(&self, name: &str, script: &str) {
        install(format!("#!/bin/sh\n{script}\n").as_bytes(), &self.path().join(name));
    }

    /// Runs a program where that swanctl is the first one in PATH.
    fn command(&self, program: &str) -> Command {
        let path = format!("{}:{}", self.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(program);
        command.current_dir(self.path()).env("PATH", path);
        command
    }

    fn testudo(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_testudo"));
        command.arg("load").args(args);
        command
    }

    /// Runs `testudo load` against a daemon that has these connections loaded.
    fn load(&self, args: &[&str], loaded: &'static [&str]) -> Said {
        said(&answered(&mut self.testudo(args), move |packet| vec![answer(&packet, loaded)]))
    }
}

fn answer(packet: &Packet, loaded: &[&str]) -> Packet {
    let Packet::CmdRequest(name, _) = packet else { panic!("{packet:?}") };
    Packet::CmdResponse(match name.as_str() {
        "get-conns" => Message::new().with_list("conns", loaded.iter().copied()),
        "testudo-cluster" => ClusterReport::answer(None),
        name => panic!("{name}"),
    })
}

type Said = (Option<i32>, String, String);

fn said(output: &Output) -> Said {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_was_checked_is_what_swanctl_loads() {
    let place = Place::new();
    place.write("gw.conf", GW);
    let (code, out, err) = place.load(&["gw.conf"], &["gw", "other"]);
    let begin = format!("swanctl --load-all --file {}/gw.conf --uri unix:///", place.path().display());
    assert!(out.starts_with(&begin) && out.ends_with("/vici.sock --noprompt\n"), "{out}");
    assert_eq!((code, err.as_str()), (Some(22), ""), "the code is that of swanctl");
}

#[test]
fn nothing_is_loaded_after_a_fault() {
    let place = Place::new();
    place.write("cut.conf", GW.strip_suffix("}\n").unwrap());
    place.write("faulty.conf", &GW.replace("gw {", "gw {\nmobike = yes"));
    // The daemon is not asked: there is none.
    let alone = |args: &[&str]| said(&place.testudo(args).args(["--socket", "/nowhere"]).output().unwrap());
    for args in [&["cut.conf"][..], &["--yes", "--partial", "cut.conf"]] {
        let (code, out, err) = alone(args);
        assert!(code == Some(2) && out.is_empty() && err.contains("cannot be read to its end"), "{err}");
    }
    let (code, out, err) = alone(&["faulty.conf"]);
    assert!(code == Some(1) && out.is_empty(), "{err}");
    assert!(err.starts_with("faulty.conf:3: connections.gw.mobike: found \"yes\""), "{err}");
    assert!(err.ends_with("testudo load: nothing was loaded; --partial loads what would not be refused\n"));
    let (code, out, err) = place.load(&["--partial", "faulty.conf"], &["gw"]);
    assert!(code == Some(22) && out.starts_with("swanctl --load-all"), "{err}");
    assert!(err.starts_with("faulty.conf:3: "), "{err}");
    place.write("gw.conf", GW);
    let (code, out, err) = alone(&["gw.conf"]);
    assert!(code == Some(1) && out.is_empty() && err.contains("cannot connect to testudod"), "{err}");
}

#[test]
fn unloading_every_connection_needs_a_yes() {
    let place = Place::new();
    place.write("none.conf", "include conf.d/*.conf\n");
    let (code, out, err) = place.load(&["none.conf"], &["a", "b"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let why = "testudo load: loading none.conf would unload every connection (a, b); standard input is no terminal, so \
               it cannot be confirmed: use --yes\n";
    assert_eq!(err, why);
    assert_eq!(place.load(&["--yes", "none.conf"], &["a", "b"]).0, Some(22));
    assert_eq!(place.load(&["none.conf"], &[]).0, Some(22), "nothing is there to go");
}

/// util-linux's script gives a terminal, and passes on what it is told and the exit code.
#[test]
fn a_terminal_is_asked_and_silence_means_no() {
    let place = Place::new();
    place.write("none.conf", "\n");
    let answering = |said_there: &str| {
        // `answered` adds `--socket PATH`.
        let load = format!("{} load none.conf --socket $2", env!("CARGO_BIN_EXE_testudo"));
        let script = format!("echo {said_there} | script --quiet --return --command \"{load}\" /dev/null");
        let mut command = place.command("sh");
        command.args(["-c", &script, "sh"]);
        said(&answered(&mut command, |packet| vec![answer(&packet, &["a", "b"])]))
    };
    let (code, shown, _) = answering("");
    assert!(
        shown.contains("loading none.conf would unload every connection (a, b); go on? [y/N]"),
        "{shown}"
    );
    assert!(
        code == Some(2) && shown.contains("nothing was loaded") && !shown.contains("--load-all"),
        "{shown}"
    );
    let (code, shown, _) = answering("y");
    assert!(code == Some(22) && shown.contains("swanctl --load-all"), "{shown}");
    assert!(!shown.contains("--noprompt"), "swanctl may ask for a passphrase: {shown}");
}

/// The command of a line of the unit, with its files in a directory.
fn command_of(key: &str, directory: &Path) -> String {
    let begin = format!("\n{key}=");
    let (_, rest) = UNIT.split_once(&begin).unwrap_or_else(|| panic!("no {key}"));
    let unit = rest.replace("\\\n", "");
    let line = unit.lines().next().unwrap().trim_start_matches('-').replace("$$", "$");
    let directory = format!("{}/", directory.display());
    line.replace("/usr/local/sbin/", &directory).replace("/run/testudo/", &directory)
}

/// Runs a line of the unit with a testudo that ends with these codes. Returns the code of the line
/// and the commands of testudo.
fn run_line(key: &str, configured: u8, load: u8) -> (Option<i32>, String) {
    let place = Place::new();
    let _socket = UnixListener::bind(place.path().join("vici.sock")).unwrap();
    let script = format!("echo \"$@\"; case $1 in configured) exit {configured};; esac; exit {load}");
    place.program("testudo", &script);
    let output = place.command("sh").args(["-c", &command_of(key, place.path())]).output().unwrap();
    let (code, out, err) = said(&output);
    assert_eq!(err, "");
    (code, out)
}

#[test]
fn the_unit_loads_by_testudo_load_alone() {
    for code in [0, 1, 2, 127] {
        let loaded = (Some(i32::from(code)), "load --partial\n".to_owned());
        assert_eq!(run_line("ExecReload", 1, code), loaded);
        for not_configured in [1, 2, 127] {
            let expected =
                (Some(i32::from(code)), "configured --wait 10\nload --partial --wait 60\n".to_owned());
            assert_eq!(run_line("ExecStartPost", not_configured, code), expected);
        }
        let configured = (Some(0), "configured --wait 10\n".to_owned());
        assert_eq!(run_line("ExecStartPost", 0, code), configured, "the cluster's configuration stays");
    }
    assert!(!UNIT.contains("swanctl --load"), "not without a check");
}

/// The daemon stays up: systemd ignores the code of a line that begins with `-`.
#[test]
fn a_host_without_testudo_or_swanctl_starts() {
    assert!(UNIT.contains("\nExecStartPost=-"));
    let place = Place::new();
    let _socket = UnixListener::bind(place.path().join("vici.sock")).unwrap();
    let output =
        place.command("sh").args(["-c", &command_of("ExecStartPost", place.path())]).output().unwrap();
    assert_eq!(said(&output).0, Some(127), "no testudo");
}
