//! This node's state on disk. The number of its incarnation: no sender ID (RFC 6054) may be used
//! again under keys that are still in use, whatever the rest of the cluster remembers. The last view
//! that it has begun: a node that has lost its memory must not vouch for an older state. And the
//! nodes of the cluster, if they are not those of testudo.toml any more.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::iter::Peekable;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use testudo_base::spi::SenderId;
use testudo_cluster::engine::RingId;
use testudo_cluster::group::{Begun, Durable, Roster, Rosters};
use testudo_cluster::node::NodeId;

/// What begins the roster that counts, and its successor.
const SETTLED: &str = "roster";
const NEXT: &str = "next";

/// How much an error shows of a malformed file.
const MAX_SHOWN_CHARS: usize = 60;

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    file: PathBuf,
}

/// Writes while the control thread goes on.
pub(crate) struct Writer {
    orders: Sender<Durable>,
    done: Receiver<Result<Durable>>,
    /// Orders that are not done yet.
    open: usize,
    /// The incarnation that was ordered last.
    incarnation: u16,
}

impl Disk {
    /// The instance's file in that directory, which is made if it is missing.
    pub(crate) fn open(directory: &Path, instance: &str) -> Result<Self> {
        fs::create_dir_all(directory)
            .map_err(|source| Error::NoStateDirectory { directory: directory.to_owned(), source })?;
        Ok(Self::at(directory, instance))
    }

    /// The same, without making anything.
    pub(crate) fn at(directory: &Path, instance: &str) -> Self {
        Self { file: directory.join(format!("incarnation-{instance}")) }
    }

    /// The state that was written last, or the first state if there is no file. A file that cannot
    /// be read is an error: else the numbers would begin again.
    pub(crate) fn last(&self) -> Result<Durable> {
        let file = || self.file.clone();
        match fs::read_to_string(&self.file) {
            Ok(text) => read(&text).ok_or_else(|| {
                let found = text.chars().take(MAX_SHOWN_CHARS).collect();
                Error::StateMalformed { file: file(), found }
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Durable::default()),
            Err(source) => Err(Error::StateUnreadable { file: file(), source }),
        }
    }

    /// Writes a state so that it survives a loss of power.
    pub(crate) fn write(&self, durable: &Durable) -> Result<()> {
        let unwritten = |source| Error::StateUnwritten { file: self.file.clone(), source };
        self.replace(durable).map_err(unwritten)
    }

    fn replace(&self, durable: &Durable) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text(durable).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        // The new name must be on the disk, too.
        self.file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// Starts the thread that writes.
    pub(crate) fn writer(self, last: Durable) -> io::Result<Writer> {
        let (orders, ordered) = channel::<Durable>();
        let (tell, done) = channel();
        let incarnation = last.incarnation;
        let work = move || {
            let mut on_disk = last;
            for order in ordered {
                on_disk = order.clone().on_top_of(on_disk);
                let written = self.write(&on_disk).map(|()| order);
                if tell.send(written).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("disk".into()).spawn(work)?;
        Ok(Writer { orders, done, open: 0, incarnation })
    }
}

/// The file's text. The rosters follow where there are any, so that a version that does not know of
/// them refuses the file and does not count by other nodes.
fn text(durable: &Durable) -> String {
    let Durable { incarnation, begun: Begun { ring, epoch, members }, rosters } = durable;
    let mut text = format!("{incarnation} {epoch} {} {} {members:x}\n", ring.seq, ring.node);
    let Some(Rosters { settled, next }) = rosters else { return text };
    for (name, roster) in [(SETTLED, Some(settled)), (NEXT, next.as_ref())] {
        let Some(roster) = roster else { continue };
        text.push_str(&format!("{name} {}\n", roster.number));
        for (node, addresses) in &roster.nodes {
            let addresses: String = addresses.iter().map(|address| format!(" {address}")).collect();
            text.push_str(&format!("{node}{addresses}\n"));
        }
    }
    text
}

fn read(text: &str) -> Option<Durable> {
    let mut lines = text.lines().peekable();
    let durable = read_first(lines.next()?)?;
    let Some(settled) = read_roster(SETTLED, &mut lines)? else {
        return lines.next().is_none().then_some(durable);
    };
    let next = read_roster(NEXT, &mut lines)?;
    lines.next().is_none().then_some(Durable { rosters: Some(Rosters { settled, next }), ..durable })
}

/// `Some(None)`: there is no such roster here.
fn read_roster<'a>(
    name: &str,
    lines: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> Option<Option<Roster>> {
    let Some(number) = lines.next_if(|line| line.starts_with(name)) else { return Some(None) };
    let number = number.strip_prefix(name)?.trim().parse().ok()?;
    let mut nodes = BTreeMap::new();
    while let Some(line) = lines.next_if(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let mut words = line.split_ascii_whitespace();
        let node = words.next()?.parse().ok().and_then(NodeId::new)?;
        let addresses = words.map(|word| word.parse().ok()).collect::<Option<Vec<IpAddr>>>()?;
        nodes.insert(node, addresses);
    }
    (!nodes.is_empty()).then_some(Some(Roster { number, nodes }))
}

fn read_first(line: &str) -> Option<Durable> {
    let mut words = line.split_ascii_whitespace();
    let incarnation = words.next()?.parse().ok().filter(|number| *number <= SenderId::LAST_INCARNATION)?;
    let epoch = words.next()?.parse().ok()?;
    let ring = RingId { seq: words.next()?.parse().ok()?, node: words.next()?.parse().ok()? };
    let members = u32::from_str_radix(words.next()?, 16).ok()?;
    let begun = Begun { ring, epoch, members };
    words.next().is_none().then_some(Durable { incarnation, begun, rosters: None })
}

impl Writer {
    /// Begins to write. A new incarnation is waited for: the caller needs it on disk. Gives the
    /// states that are on disk by then.
    pub(crate) fn write(&mut self, durable: Durable) -> Result<Vec<Durable>> {
        let incarnation = durable.incarnation;
        self.orders.send(durable).map_err(|_| Error::StateWriterEnded)?;
        self.open += 1;
        if std::mem::replace(&mut self.incarnation, incarnation) == incarnation {
            return Ok(Vec::new());
        }
        let mut written = Vec::new();
        while self.open > 0 {
            written.push(self.done.recv().map_err(|_| Error::StateWriterEnded)??);
            self.open -= 1;
        }
        Ok(written)
    }

    /// A state that has been written since the last call.
    pub(crate) fn written(&mut self) -> Result<Option<Durable>> {
        if self.open == 0 {
            return Ok(None);
        }
        match self.done.try_recv() {
            Ok(done) => {
                self.open -= 1;
                done.map(Some)
            }
            Err(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable(incarnation: u16, epoch: u64) -> Durable {
        let ring = RingId { seq: epoch * 4, node: 2 };
        Durable { incarnation, begun: Begun { ring, epoch, members: 0b1110 }, rosters: None }
    }

    fn rosters(number: u64, next: bool) -> Option<Rosters> {
        let node =
            |number: u8| (NodeId::new(number.into()).unwrap(), vec![IpAddr::from([10, 99, 0, number])]);
        let mut rosters = Rosters::first([node(1), node(31)]);
        rosters.settled.number = number;
        rosters.next = next.then(|| Roster { number: number + 1, nodes: [node(1)].into() });
        Some(rosters)
    }

    #[test]
    fn what_was_written_last_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("not/there/yet");
        let disk = Disk::open(&state, "gw").unwrap();
        assert_eq!(disk.last().unwrap(), Durable::default());
        let with = |rosters| Durable { rosters, ..durable(9, 8) };
        for written in [
            durable(1, 0),
            durable(9, 7),
            durable(2047, u64::MAX / 4),
            with(rosters(0, true)),
            with(rosters(u64::MAX, false)),
            with(rosters(7, true)),
        ] {
            disk.write(&written).unwrap();
            assert_eq!(Disk::open(&state, "gw").unwrap().last().unwrap(), written);
        }
        assert_eq!(Disk::open(&state, "other").unwrap().last().unwrap(), Durable::default());
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), "gw").unwrap();
        for text in [
            "",
            "x",
            "7",
            "-1 0 0 0 0",
            "2048 0 0 0 0",
            "1 2 3 4 g",
            "1 2 3 4 5 6",
            "99999999999999999999",
            "1 2 3 4 5\n6",
            "1 2 3 4 5\nroster 1\n",
            "1 2 3 4 5\nroster x\n1 10.0.0.1\n",
            "1 2 3 4 5\nroster 1\n32 10.0.0.1\n",
            "1 2 3 4 5\nroster 1\n1 10.0.0\n",
            "1 2 3 4 5\nnext 1\n1 10.0.0.1\n",
            "1 2 3 4 5\nroster 1\n1 10.0.0.1\nnext 2\n",
            "1 2 3 4 5\nroster 1\n1 10.0.0.1\nmore\n",
        ] {
            fs::write(&disk.file, text).unwrap();
            let error = disk.last().unwrap_err().to_string();
            assert!(error.contains("expected the number of this node's last incarnation"), "{error}");
        }
    }

    #[test]
    fn an_incarnation_is_on_disk_before_anything_else_and_views_are_soon() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), "gw").unwrap();
        let mut writer = disk.clone().writer(Durable::default()).unwrap();
        assert_eq!(writer.write(durable(1, 1)).unwrap(), [durable(1, 1)]);
        assert_eq!(disk.last().unwrap(), durable(1, 1));
        assert_eq!(writer.write(durable(1, 2)).unwrap(), []);
        let begun = std::time::Instant::now();
        while writer.written().unwrap() != Some(durable(1, 2)) {
            // A busy disk takes its time to sync.
            assert!(begun.elapsed() < std::time::Duration::from_secs(120));
            thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(disk.last().unwrap(), durable(1, 2));
        assert_eq!(writer.written().unwrap(), None);
        // Never back.
        assert_eq!(writer.write(durable(3, 1)).unwrap(), [durable(3, 1)]);
        assert_eq!(disk.last().unwrap(), durable(3, 2));
    }

    #[test]
    fn an_error_shows_the_begin_of_a_long_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path(), "gw").unwrap();
        fs::write(&disk.file, "é".repeat(4096)).unwrap();
        let error = disk.last().unwrap_err().to_string();
        assert!(error.contains(&format!("found {:?}, expected", "é".repeat(MAX_SHOWN_CHARS))), "{error}");
    }
}
