//! The kernel and the initial file system that a guest boots from, made once from Debian's
//! packages. Nothing of it is part of the sources.

use super::store::Store;
use crate::command::Cmd;
use crate::{Error, Lab, Result};
use aws_lc_rs::digest::{SHA256, digest};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// apt may have to fetch its lists first.
const BUILD_LIMIT: Duration = Duration::from_secs(300);

/// The files that build the image or are part of it.
const FILES: [(&str, &str); 6] = [
    ("build.sh", include_str!("../../guest/build.sh")),
    ("init", include_str!("../../guest/init")),
    ("ciphers", include_str!("../../guest/ciphers")),
    ("count", include_str!("../../guest/count")),
    ("wake", include_str!("../../guest/wake")),
    ("strongswan.conf", include_str!("../../guest/strongswan.conf")),
];
/// Packages of this host that are copied into the image.
const PACKAGES: [&str; 8] = [
    "busybox-static",
    "dash",
    "iproute2",
    "kmod",
    "perl-base",
    "strongswan-charon",
    "strongswan-libcharon",
    "libstrongswan-extra-plugins",
];

/// A finished image.
#[derive(Debug)]
pub(super) struct Image {
    dir: PathBuf,
}

impl Image {
    /// Path of the kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Path of the initial file system.
    pub(super) fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// The directory for files of this image only.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The image for the current state of this host.
    pub(super) fn get(store: &Store, lab: &Lab) -> Result<Self> {
        let image = Self { dir: store.path(&key()?) };
        if !image.initrd().exists() {
            // Images of earlier states of this host are not needed any more.
            store.clear()?;
            let work = lab.subdir("guest-image")?;
            build(&work)?;
            let copying = Error::io(format!("keep the guest's image in {}", image.dir.display()));
            // The file that marks a complete image is written last.
            let copied = fs::create_dir(&image.dir)
                .and_then(|()| fs::copy(work.join("vmlinuz"), image.kernel()))
                .and_then(|_| fs::copy(work.join("initrd"), image.dir.join("initrd.new")))
                .and_then(|_| fs::rename(image.dir.join("initrd.new"), image.initrd()));
            copied.map_err(copying)?;
        }
        Ok(image)
    }
}

fn build(dir: &Path) -> Result<()> {
    for (name, text) in FILES {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
    }
    Cmd::new("bash").arg(dir.join("build.sh")).arg(dir).limit(BUILD_LIMIT).run().map(drop)
}

/// Depends on the files here and on the versions of the copied packages.
fn key() -> Result<String> {
    let mut state =
        Cmd::new("dpkg-query").args(["-W", "-f", "${Package} ${Version}\n"]).args(PACKAGES).run()?.stdout;
    state.extend(FILES.map(|(_, text)| text));
    let digest = digest(&SHA256, state.as_bytes());
    Ok(digest.as_ref().iter().take(8).map(|octet| format!("{octet:02x}")).collect())
}
