//! `updown` scripts: the same script on both sides, and what each is told.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, OUTER, Side};
use testudo_lab::wait_until;

/// One run: its variables by name.
type Run = BTreeMap<String, String>;

/// A script that writes down what it is told.
struct Script {
    program: PathBuf,
    notes: PathBuf,
}

impl Script {
    fn new(dir: &Path, side: Side) -> Self {
        let (program, notes) = (dir.join(format!("updown-{side:?}")), dir.join(format!("notes-{side:?}")));
        // The notes of a run appear at once.
        let body = format!(
            "#!/bin/sh\nenv | grep ^PLUTO_ >{0}.new\necho PLUTO_WORDS=$* >>{0}.new\necho PLUTO_KEPT=$(ls -l /proc/self/fd | grep -c 'socket\\|bpf\\|anon_inode\\|tun') >>{0}.new\necho >>{0}.new\ncat {0}.new >>{0}\necho ran $PLUTO_VERB\n",
            notes.display()
        );
        std::fs::write(&program, body).unwrap();
        set_mode(&program, 0o755);
        Self { program, notes }
    }

    fn runs(&self) -> Vec<Run> {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let variable = |line: &str| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        let run = |text: &str| text.lines().map(variable).collect();
        notes.split("\n\n").filter(|text| !text.is_empty()).map(run).collect()
    }

    fn verbs(&self) -> Vec<String> {
        self.runs().iter().map(|run| run["PLUTO_VERB"].clone()).collect()
    }

    fn await_verbs(&self, expected: &[&str]) {
        let said = || {
            let verbs = self.verbs();
            Ok(if verbs == expected { Ok(()) } else { Err(format!("{verbs:?}")) })
        };
        wait_until(&format!("runs for {expected:?}"), SOON, said).unwrap();
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

const UP: [&str; 2] = ["up-client", "up-client-v6"];

/// Differences of the two sides that do not matter: the names of interfaces, and numbers.
fn comparable(run: &Run) -> Run {
    let own = ["PLUTO_INTERFACE", "PLUTO_REQID", "PLUTO_UNIQUEID", "PLUTO_KEPT"];
    run.iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}

/// The same variables with the sides swapped.
fn swapped(run: &Run) -> Run {
    let swap = |name: &str| match name {
        "PLUTO_ME" => "PLUTO_PEER".to_owned(),
        "PLUTO_PEER" => "PLUTO_ME".to_owned(),
        name => match (name.strip_prefix("PLUTO_MY_"), name.strip_prefix("PLUTO_PEER_")) {
            (Some(rest), _) => format!("PLUTO_PEER_{rest}"),
            (_, Some(rest)) => format!("PLUTO_MY_{rest}"),
            _ => name.to_owned(),
        },
    };
    run.iter().map(|(name, value)| (swap(name), value.clone())).collect()
}

#[test]
fn a_script_is_told_what_strongswan_tells_it() {
    let dir = tempfile::tempdir().unwrap();
    let scripts = [Side::One, Side::Two].map(|side| Script::new(dir.path(), side));
    let [ours, theirs] = &scripts;
    let adjust = |side: Side, connection: &mut Connection| {
        let script = if side == Side::One { ours } else { theirs };
        connection.more_child =
            vec![format!("updown = {} iptables", script.program.display()), "hostaccess = yes".into()];
    };
    let mut pair = Scenario::new("updown", Kind::Strongswan).start_with(adjust);
    pair.up(Side::One);
    scripts.iter().for_each(|script| script.await_verbs(&UP));
    for (ours, theirs) in ours.runs().iter().zip(theirs.runs()) {
        assert_eq!(comparable(ours), swapped(&comparable(&theirs)));
        assert_eq!(ours["PLUTO_WORDS"], "iptables");
        assert_eq!(ours["PLUTO_KEPT"], "0", "no socket or map of the daemon is a script's");
        assert_eq!(ours["PLUTO_INTERFACE"], OUTER);
    }
    pair.await_log("updown: ran up-client-v6");
    // New keys are no news to a script, and the end of a child is.
    pair.swanctl(Side::One).run(["--rekey", "--child", "lab"]).unwrap();
    pair.await_log("in the place of {1}");
    pair.ping_from(Side::One, Family::V4, 56);
    pair.swanctl(Side::One).terminate("lab").unwrap();
    let all = [UP[0], UP[1], "down-client", "down-client-v6"];
    scripts.iter().for_each(|script| script.await_verbs(&all));
    let runs = ours.runs();
    let but_verb = |run: &Run| {
        run.iter().filter(|(n, _)| *n != "PLUTO_VERB").map(|(_, v)| v.clone()).collect::<Vec<_>>()
    };
    assert_eq!(but_verb(&runs[0]), but_verb(&runs[2]), "down is told what up was told");
}

#[test]
fn the_daemons_end_runs_scripts_down() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new(dir.path(), Side::One);
    let mut pair = Scenario::new("updownend", Kind::Testudo).start_with(|side, connection| {
        if side == Side::One {
            connection.more_child = vec![format!("updown = {}", script.program.display())];
        }
    });
    pair.up(Side::Two);
    script.await_verbs(&UP);
    pair.one.stop().unwrap();
    assert_eq!(script.verbs(), [UP[0], UP[1], "down-client", "down-client-v6"]);
}

/// A script that is not run keeps no connection out: its policies stand, and the tunnel comes up.
#[test]
fn a_script_that_others_can_change_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new(dir.path(), Side::One);
    set_mode(&script.program, 0o777);
    let mut pair = Scenario::new("updownno", Kind::Testudo).start_with(|side, connection| {
        if side == Side::One {
            connection.more_child = vec![format!("updown = {}", script.program.display())];
        }
    });
    let watch = Watch::start(&pair.t);
    let program = script.program.display();
    let why = format!("{program}: found mode 777, expected no write permission for group and others");
    pair.await_log(&format!("connections.lab.children.lab.updown: {why}; the script is not run"));
    // Without the policies this would cross the untrusted network in clear.
    let before = pair.dropped("no_sa");
    let pong = Ping::new(Side::Two.host(Family::V4)).count(5).brief().run(&pair.t.client).unwrap();
    assert_eq!(pong.received, 0);
    pair.await_dropped("no_sa", before + 5);
    pair.up(Side::One);
    pair.await_log(&format!("up-client-v6 of child lab failed: {why}"));
    pair.ping_from(Side::One, Family::V4, 56);
    pair.swanctl(Side::One).terminate("lab").unwrap();
    pair.await_log("down-client-v6 of child lab failed: ");
    assert_eq!(script.verbs(), [""; 0]);
    [Side::One, Side::Two].iter().for_each(|side| pair.await_sas(*side, 0, SOON));
    // Once it is mended the next tunnel has it.
    set_mode(&script.program, 0o755);
    pair.up(Side::One);
    script.await_verbs(&UP);
    watch.saw_nothing();
}

/// A line that strongSwan would pass to a shell loads too, and is reported.
#[test]
fn a_line_for_a_shell_is_not_run() {
    let mut pair = Scenario::new("updownsh", Kind::Testudo).start_with(|_, connection| {
        connection.more_child = vec!["updown = ipsec _updown iptables".into()];
    });
    pair.await_log("found \"ipsec _updown iptables\", expected an absolute path to a program");
    pair.up(Side::One);
    pair.ping_from(Side::One, Family::V4, 56);
}

/// The example's script opens the example's firewall to the tunnel's hosts while the tunnel is up.
#[test]
fn host_access_is_what_the_example_says() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hostaccess");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("updown");
    std::fs::copy(example.join("updown"), &program).unwrap();
    set_mode(&program, 0o755);
    let pair = Scenario::new("hostaccess", Kind::Testudo).start_with(|side, connection| {
        if side == Side::One {
            connection.more_child =
                vec![format!("updown = {}", program.display()), "hostaccess = yes".into()];
        }
    });
    let firewall = std::fs::read_to_string(example.join("nftables.conf")).unwrap();
    pair.t.gw1.run("nft", [firewall.replace("testudo0", "tu-*")]).unwrap();
    let await_rules = |pair: &Pair, expected: usize| {
        let rules = || {
            let chain = pair.t.gw1.run("nft", ["list", "chain", "inet", "filter", "tunnels"])?.stdout;
            let rules = chain.matches("accept").count();
            Ok(if rules == expected { Ok(()) } else { Err(format!("{rules} rules")) })
        };
        wait_until(&format!("{expected} rules of tunnels"), SOON, rules).unwrap();
    };
    let reached = |pair: &Pair| {
        [Family::V4, Family::V6].map(|family| {
            let ping = Ping::new(Side::One.inner(family)).count(3).brief();
            ping.run(&pair.t.server).unwrap().received
        })
    };
    for _ in 0..2 {
        pair.up(Side::Two);
        await_rules(&pair, 2);
        assert_eq!(reached(&pair), [3, 3]);
        pair.swanctl(Side::Two).terminate("lab").unwrap();
        await_rules(&pair, 0);
    }
    pair.up(Side::Two);
    await_rules(&pair, 2);
    pair.t.gw1.run("nft", ["flush", "chain", "inet", "filter", "tunnels"]).unwrap();
    assert_eq!(reached(&pair), [0, 0], "the firewall blocks what no script opens");
}
