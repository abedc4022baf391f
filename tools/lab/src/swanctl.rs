//! swanctl as an operator runs it, for any daemon with VICI.

use crate::command::{Cmd, Finished};
use crate::namespace::write_private;
use crate::{Error, Namespace, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testudo_vici::client::Client;
use testudo_vici::message::{Blob, Element, Message};

/// swanctl with the configuration directory and the socket of one daemon.
#[derive(Clone, Debug)]
pub struct Swanctl {
    namespace: Namespace,
    program: PathBuf,
    dir: PathBuf,
    uri: String,
    /// The daemon's socket, if it has one here.
    socket: Option<PathBuf>,
}

/// How long a daemon may take to answer what is asked without swanctl.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// Plugins for reading keys and certificates; swanctl would load all installed ones by default.
pub(crate) const PLUGINS: &str = "pem pkcs1 pkcs8 x509 pubkey openssl random revocation constraints";

/// Settings for commands that read keys and certificates.
const READING: &str = "strongswan.conf";
/// Settings for all others, thousands in a run of all labs: they do not wait for OpenSSL to be
/// initialised.
const PLAIN: &str = "plain.conf";
/// How the former begin.
const READERS: [&str; 2] = ["--load", "--list-certs"];

impl Swanctl {
    /// `dir` receives the configuration; `socket` is the daemon's.
    pub fn new(namespace: &Namespace, dir: &Path, socket: &Path) -> Result<Self> {
        let at = Self::at(namespace, dir, &format!("unix://{}", socket.display()))?;
        Ok(Self { socket: Some(socket.to_owned()), ..at })
    }

    /// For a daemon that listens elsewhere; `uri` is the argument of `swanctl --uri`.
    pub fn at(namespace: &Namespace, dir: &Path, uri: &str) -> Result<Self> {
        let swanctl = Self {
            namespace: namespace.clone(),
            program: crate::strongswan::unconfined("/usr/sbin/swanctl", dir)?,
            dir: dir.join("swanctl"),
            uri: uri.to_owned(),
            socket: None,
        };
        std::fs::create_dir_all(&swanctl.dir)
            .map_err(Error::io(format!("make {}", swanctl.dir.display())))?;
        for (file, plugins) in [(READING, PLUGINS), (PLAIN, "random")] {
            write_private(&swanctl.dir.join(file), &format!("swanctl {{\n    load = {plugins}\n}}\n"))?;
        }
        Ok(swanctl)
    }

    /// Writes `swanctl.conf` and loads everything.
    pub fn load(&self, conf: &str) -> Result<Finished> {
        self.write_conf(conf)?;
        self.run(["--load-all", "--noprompt"])
    }

    /// Writes `swanctl.conf` only.
    pub fn write_conf(&self, conf: &str) -> Result<()> {
        write_private(&self.dir.join("swanctl.conf"), conf)
    }

    /// Writes a file into one of swanctl's directories, such as `x509`.
    pub fn write_file(&self, directory: &str, file: &str, text: &str) -> Result<()> {
        let directory = self.dir.join(directory);
        std::fs::create_dir_all(&directory).map_err(Error::io(format!("make {}", directory.display())))?;
        write_private(&directory.join(file), text)
    }

    /// Removes such a file.
    pub fn remove_file(&self, directory: &str, file: &str) -> Result<()> {
        let path = self.dir.join(directory).join(file);
        std::fs::remove_file(&path).map_err(Error::io(format!("remove {}", path.display())))
    }

    /// Brings a child up.
    pub fn initiate(&self, child: &str, limit: Duration) -> Result<Finished> {
        let seconds = limit.as_secs().max(1).to_string();
        let args = ["--initiate", "--child", child, "--timeout", &seconds];
        self.cmd(args).limit(limit + Duration::from_secs(5)).run()
    }

    /// Closes an IKE SA with its children.
    pub fn terminate(&self, ike: &str) -> Result<Finished> {
        self.terminate_within(ike, Duration::from_secs(10))
    }

    /// Closes an IKE SA, with another limit for the peer's answer.
    pub fn terminate_within(&self, ike: &str, limit: Duration) -> Result<Finished> {
        let seconds = limit.as_secs().max(1).to_string();
        let args = ["--terminate", "--ike", ike, "--timeout", &seconds];
        self.cmd(args).limit(limit + Duration::from_secs(20)).run()
    }

    /// Whether the daemon answers, or why not.
    pub fn is_served(&self) -> Result<std::result::Result<(), String>> {
        let Some(socket) = &self.socket else {
            let answer = self.cmd(["--version", "--daemon"]).run_any()?;
            return Ok(if answer.status.success() { Ok(()) } else { Err(answer.stderr) });
        };
        if !socket.exists() {
            return Ok(Err("no VICI socket".to_owned()));
        }
        let answer = ask(socket, |client| client.request("version", Message::new()));
        Ok(answer.map(drop).map_err(|error| error.to_string()))
    }

    /// The SAs. The labs ask thousands of times, so the lab asks itself what swanctl would.
    pub fn list_sas(&self) -> Result<Vec<IkeSa>> {
        let Some(socket) = &self.socket else {
            return self.list_sas_raw();
        };
        let events = ask(socket, |client| client.stream("list-sas", "list-sa", Message::new()))?;
        Ok(events.into_iter().flat_map(|event| sas_of(Section::from(event))).collect())
    }

    /// The SAs, from swanctl's raw output.
    pub fn list_sas_raw(&self) -> Result<Vec<IkeSa>> {
        parse_sas(&self.run(["--list-sas", "--raw", "--pretty"])?.stdout)
    }

    /// The SAs as swanctl's text output.
    pub fn list_sas_text(&self) -> Result<String> {
        Ok(self.run(["--list-sas"])?.stdout)
    }

    /// Runs it with these arguments. Fails unless it succeeds.
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Result<Finished> {
        self.cmd(args).run()
    }

    /// A command line of it, for callers that expect a failure.
    pub fn cmd<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cmd {
        let args: Vec<&str> = args.into_iter().collect();
        let reads = args.iter().any(|arg| READERS.iter().any(|reader| arg.starts_with(reader)));
        self.namespace
            .cmd(&self.program)
            .args(args)
            .args(["--uri", &self.uri])
            .env("STRONGSWAN_CONF", self.dir.join(if reads { READING } else { PLAIN }))
            .env("SWANCTL_DIR", &self.dir)
    }
}

/// Asks a daemon without swanctl.
fn ask<T>(
    socket: &Path,
    question: impl FnOnce(&mut Client) -> std::result::Result<T, testudo_vici::Error>,
) -> Result<T> {
    Client::connect_within(socket, ANSWER_LIMIT)
        .and_then(|mut client| question(&mut client))
        .map_err(|error| Error::Vici { socket: socket.to_owned(), error })
}

/// The data of an IKE SA that the lab uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeSa {
    /// Name of its connection.
    pub name: String,
    /// `ESTABLISHED`, ...
    pub state: String,
    /// Its Child SAs.
    pub children: Vec<ChildSa>,
    values: Vec<(String, String)>,
}

/// The data of a Child SA that the lab uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSa {
    /// Name of its configuration.
    pub name: String,
    /// `INSTALLED`, ...
    pub state: String,
    values: Vec<(String, String)>,
}

impl IkeSa {
    /// Whether it and at least one of its Child SAs carry traffic.
    pub fn is_up(&self) -> bool {
        self.state == "ESTABLISHED" && self.children.iter().any(|child| child.state == "INSTALLED")
    }

    /// Any other value, by its VICI key.
    pub fn get(&self, key: &str) -> Option<&str> {
        find(&self.values, key)
    }
}

impl ChildSa {
    /// Any other value, by its VICI key.
    pub fn get(&self, key: &str) -> Option<&str> {
        find(&self.values, key)
    }

    /// A value that must be a decimal number: `packets-in`, `bytes-out`, ...
    pub fn number(&self, key: &str) -> Result<u64> {
        let found = self.get(key).unwrap_or("nothing");
        found
            .parse()
            .map_err(|_| Error::unexpected(format!("{key} of child {}", self.name), "a number", found))
    }
}

fn find<'a>(values: &'a [(String, String)], key: &str) -> Option<&'a str> {
    values.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

/// A section of the output of `swanctl --raw --pretty`.
#[derive(Debug, Default)]
struct Section {
    values: Vec<(String, String)>,
    sections: Vec<(String, Section)>,
}

impl Section {
    fn parse<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Self {
        let mut section = Self::default();
        while let Some(line) = lines.next().map(str::trim) {
            if line == "}" {
                break;
            } else if let Some(name) = line.strip_suffix(" {") {
                section.sections.push((name.to_owned(), Self::parse(lines)));
            } else if let Some(name) = line.strip_suffix(" = [") {
                let items: Vec<_> = lines.by_ref().map(str::trim).take_while(|line| *line != "]").collect();
                section.values.push((name.to_owned(), items.join(" ")));
            } else if let Some((key, value)) = line.split_once(" = ") {
                section.values.push((key.to_owned(), value.to_owned()));
            }
        }
        section
    }

    fn take(&mut self, name: &str) -> Vec<(String, Section)> {
        let at = self.sections.iter().position(|(n, _)| n == name);
        at.map_or_else(Vec::new, |at| self.sections.remove(at).1.sections)
    }

    fn state(&self) -> String {
        find(&self.values, "state").unwrap_or_default().to_owned()
    }
}

impl From<Message> for Section {
    fn from(message: Message) -> Self {
        let mut section = Self::default();
        let text = |blob: &Blob| String::from_utf8_lossy(blob.bytes()).into_owned();
        for element in message.into_elements() {
            match element {
                Element::Section(name, content) => section.sections.push((name, content.into())),
                Element::Value(key, value) => section.values.push((key, text(&value))),
                Element::List(key, items) => {
                    let items: Vec<String> = items.iter().map(text).collect();
                    section.values.push((key, items.join(" ")));
                }
            }
        }
        section
    }
}

fn parse_sas(shown: &str) -> Result<Vec<IkeSa>> {
    let events = Section::parse(&mut shown.lines()).sections;
    let mut sas = Vec::new();
    for (title, event) in events.into_iter().filter(|(title, _)| title != "list-sas reply") {
        if title != "list-sa event" {
            return Err(Error::unexpected("swanctl --list-sas --raw", "list-sa event", title));
        }
        sas.extend(sas_of(event));
    }
    Ok(sas)
}

fn sas_of(event: Section) -> impl Iterator<Item = IkeSa> {
    event.sections.into_iter().map(|(name, mut section)| {
        let child = |(key, child): (String, Section)| ChildSa {
            name: find(&child.values, "name").unwrap_or(&key).to_owned(),
            state: child.state(),
            values: child.values,
        };
        let children = section.take("child-sas").into_iter().map(child).collect();
        IkeSa { name, state: section.state(), children, values: section.values }
    })
}
