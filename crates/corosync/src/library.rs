//! Loads the libraries.

use crate::error::Error;
use crate::ffi::Functions;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::CStr;
use std::sync::OnceLock;

/// A library by its soname, and Debian's package that has it.
#[derive(Clone, Copy, Debug)]
struct Named {
    file: &'static str,
    package: &'static str,
}

const CPG: Named = Named { file: "libcpg.so.4", package: "libcpg4" };
const QUORUM: Named = Named { file: "libquorum.so.5", package: "libquorum5" };
const VOTEQUORUM: Named = Named { file: "libvotequorum.so.8", package: "libvotequorum8" };
const CMAP: Named = Named { file: "libcmap.so.4", package: "libcmap4" };

static LOADED: OnceLock<Functions> = OnceLock::new();

/// Corosync's libraries, loaded. They stay so until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Libraries(pub(crate) &'static Functions);

impl Libraries {
    /// Loads what is not loaded yet.
    pub fn load() -> Result<Self, Error> {
        if let Some(functions) = LOADED.get() {
            return Ok(Self(functions));
        }
        let functions = Functions::load([CPG, QUORUM, VOTEQUORUM, CMAP])?;
        Ok(Self(LOADED.get_or_init(|| functions)))
    }
}

impl Functions {
    fn load([cpg, quorum, votes, map]: [Named; 4]) -> Result<Self, Error> {
        let (cpg, quorum) = (Loaded::open(cpg)?, Loaded::open(quorum)?);
        let (votes, map) = (Loaded::open(votes)?, Loaded::open(map)?);
        // SAFETY: each field has the type that corosync's header gives to the function of its name;
        // the C compiler compares them (ffi/tests.rs).
        unsafe {
            Ok(Self {
                cpg_model_initialize: cpg.function(c"cpg_model_initialize")?,
                cpg_local_get: cpg.function(c"cpg_local_get")?,
                cpg_fd_get: cpg.function(c"cpg_fd_get")?,
                cpg_join: cpg.function(c"cpg_join")?,
                cpg_mcast_joined: cpg.function(c"cpg_mcast_joined")?,
                cpg_dispatch: cpg.function(c"cpg_dispatch")?,
                cpg_finalize: cpg.function(c"cpg_finalize")?,
                quorum_model_initialize: quorum.function(c"quorum_model_initialize")?,
                quorum_trackstart: quorum.function(c"quorum_trackstart")?,
                quorum_fd_get: quorum.function(c"quorum_fd_get")?,
                quorum_dispatch: quorum.function(c"quorum_dispatch")?,
                quorum_finalize: quorum.function(c"quorum_finalize")?,
                votequorum_initialize: votes.function(c"votequorum_initialize")?,
                votequorum_getinfo: votes.function(c"votequorum_getinfo")?,
                votequorum_finalize: votes.function(c"votequorum_finalize")?,
                cmap_initialize: map.function(c"cmap_initialize")?,
                cmap_get_uint32: map.function(c"cmap_get_uint32")?,
                cmap_finalize: map.function(c"cmap_finalize")?,
            })
        }
    }
}

/// A library that is loaded and never unloaded, so that the addresses of its functions stay valid.
struct Loaded {
    named: Named,
    library: &'static Library,
}

impl Loaded {
    fn open(named: Named) -> Result<Self, Error> {
        // SAFETY: corosync's libraries, and libqb below them, do nothing when they are loaded, so
        // they demand nothing of the program.
        // RTLD_NOW: a library that does not fit those that it needs fails here, not in a call.
        let opened = unsafe { Library::open(Some(named.file), RTLD_NOW | RTLD_LOCAL) };
        match opened {
            Ok(library) => Ok(Self { named, library: Box::leak(Box::new(library)) }),
            Err(error) => {
                Err(Error::Library { file: named.file, package: named.package, reason: words(&error) })
            }
        }
    }

    /// The address of a function.
    ///
    /// # Safety
    ///
    /// `F` must be a pointer to a function of that function's type.
    unsafe fn function<F: Copy>(&self, name: &'static CStr) -> Result<F, Error> {
        // SAFETY: the caller vouches for the type.
        let found = unsafe { self.library.get::<F>(name) };
        match found {
            Ok(symbol) => Ok(*symbol),
            Err(error) => Err(Error::Function {
                file: self.named.file,
                package: self.named.package,
                function: name.to_str().unwrap_or_default(),
                reason: words(&error),
            }),
        }
    }
}

/// What the dynamic linker said.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_its_package() {
        for missing in 0..4 {
            let mut wanted = [CPG, QUORUM, VOTEQUORUM, CMAP];
            wanted[missing].file = "libnothing.so.9";
            let expected = format!(
                "cannot load corosync's library libnothing.so.9: libnothing.so.9: cannot open shared object file: No such file \
                 or directory; install Debian's package {}, which comes with corosync",
                wanted[missing].package
            );
            assert_eq!(Functions::load(wanted).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_function_that_is_missing_is_named_with_its_library() {
        let libc = Named { file: "libc.so.6", ..CPG };
        let error = Functions::load([libc, QUORUM, VOTEQUORUM, CMAP]).unwrap_err().to_string();
        assert!(
            error.starts_with("corosync's library libc.so.6 has no function cpg_model_initialize ("),
            "{error}"
        );
        assert!(error.contains("undefined symbol: cpg_model_initialize"), "{error}");
        assert!(error.ends_with("; install package libcpg4 of corosync 3.1 or later"), "{error}");
    }

    #[test]
    fn libraries_are_loaded_once() {
        let (first, second) = (Libraries::load().unwrap(), Libraries::load().unwrap());
        assert!(std::ptr::eq(first.0, second.0));
    }
}
