use super::*;
use mio::{Poll, Token};
use std::path::PathBuf;
use testudo_base::spi::Spi;
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{ChildSaState, IkeSaState, NatStatus};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{CommitId, IkeSaId, Time};
use testudo_ipsec::sa::Mode;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

pub(super) fn ts(first: &str, last: &str) -> TrafficSelector {
    TrafficSelector::all(AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap())
}

pub(super) fn ike() -> IkeSaStatus {
    IkeSaStatus {
        id: IkeSaId(5),
        connection: Some("gw".into()),
        state: IkeSaState::Established,
        local: "192.0.2.1:500".parse().unwrap(),
        remote: "192.0.2.2:500".parse().unwrap(),
        local_id: Some(Identity::Fqdn("moon.example.org".into())),
        remote_id: Some(Identity::Fqdn("sun.example.org".into())),
        initiator: true,
        spi_i: IkeSpi(1),
        spi_r: IkeSpi(2),
        nat: NatStatus::default(),
        encryption: None,
        integrity: None,
        prf: None,
        ke: None,
        ppk: false,
        additional_ke: [None; 7],
        established: Some(Time::default()),
        rekey: None,
        reauth: None,
        commit: CommitId(1),
        tasks_active: Vec::new(),
        tasks_queued: Vec::new(),
        local_vips: Vec::new(),
        remote_vips: Vec::new(),
        children: Vec::new(),
    }
}

pub(super) fn child(number: u64) -> ChildSaStatus {
    ChildSaStatus {
        id: ChildSaId(number),
        name: "net".into(),
        reqid: 3,
        state: ChildSaState::Installed,
        mode: Mode::Tunnel,
        ah: false,
        encap: false,
        spi_in: Spi(1),
        spi_out: Spi(2),
        encryption: None,
        integrity: None,
        ke: None,
        additional_ke: [None; 7],
        esn: false,
        installed: Time::default(),
        rekey: None,
        end: None,
        local_ts: vec![ts("10.1.0.0", "10.1.255.255")],
        remote_ts: vec![ts("10.2.0.0", "10.2.255.255")],
        per_cpu: false,
        worker: None,
    }
}

/// A gateway's scripts, with one that notes what it is run for.
struct Rig {
    updown: Updown,
    dir: tempfile::TempDir,
    script: UpdownScript,
    _poll: Poll,
}

impl Rig {
    fn new() -> Self {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("notes");
        let body = format!("echo $PLUTO_VERB $PLUTO_UNIQUEID >>{}", notes.display());
        let program = script::tests::executable(dir.path(), "updown", &body);
        let script = UpdownScript { program, arguments: Vec::new(), host_access: false };
        Self { updown: Updown::new(Arc::new(waker)), dir, script, _poll: poll }
    }

    fn up(&mut self, number: u64) {
        let (ike, child) = (ike(), child(number));
        let risen = Risen { connection: "gw", ike: &ike, child: &child, interface: None };
        self.updown.up(risen, &self.script);
    }

    /// What scripts were run for, after all that wait have been run.
    fn notes(mut self) -> Vec<String> {
        let lines = self.updown.end();
        assert_eq!(lines, []);
        let notes: PathBuf = self.dir.path().join("notes");
        std::fs::read_to_string(notes).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_tunnel_goes_up_once_and_down_with_its_last_child_sa() {
    let mut rig = Rig::new();
    rig.up(1);
    rig.up(1);
    assert!(rig.updown.renewed(ChildSaId(1), ChildSaId(2)), "new keys are no news to a script");
    rig.updown.gone(ChildSaId(1));
    assert!(rig.updown.knows(ChildSaId(2)));
    rig.updown.gone(ChildSaId(2));
    rig.updown.gone(ChildSaId(2));
    assert_eq!(rig.notes(), ["up-client 5", "down-client 5"]);
}

#[test]
fn of_two_that_renew_at_once_one_is_left() {
    let mut rig = Rig::new();
    rig.up(1);
    assert!(rig.updown.renewed(ChildSaId(1), ChildSaId(2)) && rig.updown.renewed(ChildSaId(1), ChildSaId(3)));
    rig.updown.gone(ChildSaId(2));
    rig.updown.gone(ChildSaId(1));
    assert!(rig.updown.knows(ChildSaId(3)), "it carries the tunnel on");
    assert!(!rig.updown.renewed(ChildSaId(7), ChildSaId(8)), "no script was run for that one");
}

#[test]
fn what_stands_at_the_end_is_taken_down() {
    let mut rig = Rig::new();
    rig.up(1);
    rig.up(2);
    let notes = rig.notes();
    assert_eq!(notes, ["up-client 5", "up-client 5", "down-client 5", "down-client 5"]);
}

#[test]
fn a_peer_with_very_many_selectors_does_not_run_very_many_scripts() {
    let mut rig = Rig::new();
    let (ike, mut child) = (ike(), child(1));
    child.local_ts = vec![ts("10.1.0.0", "10.1.255.255"); MAX_PAIRS + 1];
    rig.updown.up(Risen { connection: "gw", ike: &ike, child: &child, interface: None }, &rig.script);
    let tunnel = &rig.updown.tunnels[&ChildSaId(1)];
    assert_eq!(tunnel.runs.len(), MAX_PAIRS);
    let lines = rig.updown.take_lines();
    assert!(lines[0].text.contains("has 65 pairs of selectors"), "{lines:?}");
}

#[test]
fn owners_are_looked_at_only_after_a_change() {
    let mut rig = Rig::new();
    let now = Instant::now();
    rig.up(1);
    assert!(!rig.updown.looks_at_owners(now));
    rig.updown.owners_change(now);
    assert!(rig.updown.looks_at_owners(now));
    assert!(!rig.updown.looks_at_owners(now + OWNER_WINDOW));
}
