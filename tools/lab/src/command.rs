//! Commands: run to their end with a limit, or started as a [`Process`].
//!
//! A command that is started in a namespace is bound to the thread that starts it
//! (`PR_SET_PDEATHSIG`), so that it does not outlive a killed lab. A command that is run to its end
//! is not: `setpriv` and `nsenter` would cost as much as most of these thousands of commands
//! themselves. What a killed lab leaves of them ends by itself, or with the namespace.

use crate::netns::inside;
use crate::process::Process;
use crate::{Error, Result, interrupt};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// A command line and the namespace it runs in.
#[derive(Clone, Debug)]
pub struct Cmd {
    namespace: Option<String>,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: String,
    limit: Duration,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

impl Cmd {
    /// A command on the host.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            namespace: None,
            argv: vec![program.as_ref().to_owned()],
            env: Vec::new(),
            input: String::new(),
            limit: DEFAULT_LIMIT,
        }
    }

    /// Runs it in the network namespace of that name; mounts remain those of the host.
    pub(crate) fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets what it reads from standard input: a few lines, which a pipe can hold. Only for commands
    /// that are run to their end.
    pub fn input(mut self, text: impl Into<String>) -> Self {
        self.input = text.into();
        self
    }

    /// Sets how long it may run; the default is two minutes.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end. Fails unless it succeeds.
    pub fn run(self) -> Result<Finished> {
        let line = self.line();
        let done = self.run_any()?;
        if done.status.success() {
            return Ok(done);
        }
        let output = if done.stderr.trim().is_empty() { done.stdout } else { done.stderr };
        Err(Error::Command { command: line, status: describe(done.status), output })
    }

    /// Runs it to its end, and accepts any exit status.
    pub fn run_any(self) -> Result<Finished> {
        let input = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let begin = || self.spawn(&self.argv, [input, Stdio::piped(), Stdio::piped()]);
        let mut child = match &self.namespace {
            None => begin(),
            Some(namespace) => inside(namespace, begin)?,
        }?;
        if let Some(mut pipe) = child.stdin.take() {
            // A command that has ended without reading it has told why.
            let _end = pipe.write_all(self.input.as_bytes());
        }
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let ended = wait_child(&mut child, self.limit);
        if !matches!(ended, Ok(Some(_))) {
            kill_group(&mut child);
        }
        let (stdout, stderr) = (collect(stdout), collect(stderr));
        match ended? {
            Some(status) => Ok(Finished { status, stdout, stderr }),
            None => Err(Error::CommandTimeout {
                command: self.line(),
                after: self.limit,
                output: format!("{stderr}{stdout}"),
            }),
        }
    }

    /// Starts it in the background; both outputs go to `log`.
    pub fn start(self, name: &str, log: &Path) -> Result<Process> {
        let action = || Error::io(format!("write the log {}", log.display()));
        let out = File::options().create(true).append(true).open(log).map_err(action())?;
        let err = out.try_clone().map_err(action())?;
        let mut argv: Vec<OsString> = Vec::new();
        if let Some(namespace) = &self.namespace {
            argv.extend(["setpriv", "--pdeathsig", "KILL", "nsenter"].map(Into::into));
            argv.push(format!("--net=/run/netns/{namespace}").into());
            argv.push("--".into());
        }
        argv.extend(self.argv.iter().cloned());
        let child = self.spawn(&argv, [Stdio::null(), out.into(), err.into()])?;
        Ok(Process::new(name, child, log))
    }

    /// Starts it by this command line, with these as standard input, output and error.
    fn spawn(&self, argv: &[OsString], [stdin, stdout, stderr]: [Stdio; 3]) -> Result<Child> {
        let (program, args) = argv.split_first().expect("a command has a program");
        Command::new(program)
            .args(args)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Error::Missing { program: program.display().to_string() },
                _ => Error::io(format!("start `{}`", self.line()))(e),
            })
    }

    /// The command line as shown in errors.
    pub fn line(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|a| a.to_string_lossy()).collect();
        match &self.namespace {
            Some(namespace) => format!("[{namespace}] {}", words.join(" ")),
            None => words.join(" "),
        }
    }
}

/// An exit code or signal in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Waits for the child; `None` after the limit.
pub(crate) fn wait_child(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait for a child process"))? {
            return Ok(Some(status));
        }
        interrupt::check()?;
        if start.elapsed() >= limit {
            return Ok(None);
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills the child with its process group, and reaps it.
pub(crate) fn kill_group(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        // Not reaped yet, so the number still belongs to this group.
        let _gone = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
    }
    let _reaped = child.wait();
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A broken pipe ends the output; what came before is kept.
            let _end = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn collect(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_tells_line_code_and_stderr() {
        let error = Cmd::new("sh").args(["-c", "echo out; echo bad >&2; exit 3"]).run().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`sh -c echo out; echo bad >&2; exit 3` ended with exit code 3: bad"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Cmd::new("no-such-program").run().unwrap_err();
        assert!(matches!(error, Error::Missing { ref program } if program == "no-such-program"), "{error}");
    }

    #[test]
    fn the_limit_kills_the_whole_group() {
        let start = Instant::now();
        let end_after = |limit: Duration| {
            let cmd = Cmd::new("sh").args(["-c", "echo begun; sleep 600 & wait"]).limit(limit);
            let text = cmd.run().unwrap_err().to_string();
            assert!(text.contains(&format!("had not ended after {limit:?} and was killed")), "{text}");
            text
        };
        // On a busy machine it may be killed before it has started.
        let limits = [200, 2000, 20_000].map(Duration::from_millis);
        assert!(limits.into_iter().any(|limit| end_after(limit).contains("was killed: begun")));
        assert!(start.elapsed() < Duration::from_secs(300), "the sleeper kept the pipe open");
    }
}
