//! A copy of the scripts in a directory of its own, with stand-ins for apt, cargo and others.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Real programs that the scripts find in PATH beside the stand-ins. apt, dpkg and cargo are not
/// among them, so that no test can reach those.
const TOOLS: &[&str] = &[
    "awk",
    "bash",
    "cat",
    "chmod",
    "cut",
    "df",
    "dirname",
    "du",
    "find",
    "getconf",
    "grep",
    "head",
    "id",
    "install",
    "mkdir",
    "mktemp",
    "objcopy",
    "readelf",
    "rm",
    "sed",
    "sha256sum",
    "sort",
    "strip",
    "stty",
    "tail",
    "touch",
    "tr",
    "xargs",
];

/// The unprivileged user.
const NOBODY: u32 = 65534;

pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
}

/// The output and exit code of a script.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// A Debian 12 with all packages, where everything works.
    pub(crate) fn new() -> Self {
        let sandbox = Self { dir: tempfile::tempdir().unwrap() };
        fs::set_permissions(sandbox.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let scripts = sandbox.path("src/scripts");
        for dir in [
            "src/scripts",
            "bin",
            "home",
            "system/usr/sbin",
            "system/etc/systemd/system/multi-user.target.wants",
        ] {
            fs::create_dir_all(sandbox.path(dir)).unwrap();
        }
        for entry in fs::read_dir(workspace.join("scripts")).unwrap() {
            let source = entry.unwrap().path();
            fs::copy(&source, scripts.join(source.file_name().unwrap())).unwrap();
        }
        fs::copy(workspace.join("Cargo.toml"), sandbox.path("src/Cargo.toml")).unwrap();
        for tool in TOOLS {
            let real = ["/usr/bin", "/bin"]
                .map(|dir| Path::new(dir).join(tool))
                .into_iter()
                .find(|path| path.exists());
            symlink(real.unwrap_or_else(|| panic!("no {tool} here")), sandbox.path("bin").join(tool))
                .unwrap();
        }
        sandbox.os_release("debian", "12", "Debian GNU/Linux 12 (bookworm)");
        sandbox.program("uname", "case $1 in -m) echo x86_64 ;; *) echo 6.12.9-amd64 ;; esac");
        sandbox.program("cargo", "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'");
        sandbox.program("dpkg", "echo amd64");
        sandbox.installed_but(&[]);
        sandbox
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Puts a shell script into PATH, in place of the program with that name.
    pub(crate) fn program(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        // A real tool is a link, which must not be written through.
        if path.is_symlink() {
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn without_program(&self, name: &str) {
        fs::remove_file(self.path("bin").join(name)).unwrap();
    }

    pub(crate) fn os_release(&self, id: &str, version: &str, name: &str) {
        let text = format!("ID={id}\nVERSION_ID=\"{version}\"\nPRETTY_NAME=\"{name}\"\n");
        fs::write(self.path("system/etc/os-release"), text).unwrap();
    }

    /// dpkg reports all packages of the list as installed except `missing`.
    pub(crate) fn installed_but(&self, missing: &[&str]) {
        let list = fs::read_to_string(self.path("src/scripts/packages.txt")).unwrap();
        let names = list
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_whitespace().next());
        let installed: Vec<_> =
            names.filter(|name| !missing.contains(name)).map(|name| format!("installed {name}")).collect();
        self.program("dpkg-query", &format!("cat <<'END'\n{}\nEND", installed.join("\n")));
    }

    /// apt knows `known`; `arms` are the arms of a `case` over its commands.
    pub(crate) fn apt(&self, known: &[&str], arms: &str) {
        let policy: Vec<_> = known.iter().map(|name| format!("{name}:\n  Candidate: 1.0")).collect();
        let policy = policy.join("\n");
        self.program(
            "apt-cache",
            &format!("case $1 in\npolicy) cat <<'END'\n{policy}\nEND\n;;\nshow) printf 'Installed-Size: 2048\\nSize: 1048576\\n' ;;\nesac"),
        );
        let body = "case \" $* \" in\n*\" update \"*) command=update ;;\n*\" --simulate \"*) echo 'Inst thing (1.0)'; exit ;;\n\
             *\" install \"*) command=install ;;\nesac\n";
        self.program("apt-get", &format!("{body}case $command in\n{arms}\nesac"));
    }

    /// A cargo that answers `--version`, and otherwise executes `build`.
    pub(crate) fn cargo(&self, build: &str) {
        self.program(
            "cargo",
            &format!("if [[ $1 == --version ]]; then echo 'cargo 1.95.0 (x)'; exit; fi\n{build}"),
        );
    }

    pub(crate) fn run(&self, script: &str) -> Outcome {
        self.finish(self.command(script))
    }

    pub(crate) fn run_as_nobody(&self, script: &str) -> Outcome {
        let mut command = self.command(script);
        command.uid(NOBODY).gid(NOBODY);
        self.finish(command)
    }

    /// Runs with a file system of `kilobytes` at src/target, which disappears with the process.
    pub(crate) fn run_with_small_disk(&self, script: &str, kilobytes: u32) -> Outcome {
        let target = self.path("src/target");
        fs::create_dir_all(&target).unwrap();
        let mut command = self.prepared("/usr/bin/unshare");
        let mount = format!("/usr/bin/mount -t tmpfs -o size={kilobytes}k testudo \"$1\" && exec \"$2\"");
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &mount, "sh"]);
        command.arg(&target).arg(self.path("src/scripts").join(script));
        self.finish(command)
    }

    pub(crate) fn command(&self, script: &str) -> Command {
        self.prepared(self.path("src/scripts").join(script).to_str().unwrap())
    }

    pub(crate) fn tool(&self, name: &str) -> Command {
        self.prepared(self.path("bin").join(name).to_str().unwrap())
    }

    fn prepared(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"))
            .env("TESTUDO_SYSTEM", self.path("system"));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn finish(&self, mut command: Command) -> Outcome {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Outcome {
    /// Asserts one line on standard error, from `script`, with all of `parts`, and an exit code
    /// other than 0.
    #[track_caller]
    pub(crate) fn is_refusal(&self, script: &str, parts: &[&str]) {
        let Self { code, stdout, stderr } = self;
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {stdout}{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stdout}{stderr}");
        assert!(stderr.starts_with(&format!("{script}: ")), "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{part:?} is not in {stderr}");
        }
    }

    /// Asserts a refusal before the script has done anything.
    #[track_caller]
    pub(crate) fn is_refusal_at_once(&self, script: &str, parts: &[&str]) {
        self.is_refusal(script, parts);
        assert_eq!(self.stdout, "");
    }
}
