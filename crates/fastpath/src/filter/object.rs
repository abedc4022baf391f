//! The compiled filter and its maps, loaded into the kernel.

use super::bpffs::PinDir;
use super::error::{FilterError, Result};
use super::layout::{HEAD_LEN, read_head};
use super::tables::{LocalTable, PortTable};
use crate::fib::PortIndex;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramMut};
use std::os::fd::{AsFd, BorrowedFd};
use testudo_ipsec::dataplane::Sample;

/// Aligns the ELF file, because its headers are read in place.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// Made by `build.rs` from `bpf/filter.bpf.c`.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/filter.bpf.o")));

const PROGRAM: &str = "testudo_filter";
const CLAIM: &str = "testudo_claim";
/// Runs for no packet: a measure for what a test run costs by itself.
const NOTHING: &str = "testudo_nothing";

/// A map of the filter.
#[derive(Debug)]
pub(super) struct FilterMap {
    name: &'static str,
    handle: MapHandle,
}

impl FilterMap {
    fn of(object: &Object, name: &'static str) -> Result<Self> {
        let map = object.maps().find(|m| m.name() == name).ok_or(FilterError::Missing { what: name })?;
        let handle = MapHandle::try_from(&map).map_err(|source| FilterError::Load { source })?;
        Ok(Self { name, handle })
    }

    /// Writes an entry.
    pub(super) fn set(&self, key: &[u8], value: &[u8], entry: &dyn std::fmt::Display) -> Result<()> {
        let written = self.handle.update(key, value, MapFlags::ANY);
        written.map_err(self.failed("cannot write", entry))
    }

    /// Reads an entry.
    pub(super) fn get(&self, key: &[u8], entry: &dyn std::fmt::Display) -> Result<Option<Vec<u8>>> {
        self.handle.lookup(key, MapFlags::ANY).map_err(self.failed("cannot read", entry))
    }

    /// Reads the values of all processors.
    pub(super) fn get_per_cpu(&self, key: &[u8], entry: &dyn std::fmt::Display) -> Result<Vec<Vec<u8>>> {
        let values = self.handle.lookup_percpu(key, MapFlags::ANY);
        Ok(values.map_err(self.failed("cannot read", entry))?.unwrap_or_default())
    }

    /// Writes the values of all processors.
    pub(super) fn set_per_cpu(
        &self,
        key: &[u8],
        values: &[Vec<u8>],
        entry: &dyn std::fmt::Display,
    ) -> Result<()> {
        let written = self.handle.update_percpu(key, values, MapFlags::ANY);
        written.map_err(self.failed("cannot write", entry))
    }

    /// Removes an entry, if it exists.
    pub(super) fn remove(&self, key: &[u8], entry: &dyn std::fmt::Display) -> Result<()> {
        match self.handle.delete(key) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(self.failed("cannot remove", entry)(e))
            }
            _ => Ok(()),
        }
    }

    /// The descriptor of the map.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        self.handle.keys().collect()
    }

    fn failed(
        &self,
        operation: &'static str,
        entry: &dyn std::fmt::Display,
    ) -> impl FnOnce(libbpf_rs::Error) -> FilterError {
        let (map, entry) = (self.name, entry.to_string());
        move |source| FilterError::Map { map, operation, entry, source }
    }
}

/// The loaded filter.
#[derive(Debug)]
pub(super) struct Loaded {
    object: Object,
    pub(super) layout: FilterMap,
    pub(super) ports: PortTable,
    pub(super) local: LocalTable,
    pub(super) prefixes4: FilterMap,
    pub(super) prefixes6: FilterMap,
    pub(super) cluster: FilterMap,
    pub(super) seen: FilterMap,
    pub(super) clocks: FilterMap,
    pub(super) sessions: FilterMap,
    pub(super) dropped: FilterMap,
    pub(super) clear_heads: FilterMap,
    pub(super) sockets: FilterMap,
    pub(super) counters: FilterMap,
}

impl Loaded {
    /// Loads the filter with the pinned maps, and pins those that are new.
    pub(super) fn pinned(pins: &PinDir) -> Result<Self> {
        Self::load(Some(pins))
    }

    /// Loads the filter with maps of its own, which end with it.
    #[cfg(test)]
    pub(super) fn unpinned() -> Result<Self> {
        Self::load(None)
    }

    fn load(pins: Option<&PinDir>) -> Result<Self> {
        log_messages();
        let object = open_object(pins).and_then(libbpf_rs::OpenObject::load);
        let object = object.map_err(|source| FilterError::Load { source })?;
        let map = |name| FilterMap::of(&object, name);
        Ok(Self {
            layout: map("layout")?,
            ports: PortTable::new(map("ports")?, map("low_ports")?),
            local: LocalTable::new([map("local4")?, map("local6")?], [map("slots4")?, map("slots6")?])?,
            prefixes4: map("prefixes4")?,
            prefixes6: map("prefixes6")?,
            cluster: map("cluster")?,
            seen: map("seen")?,
            clocks: map("clocks")?,
            sessions: map("sessions")?,
            dropped: map("dropped")?,
            clear_heads: map("clear_heads")?,
            sockets: map("xsks")?,
            counters: map("counters")?,
            object,
        })
    }

    /// The program.
    pub(super) fn program(&self) -> Result<ProgramMut<'_>> {
        self.named(PROGRAM)
    }

    /// See [`super::Filter::take_clear`].
    pub(super) fn take_clear(&self, port: PortIndex) -> Result<Vec<Sample>> {
        let key = u32::from(port.0).to_ne_bytes();
        let heads = self.clear_heads.get_per_cpu(&key, &"of a clear packet")?;
        let samples: Vec<Sample> = heads.iter().filter_map(|head| read_head(head)).collect();
        if !samples.is_empty() {
            let empty = vec![vec![0; HEAD_LEN]; heads.len()];
            self.clear_heads.set_per_cpu(&key, &empty, &"of a clear packet")?;
        }
        Ok(samples)
    }

    fn named(&self, name: &'static str) -> Result<ProgramMut<'_>> {
        self.object.progs_mut().find(|p| p.name() == name).ok_or(FilterError::Missing { what: name })
    }

    /// Calls `f` with the descriptor of the program that runs behind the filter.
    pub(super) fn with_claim<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Result<R> {
        let program = self.named(CLAIM)?;
        Ok(f(program.as_fd()))
    }

    /// Calls `f` with the filter's descriptor.
    pub(super) fn with_program<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Result<R> {
        let program = self.program()?;
        Ok(f(program.as_fd()))
    }
}

/// Loads only the program that does nothing, and calls `f` with it.
pub(super) fn with_nothing<R>(f: impl FnOnce(ProgramMut<'_>) -> libbpf_rs::Result<R>) -> Result<R> {
    log_messages();
    let mut object = open_object(None).map_err(|source| FilterError::Load { source })?;
    object.progs_mut().for_each(|mut program| {
        let is_wanted = program.name() == NOTHING;
        program.set_autoload(is_wanted);
    });
    let object = object.load().map_err(|source| FilterError::Load { source })?;
    let program = object.progs_mut().find(|program| program.name() == NOTHING);
    f(program.ok_or(FilterError::Missing { what: NOTHING })?).map_err(|source| FilterError::Run { source })
}

/// Without this libbpf writes to standard error.
fn log_messages() {
    libbpf_rs::set_print(Some((PrintLevel::Info, |level, text| match level {
        PrintLevel::Warn => tracing::warn!("{}", text.trim_end()),
        _ => tracing::debug!("{}", text.trim_end()),
    })));
}

fn open_object(pins: Option<&PinDir>) -> libbpf_rs::Result<libbpf_rs::OpenObject> {
    let mut object = ObjectBuilder::default().name("testudo")?.open_memory(&OBJECT.0)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        // The compiler's constants (.rodata) belong to the program, not to the state that outlives
        // it.
        if let Some(pins) = pins.filter(|_| !name.contains('.')) {
            map.set_pin_path(pins.map(&name))?;
        }
    }
    Ok(object)
}
