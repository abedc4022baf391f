//! Parses the output of Rust's test harness.

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
}

/// The test's name in a line of `--list --format terse`. Helpers are not tests: another test starts
/// them as separate processes.
pub(crate) fn listed(line: &str) -> Option<&str> {
    let name = line.strip_suffix(": test")?;
    let last = name.rsplit("::").next().unwrap_or(name);
    (!last.starts_with("helper_")).then_some(name)
}

/// Parses the output of a program that runs one test after another.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    current: Option<String>,
}

impl Follower {
    /// Processes the next whole line. Returns a test that has ended with it, and its verdict.
    ///
    /// If a test writes past the harness, its output is between its name and its verdict, and the
    /// verdict has a line of its own.
    pub(crate) fn line(&mut self, line: &str) -> Option<(String, Verdict)> {
        let rest = match line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            Some((name, rest)) => {
                // `#[should_panic]` is noted after the name.
                self.current = Some(name.split(" - ").next().unwrap_or(name).to_owned());
                rest
            }
            None => line,
        };
        // Output of the test itself may precede `ok` on that line.
        let verdict = match rest.trim_end() {
            "ok" => Verdict::Passed,
            "FAILED" => Verdict::Failed,
            _ => return None,
        };
        self.current.take().map(|name| (name, verdict))
    }

    /// The test that is running.
    pub(crate) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }
}

/// Lines of a panic that are shown: the place, the expected and found values, and some of the
/// context.
const PANIC_LINES: usize = 14;

/// The panic message of a test, from the program's output.
pub(crate) fn said(output: &str, name: &str) -> String {
    let heading = format!("---- {name} stdout ----");
    let own = match output.split_once(&heading) {
        Some((_, behind)) => behind.split("\n---- ").next().unwrap_or(behind),
        None => output,
    };
    let mut shown = Vec::new();
    let mut left = 0;
    for line in own.lines() {
        if line.starts_with("thread '") && line.contains("panicked at") {
            left = PANIC_LINES;
        } else if line.starts_with("stack backtrace:") || line.starts_with("note: run with") {
            left = 0;
        }
        if left > 0 {
            shown.push(line);
            left -= 1;
        }
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_tests_and_neither_benchmarks_nor_helpers() {
        assert_eq!(listed("a::b: test"), Some("a::b"));
        assert_eq!(listed("a::b: benchmark"), None);
        assert_eq!(listed("a::helper_that_waits: test"), None);
        assert_eq!(listed(""), None);
    }

    #[test]
    fn verdicts_are_found_on_the_line_of_the_name_and_behind_what_a_test_prints() {
        let mut follower = Follower::default();
        let output = "running 3 tests\ntest a::b ... ok\ntest c ... \n500 seeds\nok\ntest d - should panic ... FAILED\n";
        let found: Vec<_> = output.lines().filter_map(|line| follower.line(line)).collect();
        let expected = [("a::b", Verdict::Passed), ("c", Verdict::Passed), ("d", Verdict::Failed)]
            .map(|(name, v)| (name.to_owned(), v));
        assert_eq!(found, expected);
        assert_eq!(follower.line("ok"), None, "no test is open");
        assert_eq!(follower.line("test e ... "), None);
        assert_eq!(follower.current(), Some("e"));
    }

    #[test]
    fn a_panic_is_shown_without_what_stands_around_it() {
        let output = "failures:\n\n---- other stdout ----\nthread 'other' panicked at x.rs:1\nno\n\n\
            ---- mine stdout ----\nlog\nthread 'mine' (7) panicked at y.rs:2:3:\nleft: 1\nstack backtrace:\n 0: a\n";
        assert_eq!(said(output, "mine"), "thread 'mine' (7) panicked at y.rs:2:3:\nleft: 1");
        assert_eq!(
            said("thread 'mine' panicked at z\nnote: run with", "mine"),
            "thread 'mine' panicked at z"
        );
    }
}
