//! A killed lab leaves nothing to the next one.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::{Lab, Topology, wait_until};

const MARK: &str = "TESTUDO_LAB_TEST_DIR_FILE";

/// Runs as a separate process, started by the test below.
#[test]
#[ignore = "another test starts it in a process of its own"]
fn helper_that_holds_a_lab_until_it_is_killed() {
    let Some(mark) = std::env::var_os(MARK) else { return };
    let lab = Lab::new("killed").unwrap();
    let t = Topology::build(&lab, &Options::default()).unwrap();
    // A process that is not bound to this one's life, like a daemon's child.
    let orphan = t.server.run("sh", ["-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).unwrap().stdout;
    let text = format!("{}\n{orphan}", lab.dir().display());
    std::fs::write(mark, text).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

fn namespaces(pid: u32) -> usize {
    // The part of the name after the lab's slot.
    let mark = format!("-{pid}-");
    let entries = std::fs::read_dir("/run/netns").unwrap();
    entries.flatten().filter(|e| e.file_name().to_string_lossy().contains(&mark)).count()
}

#[test]
fn the_next_lab_sweeps_what_a_killed_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sweep::helper_that_holds_a_lab_until_it_is_killed"])
        .env(MARK, &mark)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (left, orphan) = wait_until("the victim's lab", Duration::from_secs(600), || {
        let text = std::fs::read_to_string(&mark).unwrap_or_default();
        let parts = text.strip_suffix('\n').and_then(|text| text.split_once('\n'));
        Ok(parts.map(|(dir, pid)| (dir.to_owned(), pid.to_owned())).ok_or("no mark".into()))
    })
    .unwrap();
    // Until init reaps it, a dead process has an entry, but no namespace.
    let orphan = || std::fs::read_link(format!("/proc/{orphan}/ns/net")).is_ok();
    assert!(orphan());
    assert_eq!(namespaces(victim.id()), 5);
    kill(Pid::from_raw(victim.id().cast_signed()), Signal::SIGKILL).unwrap();
    victim.wait().unwrap();

    // Another waiting lab may sweep first.
    let _next = Lab::new("next").unwrap();
    assert_eq!(namespaces(victim.id()), 0);
    assert!(!Path::new(&left).exists() && !orphan());
}

#[test]
fn memory_that_a_dead_daemon_shared_is_swept_and_that_of_a_living_one_is_not() {
    let mut daemon = Command::new("true").spawn().unwrap();
    let dead = daemon.id();
    daemon.wait().unwrap();
    let alive = std::process::id();
    let path = |name: String| Path::new("/dev/shm").join(name);
    let [dead, alive] = [dead, alive]
        .map(|pid| [path(format!("qb-{pid}-1-2-Ab3xYz")), path(format!("qb-corosync-{pid}-blackbox-data"))]);
    // Each appears at once, because other labs sweep a dead daemon's memory when they start.
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = |name| elsewhere.path().join(name);
    for [directory, file] in [&dead, &alive] {
        std::fs::create_dir(place("directory")).unwrap();
        std::fs::write(place("directory").join("qb-request-cpg-header"), "x").unwrap();
        std::fs::write(place("file"), "x").unwrap();
        std::fs::rename(place("directory"), directory).unwrap();
        std::fs::rename(place("file"), file).unwrap();
    }
    let _lab = Lab::new("sweeps").unwrap();
    assert!(dead.iter().all(|path| !path.exists()));
    assert!(alive.iter().all(|path| path.exists()));
    std::fs::remove_dir_all(&alive[0]).unwrap();
    std::fs::remove_file(&alive[1]).unwrap();
}

#[test]
fn a_lab_takes_everything_with_it_when_it_ends() {
    let lab = Lab::new("ends").unwrap();
    let dir = lab.dir().to_owned();
    let t = Topology::build(&lab, &Options::default()).unwrap();
    let sleeper = t.client.start("sleep", t.client.cmd("sleep").arg("600")).unwrap();
    let proc = PathBuf::from(format!("/proc/{}", sleeper.pid()));
    let pong = Ping::new(Side::One.outer(Family::V4)).count(1).run(&t.client).unwrap();
    assert_eq!(pong.received, 1);
    // The directory goes with the last handle, in any order.
    drop(lab);
    assert!(dir.exists() && proc.exists());
    drop(sleeper);
    let name = t.gw1.path();
    drop(t);
    assert!(!dir.exists() && !proc.exists() && !Path::new(&name).exists());
}
