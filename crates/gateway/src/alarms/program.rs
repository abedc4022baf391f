//! Programs that are run for alarms.

use crate::program;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testudo_vici::alarms::AlarmReport;

/// How long a program may run.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);
/// Programs at the same time. An attacker must not be able to start very many.
const MAX_PROGRAMS: usize = 4;

/// The programs that run now.
#[derive(Default)]
pub(crate) struct Programs(Vec<(Child, Instant)>);

impl Programs {
    /// Starts a program; it is told of the alarm by its environment. Returns what keeps it from
    /// running.
    pub(crate) fn start(&mut self, program: &Path, state: &str, alarm: &AlarmReport) -> Option<String> {
        self.reap();
        if self.0.len() >= MAX_PROGRAMS {
            return Some(format!("{MAX_PROGRAMS} programs are still running"));
        }
        let mut command = match program::command(program) {
            Ok(command) => command,
            Err(why) => return Some(why.to_string()),
        };
        let sources: Vec<&str> = alarm.sources.iter().map(|(address, _)| address.as_str()).collect();
        let started = command
            .env("TESTUDO_ALARM", alarm.number.to_string())
            .env("TESTUDO_ALARM_STATE", state)
            .env("TESTUDO_ALARM_KIND", &alarm.kind)
            .env("TESTUDO_ALARM_SEVERITY", &alarm.severity)
            .env("TESTUDO_ALARM_SUBJECT", &alarm.subject)
            .env("TESTUDO_ALARM_COUNT", alarm.count.to_string())
            .env("TESTUDO_ALARM_SOURCES", sources.join(" "))
            .env("TESTUDO_ALARM_EVIDENCE", &alarm.evidence)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(child) => self.0.push((child, Instant::now())),
            Err(error) => return Some(error.to_string()),
        }
        None
    }

    /// Looks for programs that have ended, and ends those that run for too long.
    pub(crate) fn reap(&mut self) {
        self.0.retain_mut(|(child, since)| {
            if !matches!(child.try_wait(), Ok(None)) {
                return false;
            }
            if since.elapsed() > PROGRAM_TIMEOUT {
                program::kill(child);
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::write_script;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_hears_of_the_alarm_and_ends_in_time_with_all_that_it_started() {
        // Like the daemon's: owned by root, and only root may write there.
        let dir = tempfile::tempdir_in("/usr/local").unwrap();
        let [program, said, started] = ["page", "said", "started"].map(|name| dir.path().join(name));
        // Several of them say the same, so each says it at once.
        let body = format!(
            "sleep 1000 &\necho $! >> {started}\nenv | sort > {said}.$$\nmv {said}.$$ {said}\nwait",
            started = started.display(),
            said = said.display()
        );
        write_script(&program, &body);
        let alarm = AlarmReport {
            number: 3,
            kind: "clear-text".into(),
            sources: vec![("192.0.2.1".into(), 1), ("192.0.2.2".into(), 1)],
            evidence: "$(reboot)".into(),
            ..AlarmReport::default()
        };
        let mut programs = Programs::default();
        for _ in 0..MAX_PROGRAMS {
            assert_eq!(programs.start(&program, "raised", &alarm), None);
        }
        let why = programs.start(&program, "raised", &alarm).unwrap();
        assert!(why.contains("still running"), "{why}");
        let until = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&said).unwrap_or_default().lines().count() < 10 {
            assert!(Instant::now() < until, "the program has said nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = fs::read_to_string(&said).unwrap();
        for line in ["TESTUDO_ALARM=3", "TESTUDO_ALARM_KIND=clear-text", "TESTUDO_ALARM_EVIDENCE=$(reboot)"] {
            assert!(said.lines().any(|found| found == line), "{line}: {said}");
        }
        assert!(said.contains("TESTUDO_ALARM_SOURCES=192.0.2.1 192.0.2.2\n"), "{said}");
        // As if they had run for too long.
        programs.0.iter_mut().for_each(|(_, since)| *since -= 2 * PROGRAM_TIMEOUT);
        let started = fs::read_to_string(&started).unwrap();
        while !programs.0.is_empty() || started.lines().any(runs) {
            assert!(Instant::now() < until, "they are not ended");
            programs.reap();
        }
    }

    /// Nobody may have waited for it yet.
    fn runs(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[test]
    fn a_program_that_others_can_change_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("page");
        write_script(&program, "");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        let mut programs = Programs::default();
        assert!(programs.start(&program, "raised", &AlarmReport::default()).is_some());
        assert!(programs.start(Path::new("/nonexistent"), "raised", &AlarmReport::default()).is_some());
    }
}
