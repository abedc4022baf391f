use super::*;

const GOOD: &str = "\
# operators
[[allow]]
user = \"alice\"
vm = \"*\"
to = [\"192.0.2.0/24\", \"2001:db8::2\"]
actions = [\"migrate\", \"terminate\"]

[[allow]]
user = \"1001\"
vm = \"web1\"
to = [\"192.0.2.2\"]
actions = [\"migrate\"]

[[host]]
address = \"192.0.2.2\"
identities = [\"b.example.org\", \"old-b.example.org\"]

[[host]]
address = \"2001:db8::2\"
identities = [\"CN=b, O=Example\"]
";

fn parse(text: &str) -> Result<Policy, KeyError> {
    Policy::parse(Path::new("m.toml"), text)
}

fn caller(uid: u32, name: &str) -> Caller {
    Caller { uid, name: Some(name.to_owned()) }
}

#[test]
fn only_what_a_rule_says_is_allowed() {
    let policy = parse(GOOD).unwrap();
    let (alice, bob, carol) = (caller(1000, "alice"), caller(1001, "bob"), caller(1002, "carol"));
    let near: Option<IpAddr> = Some("192.0.2.2".parse().unwrap());
    let far = Some("198.51.100.2".parse().unwrap());
    let (migrate, terminate) = (Action::Migrate, Action::Terminate);
    for (caller, vm, action, to, line) in [
        (&alice, "web1", migrate, near, Some(2)),
        (&alice, "db", migrate, Some("2001:db8::2".parse().unwrap()), Some(2)),
        (&alice, "db", terminate, None, Some(2)),
        (&alice, "db", migrate, far, None),
        (&alice, "db", migrate, Some("2001:db8::3".parse().unwrap()), None),
        (&bob, "web1", migrate, near, Some(8)),
        (&bob, "db", migrate, near, None),
        (&bob, "web1", terminate, None, None),
        (&carol, "web1", migrate, near, None),
    ] {
        let request = Request { caller, vm, action, to };
        assert_eq!(policy.line_that_allows(request), line, "{request:?}");
    }
    let nameless = Caller { uid: 1001, name: None };
    let request = Request { caller: &nameless, vm: "web1", action: migrate, to: near };
    assert_eq!(policy.line_that_allows(request), Some(8));
}

#[test]
fn hosts_have_the_identities_that_are_listed() {
    let policy = parse(GOOD).unwrap();
    let host = |address: &str| {
        let host = policy.host(address.parse().unwrap())?;
        Some((host.line, host.identities.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    assert_eq!(host("192.0.2.2"), Some((14, vec!["b.example.org", "old-b.example.org"])));
    assert_eq!(host("2001:db8::2"), Some((18, vec!["CN=b, O=Example"])));
    assert_eq!(host("192.0.2.3"), None);
}

#[test]
fn a_wrong_key_is_refused_with_its_place() {
    for (change, complaint) in [
        (("vm = \"*\"", "machine = \"*\""), "4: allow[0].machine: found an unknown key, expected one of"),
        (("vm = \"*\"\n", ""), "2: allow[0].vm: found nothing, expected the name of a virtual machine"),
        (("user = \"1001\"", "user = 1001"), "9: allow[1].user: found 1001, expected the name or number"),
        (("\"192.0.2.0/24\"", "\"192.0.2\""), "5: allow[0].to: found \"192.0.2\", expected an array of"),
        (("[\"192.0.2.2\"]", "\"192.0.2.2\""), "11: allow[1].to: found \"192.0.2.2\", expected an array"),
        (("\"terminate\"", "\"stop\""), "6: allow[0].actions: found \"stop\", expected an array of"),
        (("# operators", "deny = 1"), "1: deny: found an unknown key, expected allow or host"),
        (("# operators", "allow"), "1: (syntax): found something else, expected valid TOML"),
        (("[[allow]]", "[allow]"), "expected"),
        (
            ("\"2001:db8::2\"\n", "\"2001:db8::/64\"\n"),
            "19: host[1].address: found \"2001:db8::/64\", expected an",
        ),
        (
            ("\"2001:db8::2\"\n", "\"192.0.2.2\"\n"),
            "19: host[1].address: found \"192.0.2.2\", expected an IPv4 or IPv6 address",
        ),
        (("[\"CN=b, O=Example\"]", "[]"), "20: host[1].identities: found an array, expected an array of id"),
        (("CN=b, O", "CN=M\u{fc}ller, O"), "20: host[1].identities: found"),
        (("CN=b, O", "CN=M?ller, O"), "20: host[1].identities: found"),
        (("[\"CN=b, O=Example\"]", "[\"\"]"), "20: host[1].identities: found \"\", expected an array of id"),
        (("\"old-b.example.org\"", "7"), "16: host[0].identities: found 7, expected an array of identities"),
        (("identities", "identity"), "16: host[0].identity: found an unknown key, expected one of"),
        (("identities = [\"CN=b, O=Example\"]", ""), "18: host[1].identities: found nothing, expected"),
    ] {
        let text = GOOD.replacen(change.0, change.1, 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with("m.toml:") && error.contains(complaint), "{error}, expected {complaint}");
    }
    let request = Request { caller: &caller(0, "root"), vm: "a", action: Action::Terminate, to: None };
    assert_eq!(parse("").unwrap().line_that_allows(request), None, "without rules nobody may");
}

#[test]
fn a_file_that_others_can_change_is_not_obeyed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("migration.toml");
    assert!(matches!(Policy::read(&file), Err(PolicyError::Untrusted(Untrusted::Unreadable { .. }))));
    std::fs::write(&file, GOOD).unwrap();
    for (mode, trusted) in [(0o640, true), (0o664, false), (0o646, false)] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let read = Policy::read(&file);
        assert_eq!(
            !matches!(read, Err(PolicyError::Untrusted(Untrusted::Writable { .. }))),
            trusted,
            "{mode:o}"
        );
    }
}
