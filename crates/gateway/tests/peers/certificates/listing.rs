//! swanctl lists certificates, authorities and connections of testudod as those of charon.

use super::{ECDSA, connection, equip, start};
use testudo_lab::pki::KeyKind;
use testudo_lab::topology::Side;

#[test]
fn lists_are_those_of_charon() {
    let (mut pair, pki) = start("lists");
    pki.ca("inter", KeyKind::Rsa, "/C=CH/O=Testudo Lab/CN=Intermediate", Some("root")).unwrap();
    pki.crl("root", "root", &[]).unwrap();
    equip(&pair, &pki, Side::One, KeyKind::Rsa, "inter");
    equip(&pair, &pki, Side::Two, ECDSA, "root");
    // Both daemons get the same files and the same connection, which only one of them could use.
    let authority = "authorities {\n    lab {\n        cacert = inter.pem\n    }\n}\n";
    let text = format!("{}{authority}", connection(Side::One));
    let mut shown = Vec::new();
    for side in [Side::One, Side::Two] {
        let swanctl = pair.swanctl(side);
        for (file, directory) in [
            ("gw1.pem", "x509"),
            ("gw2.pem", "x509"),
            ("inter.pem", "x509ca"),
            ("root.crl", "x509crl"),
            ("gw1.key", "private"),
            ("gw2.key", "private"),
        ] {
            pki.give(swanctl, file, directory).unwrap();
        }
        let loaded = swanctl.load(&text).unwrap().stdout;
        for line in [
            "loaded certificate from ",
            "loaded private key from ",
            "loaded authority 'lab'",
            "loaded connection 'lab'",
        ] {
            assert!(loaded.contains(line), "{side:?}, {line}: {loaded}");
        }
        let list = |args: &[&str]| swanctl.run(args.iter().copied()).unwrap().stdout;
        shown.push([
            sorted(&list(&["--list-certs"])),
            sorted(&list(&["--list-certs", "--type", "x509", "--flag", "ca"])),
            list(&["--list-authorities"]),
            sorted_lines(&list(&["--list-certs", "--raw"])),
        ]);
    }
    let [ours, theirs] = shown.as_slice() else { panic!("two sides") };
    assert_eq!(ours, theirs);
    assert_eq!(ours[0].matches("has private key").count(), 2, "{}", ours[0]);
    // What charon would fetch keeps neither the authority nor the connection behind it out.
    let fetching = text
        .replace("cacert = inter.pem", "cacert = inter.pem\n        crl_uris = http://192.0.2.9/root.crl");
    let loaded = pair.swanctl(Side::One).load(&fetching).unwrap().stdout;
    assert!(
        loaded.contains("loaded authority 'lab'") && loaded.contains("loaded connection 'lab'"),
        "{loaded}"
    );
    pair.await_log("WARN authorities.lab.crl_uris: http://192.0.2.9/root.crl has no effect");
    // A key that is no more in its file is unloaded by its number.
    let again = pair.swanctl(Side::One);
    again.remove_file("private", "gw2.key").unwrap();
    again.run(["--load-creds", "--noprompt"]).unwrap();
    assert_eq!(again.run(["--list-certs"]).unwrap().stdout.matches("has private key").count(), 1);
}

fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Blocks in an order that does not depend on the daemon, without how many days are left: swanctl
/// counts them when it prints, and the second list comes later than the first.
fn sorted(text: &str) -> String {
    let mut blocks: Vec<String> =
        text.split("\n\n").map(|block| without_countdowns(block.trim_matches('\n'))).collect();
    blocks.sort_unstable();
    blocks.join("\n\n")
}

fn without_countdowns(block: &str) -> String {
    let line = |line: &str| line.split(" (expires in ").next().unwrap_or_default().to_owned();
    block.lines().map(line).collect::<Vec<_>>().join("\n")
}
