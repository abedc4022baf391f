//! A connection to corosync's map of settings (CMAP), for the nodes of corosync.conf.

use crate::error::{Error, Status};
use crate::ffi::{Functions, Handle};
use crate::library::Libraries;
use std::ffi::CString;
use std::marker::PhantomData;

/// A connection, which ends when it is dropped. It is only asked, and tells nothing by itself.
#[derive(Debug)]
pub struct Map {
    functions: &'static Functions,
    handle: Handle,
    /// As the other connections.
    _of_one_thread: PhantomData<*const ()>,
}

impl Map {
    /// Connects to the corosync of the calling thread's network namespace.
    pub fn connect(libraries: Libraries) -> Result<Self, Error> {
        let functions = libraries.0;
        let mut handle = 0;
        // SAFETY: the library writes the handle within the call.
        Status::check(unsafe { (functions.cmap_initialize)(&mut handle) })?;
        Ok(Self { functions, handle, _of_one_thread: PhantomData })
    }

    /// The nodes of the `nodelist` that this daemon has read, at its start or when it was last told
    /// to read corosync.conf again.
    pub fn nodes(&self) -> Result<Vec<u32>, Error> {
        let mut nodes = Vec::new();
        // The entries are numbered from 0, without a gap.
        loop {
            match self.number(&format!("nodelist.node.{}.nodeid", nodes.len())) {
                Ok(node) => nodes.push(node),
                Err(Error::Call(Status::NOT_EXIST)) => return Ok(nodes),
                Err(error) => return Err(error),
            }
        }
    }

    fn number(&self, key: &str) -> Result<u32, Error> {
        let key = CString::new(key).map_err(|_| Error::Call(Status::NOT_EXIST))?;
        let mut number = 0;
        // SAFETY: the key ends with NUL, and the library writes one number within the call.
        Status::check(unsafe { (self.functions.cmap_get_uint32)(self.handle, key.as_ptr(), &mut number) })?;
        Ok(number)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle afterwards.
        let _gone_before = unsafe { (self.functions.cmap_finalize)(self.handle) };
    }
}
