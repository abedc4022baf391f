//! Many packets in one call, each with its own keys.

use super::{Schedule, SeparateAlgorithm, SeparateKey};
use crate::aws_lc;
#[cfg(ipsec_mb)]
use crate::ipsec_mb::multi;
use crate::library::Library;
use zeroize::Zeroize;

/// Bound on the packets of one call of the library.
pub(crate) const MAX_BURST_JOBS: usize = 64;

/// A packet to protect, or to verify and decrypt.
#[derive(Debug)]
pub struct SeparateJob<'a> {
    /// The keys.
    pub key: &'a SeparateKey,
    /// The packet from ESP's header to the ICV. For sealing, the IV's place holds a nonce that was
    /// never used with this key: its encryption becomes the IV, which nobody can predict (RFC 3602
    /// §3, NIST SP 800-38A appendix C).
    pub packet: &'a mut [u8],
    /// The upper half of an extended sequence number: authenticated behind the text, and not sent
    /// (RFC 4303 §2.2.1).
    pub high: Option<u32>,
    /// The result: whether the packet is sealed, or authentic. False until the burst has been
    /// processed.
    pub ok: bool,
}

/// The direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Seal,
    Open,
}

/// Encrypts every job's text and writes its IV and its ICV. A packet that cannot be sealed, because
/// its text does not fill blocks, is overwritten with zeros, which no receiver accepts.
pub fn seal_separate_burst(jobs: &mut [SeparateJob<'_>]) {
    work(jobs, Operation::Seal);
}

/// Verifies every job's packet, and decrypts the authentic ones. The text of the others becomes all
/// zeros.
pub fn open_separate_burst(jobs: &mut [SeparateJob<'_>]) {
    work(jobs, Operation::Open);
}

/// The jobs of a part whose bits are set.
pub(crate) fn picked_of<J>(part: &mut [J], picked: u64) -> impl Iterator<Item = &mut J> {
    part.iter_mut()
        .take(MAX_BURST_JOBS)
        .enumerate()
        .filter(move |(at, _)| picked >> at & 1 == 1)
        .map(|(_, job)| job)
}

fn work(jobs: &mut [SeparateJob<'_>], operation: Operation) {
    for part in jobs.chunks_mut(MAX_BURST_JOBS) {
        let mut left: u64 = 0;
        for (at, job) in part.iter_mut().enumerate() {
            job.ok = false;
            match (job.icv_at(), job.key.is_expanded()) {
                (None, _) => {}
                (Some(_), true) => left |= 1 << at,
                (Some(icv_at), false) => alone(job, icv_at, operation),
            }
        }
        // Jobs with the same algorithms are processed side by side.
        while let Some(first) = part.get(left.trailing_zeros() as usize) {
            let kind = first.kind();
            let same = part.iter().enumerate().filter(|(_, job)| job.kind() == kind);
            let picked = same.fold(0, |picked, (at, _)| picked | 1 << at) & left;
            left &= !picked;
            let (library, algorithm) = kind;
            together(part, picked, library, algorithm, operation);
        }
        part.iter_mut().filter(|job| !job.ok).for_each(|job| job.wipe(operation));
    }
}

/// Processes the jobs of a part whose bits are set: all have expanded keys of this kind.
fn together(
    part: &mut [SeparateJob<'_>],
    picked: u64,
    library: Library,
    algorithm: SeparateAlgorithm,
    operation: Operation,
) {
    match library {
        #[cfg(ipsec_mb)]
        Library::IpsecMb => multi::work(part, picked, algorithm, operation, None),
        #[cfg(not(ipsec_mb))]
        Library::IpsecMb => {}
        Library::AwsLc => {
            for job in picked_of(part, picked) {
                if let (Some(Schedule::AwsLc(schedule)), Some(icv_at)) =
                    (job.key.schedule.get(), algorithm.icv_at(job.packet.len()))
                {
                    one(schedule, job, icv_at, operation);
                }
            }
        }
    }
}

fn one(
    schedule: &aws_lc::separate::Schedule,
    job: &mut SeparateJob<'_>,
    icv_at: usize,
    operation: Operation,
) {
    job.ok = match operation {
        Operation::Seal => schedule.seal(job, icv_at),
        Operation::Open => schedule.open(job, icv_at),
    };
}

/// Processes a job with schedules made for this packet.
#[cold]
fn alone(job: &mut SeparateJob<'_>, icv_at: usize, operation: Operation) {
    let (algorithm, (cipher_key, mac_key)) = (job.key.algorithm, job.key.octets());
    match job.key.library {
        #[cfg(ipsec_mb)]
        Library::IpsecMb => {
            if let Ok(schedule) = multi::Schedule::new(algorithm, cipher_key, mac_key) {
                multi::work(std::slice::from_mut(job), 1, algorithm, operation, Some(&schedule));
            }
        }
        #[cfg(not(ipsec_mb))]
        Library::IpsecMb => {}
        Library::AwsLc => {
            if let Ok(schedule) = aws_lc::separate::Schedule::new(algorithm, cipher_key, mac_key) {
                one(&schedule, job, icv_at, operation);
            }
        }
    }
}

impl SeparateJob<'_> {
    fn kind(&self) -> (Library, SeparateAlgorithm) {
        (self.key.library, self.key.algorithm)
    }

    #[inline]
    pub(crate) fn icv_at(&self) -> Option<usize> {
        self.key.algorithm.icv_at(self.packet.len())
    }

    #[cold]
    fn wipe(&mut self, operation: Operation) {
        let algorithm = self.key.algorithm;
        let (from, behind) = match operation {
            Operation::Seal => (0, 0),
            Operation::Open => (algorithm.before_text(), algorithm.mac.icv_len()),
        };
        let end = self.packet.len().saturating_sub(behind);
        self.packet.get_mut(from..end).unwrap_or_default().zeroize();
    }
}
