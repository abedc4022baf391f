//! The ways in which an initiator may be authenticated, and their results: apart from its IKE SA,
//! because the work takes long.

use super::choose::Candidates;
use super::error::AuthError;
use super::ppk::PeerPpk;
use super::prove::{Proof, Prover};
use super::verify::{Check, Evidence, Judge, Proven};
use crate::output::Reason;
use crate::suite::IkeKeys;

/// One way in which an initiator may be authenticated, and our answer to it.
pub(super) struct Try {
    pub(super) candidates: Candidates,
    pub(super) ppk: PeerPpk,
    /// `None`: it has nothing more to prove.
    pub(super) check: Option<Check>,
    /// `None`: we have nothing more to prove.
    pub(super) prover: Option<Prover>,
}

/// All such ways, the best first; or why there is none.
pub(super) struct Tries {
    pub(super) list: Vec<Result<Try, AuthError>>,
    /// The error if there is none.
    pub(super) nobody: AuthError,
    pub(super) judge: Judge,
    /// Our keys without a PPK.
    pub(super) keys: IkeKeys,
}

/// An authentic initiator.
pub(super) struct Authenticated {
    pub(super) candidates: Candidates,
    pub(super) ppk: PeerPpk,
    pub(super) proven: Option<Proven>,
    /// Our proof.
    pub(super) proof: Option<Result<Proof, Reason>>,
}

impl Tries {
    /// True if it takes long.
    pub(super) fn has_signatures(&self) -> bool {
        let signs = |one: &Try| {
            one.check.as_ref().is_some_and(Check::is_signature)
                || one.prover.as_ref().is_some_and(Prover::signs)
        };
        self.list.iter().flatten().any(signs)
    }

    /// The first way that succeeds; otherwise the reason why the best one did not.
    pub(super) fn judge(self) -> Result<Authenticated, AuthError> {
        let Self { list, nobody, judge, keys } = self;
        let evidence = Evidence::default();
        let mut failure = None;
        for one in list {
            let checked = one.and_then(|Try { candidates, ppk, check, prover }| {
                let proven = check.map(|check| check.decide(&judge, &evidence)).transpose()?;
                let keys = ppk.keys.as_ref().unwrap_or(&keys);
                let proof = prover.map(|prover| prover.prove(keys));
                Ok(Authenticated { candidates, ppk, proven, proof })
            });
            match checked {
                Ok(authenticated) => return Ok(authenticated),
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        Err(failure.unwrap_or(nobody))
    }
}
