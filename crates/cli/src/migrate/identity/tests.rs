use super::super::channel::samples::{flow, sa};
use super::*;

fn found(text: &str) -> Result<String, Refusal> {
    let file = Path::new("m.toml");
    let policy = Policy::parse(file, text).map_err(PolicyError::from);
    expected(&policy, file, flow(), &sa(1), &sa(2))
}

fn host(address: &str, identities: &str) -> String {
    format!("[[host]]\naddress = \"{address}\"\nidentities = [{identities}]\n")
}

#[test]
fn a_host_has_one_of_its_identities() {
    let [source, destination] = ["192.0.2.1", "192.0.2.2"];
    assert_eq!(
        found("").unwrap(),
        "host1 (192.0.2.1, the policy expects none) and host2 (192.0.2.2, the policy expects none)"
    );
    let one = host(destination, "\"former\", \"host2\"");
    let half = "host1 (192.0.2.1, the policy expects none) and host2 (192.0.2.2, as the policy expects)";
    assert_eq!(found(&one).unwrap(), half);
    let both = host(source, "\"host1\"") + &one;
    let whole = "host1 (192.0.2.1, as the policy expects) and host2 (192.0.2.2, as the policy expects)";
    assert_eq!(found(&both).unwrap(), whole);

    let refused = |text: &str| found(text).unwrap_err().found;
    let wrong = "192.0.2.2 has authenticated as \"host2\", m.toml:4 expects \"Host2\" or \"host\"";
    let other = host(destination, "\"Host2\", \"host\"");
    assert_eq!(refused(&(host(source, "\"host1\"") + &other)), wrong);
    let two = "192.0.2.1 has authenticated as \"host1\", m.toml:1 expects \"host2\"; ".to_owned() + wrong;
    assert_eq!(refused(&(host(source, "\"host2\"") + &other)), two);
}

/// The other end of the SA has verified an identity, and counts.
#[test]
fn a_host_that_names_itself_does_not_count() {
    let policy = Policy::parse(Path::new("m.toml"), &host("192.0.2.1", "\"host1\"")).unwrap();
    let mut claims = sa(1);
    claims.local.identity = "host1".to_owned();
    let mut verified = sa(2);
    verified.remote.identity = "mallory".to_owned();
    let refused = expected(&Ok(policy), Path::new("m.toml"), flow(), &claims, &verified).unwrap_err();
    assert!(refused.found.contains("authenticated as \"mallory\""), "{}", refused.found);
}

#[test]
fn without_a_policy_it_is_not_known_whom_it_expects() {
    let refused = found("[[host]]\n").unwrap_err();
    let expected =
        "host1 (192.0.2.1) and host2 (192.0.2.2), and whom the policy expects is not known: m.toml:1: ";
    assert!(refused.found.starts_with(expected), "{}", refused.found);
}
