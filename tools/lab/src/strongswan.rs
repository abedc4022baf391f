//! strongSwan as a peer: charon in a namespace, with ESP in user space, so that it works on kernels
//! without ESP.
//!
//! Its `kernel-libipsec` always encapsulates in UDP, has no extended sequence numbers, and a fixed
//! replay window of 128 packets.

use crate::charon_keys;
use crate::cpu::CpuTime;
use crate::memory::Needle;
use crate::namespace::write_private;
use crate::process::Process;
use crate::swanctl::Swanctl;
use crate::{Error, Namespace, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHARON: &str = "/usr/lib/ipsec/charon";
const START_LIMIT: Duration = Duration::from_secs(120);

/// `kernel-libipsec` must precede `kernel-netlink`, and needs it.
const PLUGINS: &str = "random nonce openssl aesni gcm aes sha1 sha2 hmac kdf ccm ctr chapoly cmac drbg xcbc x509 pubkey \
    pkcs1 pkcs8 pem revocation constraints curve25519 gmp mgf1 kernel-libipsec kernel-netlink socket-default vici \
    updown counters";

/// Log settings: keys are logged by the groups of IKE and Child SAs at the highest level.
const KEYS: &str = "            ike = 4\n            chd = 4\n";

/// A running charon.
#[derive(Debug)]
pub struct Strongswan {
    process: Process,
    swanctl: Swanctl,
    settings: PathBuf,
    socket: PathBuf,
}

impl Strongswan {
    /// Starts charon in the namespace and waits until it answers.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-charon", namespace.role()))?;
        let socket = dir.join("vici.sock");
        let settings = dir.join("strongswan.conf");
        write_private(&settings, &settings_text(&socket, "", ""))?;
        let charon = unconfined(CHARON, &dir)?;
        // The path of charon's pid file is compiled in: each instance has its own /run.
        let script = "mount -t tmpfs tmpfs /run && exec \"$0\"";
        let cmd = namespace
            .cmd("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", script])
            .arg(&charon)
            .env("STRONGSWAN_CONF", &settings);
        let mut process = namespace.start("charon", cmd)?;
        let swanctl = Swanctl::new(namespace, &dir, &socket)?;
        process.wait_ready(START_LIMIT, || swanctl.is_served())?;
        Ok(Self { process, swanctl, settings, socket })
    }

    /// From now on it logs the keys of all new SAs.
    pub fn log_keys(&self) -> Result<()> {
        self.set(&settings_text(&self.socket, "", KEYS))
    }

    /// From now on it has no digital signatures (RFC 7427).
    pub fn forget_digital_signatures(&self) -> Result<()> {
        self.set(&settings_text(&self.socket, "    signature_authentication = no\n", ""))
    }

    fn set(&self, text: &str) -> Result<()> {
        write_private(&self.settings, text)?;
        self.swanctl.run(["--reload-settings"]).map(drop)
    }

    /// The keys that it has logged since [`Strongswan::log_keys`], with charon's names.
    pub fn keys(&self) -> Result<Vec<Needle>> {
        charon_keys::parse(&self.log()?)
    }

    /// A swanctl for it.
    pub fn swanctl(&self) -> &Swanctl {
        &self.swanctl
    }

    /// The daemon's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// CPU time that it has used.
    pub fn cpu(&self) -> Result<CpuTime> {
        self.process.cpu()
    }

    /// Packets that it has refused because their sequence numbers are behind the window of their
    /// SA, or came before.
    pub fn replays(&self) -> Result<u64> {
        let refused = "ESP sequence number verification failed";
        Ok(self.log()?.matches(refused).count() as u64)
    }

    /// Its log.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }
}

fn settings_text(socket: &Path, more: &str, levels: &str) -> String {
    format!(
        "charon {{
    load = {PLUGINS}
{more}    # A request is repeated soon, and given up after 48 s: a cluster may be busy with a takeover for a while, and the machine with
    # other labs.
    retransmit_timeout = 1.0
    retransmit_base = 1.2
    retransmit_tries = 12
    # A NAT is reminded within the time of a test.
    keep_alive = 2s
    # It would take the tunnel down before it reauthenticates.
    make_before_break = yes
    filelog {{
        stderr {{
            default = 1
{levels}            ike_name = yes
            flush_line = yes
        }}
    }}
    plugins {{
        vici {{
            socket = unix://{socket}
        }}
        kernel-libipsec {{
            allow_peer_ts = no
        }}
        updown {{
            dns_handler = no
        }}
    }}
}}
",
        socket = socket.display(),
    )
}

/// If AppArmor confines a program of strongSwan to its usual paths, a copy in the lab's directory
/// is unconfined, because profiles are bound to paths.
pub(crate) fn unconfined(program: &str, dir: &Path) -> Result<PathBuf> {
    let profiles = fs::read_to_string("/sys/kernel/security/apparmor/profiles").unwrap_or_default();
    if !Path::new(program).exists() {
        return Err(Error::Missing { program: program.to_owned() });
    }
    if !is_confined(&profiles, program) {
        return Ok(program.into());
    }
    let name = Path::new(program).file_name().unwrap_or_default();
    let copy = dir.join(name);
    fs::copy(program, &copy).map_err(Error::io(format!("copy {program} to {}", copy.display())))?;
    Ok(copy)
}

fn is_confined(profiles: &str, program: &str) -> bool {
    profiles.lines().any(|line| line.split_ascii_whitespace().next() == Some(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_profile_of_the_program_itself_confines() {
        let profiles = "/usr/lib/ipsec/charon (enforce)\n/usr/lib/ipsec/charon//child (enforce)\n";
        assert!(is_confined(profiles, CHARON));
        assert!(!is_confined(profiles, "/usr/sbin/swanctl"));
    }
}
