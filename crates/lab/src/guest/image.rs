//! The kernel and the initial file system that a guest boots from, made once from Debian's packages and kept beside
//! the build's other results. Nothing of it is part of the sources.

use crate::command::Cmd;
use crate::sweep::remove_dir;
use crate::{Error, Lab, Result};
use aws_lc_rs::digest::{SHA256, digest};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// apt may have to fetch its lists first.
const BUILD_LIMIT: Duration = Duration::from_secs(300);

/// What the image is made by, and out of.
const FILES: [(&str, &str); 3] = [
    ("build.sh", include_str!("../../guest/build.sh")),
    ("init", include_str!("../../guest/init")),
    ("strongswan.conf", include_str!("../../guest/strongswan.conf")),
];
/// Packages of this host that are copied into it.
const PACKAGES: [&str; 7] = [
    "busybox-static",
    "dash",
    "iproute2",
    "kmod",
    "strongswan-charon",
    "strongswan-libcharon",
    "libstrongswan-extra-plugins",
];

/// A finished image.
#[derive(Debug)]
pub(crate) struct Image {
    dir: PathBuf,
}

impl Image {
    /// Path of the kernel.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Path of the initial file system.
    pub(crate) fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }
}

/// The image for this host as it is now. Nobody else makes it meanwhile.
pub(crate) fn get(lab: &Lab) -> Result<Image> {
    lab.must_be_alone("a guest")?;
    let store = store()?;
    let image = Image { dir: store.join(key()?) };
    if !image.initrd().exists() {
        // Those of former states serve nobody.
        remove_dir(&store)?;
        make_dir(&store)?;
        let work = lab.subdir("guest-image")?;
        build(&work)?;
        let copying = Error::io(format!("keep the guest's image in {}", image.dir.display()));
        make_dir(&image.dir)?;
        // The one that is looked for comes last.
        let copied = fs::copy(work.join("vmlinuz"), image.kernel())
            .and_then(|_| fs::copy(work.join("initrd"), image.dir.join("initrd.new")))
            .and_then(|_| fs::rename(image.dir.join("initrd.new"), image.initrd()));
        copied.map_err(copying)?;
    }
    Ok(image)
}

fn build(dir: &Path) -> Result<()> {
    for (name, text) in FILES {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
    }
    Cmd::new("bash").arg(dir.join("build.sh")).arg(dir).limit(BUILD_LIMIT).run().map(drop)
}

/// Changes with the files here and with the versions of what they copy.
fn key() -> Result<String> {
    let mut state =
        Cmd::new("dpkg-query").args(["-W", "-f", "${Package} ${Version}\n"]).args(PACKAGES).run()?.stdout;
    state.extend(FILES.map(|(_, text)| text));
    let digest = digest(&SHA256, state.as_bytes());
    Ok(digest.as_ref().iter().take(8).map(|octet| format!("{octet:02x}")).collect())
}

/// `target/guest`, found by where this program lies in `target`.
fn store() -> Result<PathBuf> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let profile = program.ancestors().find(|dir| dir.ends_with("debug") || dir.ends_with("release"));
    let target = profile.and_then(Path::parent);
    let found =
        || Error::unexpected("the path of this program", "target/PROFILE/...", program.display().to_string());
    Ok(target.ok_or_else(found)?.join("guest"))
}

fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))
}
