//! PEM around DER (RFC 7468): `swanctl` sends files as they are.

use super::error::CertError;
use zeroize::Zeroizing;

/// Precedes the label of a block.
const BEGIN: &[u8] = b"-----BEGIN ";
/// Precedes the label again, behind the content.
const END: &[u8] = b"-----END ";
/// More than any file that is loaded; CRLs are the largest.
const LIMIT: usize = 1 << 24;

/// Octets of the block at the start, including its last line.
fn length(block: &[u8]) -> usize {
    let end = block.windows(END.len()).position(|window| window == END).unwrap_or(block.len());
    let line = block.get(end..).unwrap_or_default().iter().position(|octet| *octet == b'\n');
    line.map_or(block.len(), |line| end + line + 1)
}

/// The DER in `data`: as it is, or from the first PEM block with one of the labels. Other blocks
/// before it are skipped, such as the parameters of a curve. The result may be a key, so it is
/// wiped.
pub(super) fn decode(
    data: &[u8],
    labels: &[&str],
    expected: &'static str,
) -> Result<Zeroizing<Vec<u8>>, CertError> {
    if data.len() > LIMIT {
        return Err(CertError::TooLarge { what: "file", found: data.len(), limit: LIMIT });
    }
    let mut rest = data;
    let mut found = None;
    while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
        let from = rest.get(at..).unwrap_or_default();
        let (block, behind) = from.split_at_checked(length(from)).unwrap_or((from, &[]));
        rest = behind;
        let label = pem_rfc7468::decode_label(block).map_err(|error| CertError::malformed("PEM", error))?;
        if labels.contains(&label) {
            let (_, der) =
                pem_rfc7468::decode_vec(block).map_err(|error| CertError::malformed("PEM", error))?;
            return Ok(Zeroizing::new(der));
        }
        found.get_or_insert_with(|| label.to_owned());
    }
    match found {
        Some(found) => Err(CertError::Label { found, expected }),
        None => Ok(Zeroizing::new(data.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_larger_than_any_are_refused() {
        let decoded = |octets: usize| decode(&vec![0; octets], &["CERTIFICATE"], "CERTIFICATE").map(|_| ());
        let refused = CertError::TooLarge { what: "file", found: LIMIT + 1, limit: LIMIT };
        assert_eq!((decoded(LIMIT), decoded(LIMIT + 1)), (Ok(()), Err(refused)));
    }
}
