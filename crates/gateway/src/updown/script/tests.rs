use super::*;
use crate::program::tests::write_script;
use std::os::unix::fs::chown;

/// Writes a shell script and returns its path.
pub(in super::super) fn executable(dir: &Path, name: &str, body: &str) -> String {
    let path = dir.join(name);
    write_script(&path, body);
    path.to_str().unwrap().to_owned()
}

fn task(program: String, arguments: &[&str]) -> Task {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Task {
        connection: "gw".into(),
        child: "net".into(),
        script: UpdownScript { program, arguments, host_access: false },
        verb: "up-client".into(),
        variables: vec![("PLUTO_PEER_ID".into(), "$(touch /nowhere) `id`".into())],
    }
}

/// Open files but the standard ones that programs inherit from this process.
fn handed_down() -> usize {
    const CLOEXEC: u32 = 0o2_000_000;
    let inherited = |number: u32| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags =
            info.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.is_some_and(|flags| flags & CLOEXEC == 0)
    };
    (3..1024).filter(|number| inherited(*number)).count()
}

/// What the log shows of a run.
fn said(body: &str, arguments: &[&str], limit: Duration) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let task = task(executable(dir.path(), "updown", body), arguments);
    let outcome = run(&task, limit, &AtomicBool::new(false));
    let dir = dir.path().display().to_string();
    outcome.into_lines().into_iter().map(|line| line.text.replace(&dir, "DIR")).collect()
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_script_has_its_words_its_variables_and_nothing_else() {
    let body = "echo $PLUTO_VERB \"$PLUTO_PEER_ID\" $# $1; pwd; ls /proc/self/fd | wc -w; echo trouble >&2; env | \
                grep -vc '^PLUTO_\\|^PATH=\\|^PWD=\\|^_=\\|^OLDPWD=\\|^SHLVL='";
    let said = said(body, &["iptables"], LONG);
    assert_eq!(said[..2], ["updown: up-client $(touch /nowhere) `id` 1 iptables", "updown: /"]);
    // Standard input and outputs, the directory that is read, and what this process was itself
    // started with.
    assert_eq!(said[2], format!("updown: {}", 4 + handed_down()));
    assert_eq!(said[3..5], ["updown: trouble", "updown: 0"]);
}

#[test]
fn a_failure_is_told_with_what_was_said() {
    let said = said("echo no table; exit 3", &[], LONG);
    assert_eq!(
        said,
        ["updown: no table", "updown script DIR/updown up-client of child net failed: exit status: 3"]
    );
}

#[test]
fn a_script_that_hangs_is_killed_with_all_that_it_has_started() {
    let begun = Instant::now();
    let said = said("echo begun; sleep 1000 & exec sleep 1000", &[], Duration::from_millis(300));
    assert_eq!(said[0], "updown: begun");
    assert!(said[1].ends_with("failed: it ran for more than 0 seconds and was killed"), "{said:?}");
    assert!(begun.elapsed() < LONG);
}

#[test]
fn a_script_is_not_waited_for_when_the_daemon_ends() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(executable(dir.path(), "updown", "exec sleep 1000"), &[]);
    let lines = run(&task, LONG, &AtomicBool::new(true)).into_lines();
    assert!(lines[0].text.ends_with("failed: it was killed because testudod ends"), "{lines:?}");
}

#[test]
fn a_process_that_is_left_behind_is_not_waited_for() {
    let begun = Instant::now();
    assert_eq!(said("sleep 70 & echo $!", &[], LONG).len(), 1);
    assert!(begun.elapsed() < LONG);
}

#[test]
fn a_script_that_talks_much_is_cut() {
    let said = said("head -c 200000 /dev/zero | tr '\\0' x; echo", &[], LONG);
    assert_eq!(said[0].len(), "updown: ".len() + MAX_OUTPUT_OCTETS);
    assert_eq!(said[1..], ["updown: output beyond 8192 octets is left out"]);
}

/// Looked at before each run: what was trusted when it was loaded may not be by now.
#[test]
fn what_others_than_root_can_change_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let program = executable(dir.path(), "updown", "echo run");
    chown(Path::new(&program), Some(1000), None).unwrap();
    let lines = run(&task(program, &[]), LONG, &AtomicBool::new(false)).into_lines();
    assert!(
        lines.len() == 1 && lines[0].text.contains("found owner with UID 1000, expected root"),
        "{lines:?}"
    );
}
