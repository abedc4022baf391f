use super::*;
use crate::trust::Untrusted;
use std::io;

/// Files by their paths.
struct Fake(BTreeMap<PathBuf, Vec<u8>>);

impl Files for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let within = self.0.keys().filter(|path| path.parent() == Some(directory));
        Ok(within.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn runs(&self, program: &Path) -> Result<(), Untrusted> {
        match self.0.contains_key(program) {
            true => Ok(()),
            false => {
                Err(Untrusted::Unreadable { path: program.to_owned(), error: io::Error::other("not there") })
            }
        }
    }
}

fn check(files: &[(&str, &str)]) -> Report {
    check_octets(&files.iter().map(|(path, text)| (*path, text.as_bytes())).collect::<Vec<_>>())
}

fn check_octets(files: &[(&str, &[u8])]) -> Report {
    let files = files.iter().map(|(path, octets)| (Path::new("/etc/swanctl").join(path), octets.to_vec()));
    let files = Fake(files.collect());
    Check { files: &files, policy: Policy::Modern, reads_files: true }
        .run(Path::new("/etc/swanctl/swanctl.conf"))
}

/// The findings, without the directory.
fn said(report: &Report) -> Vec<String> {
    let line = |finding: &Finding| {
        let file = finding.file.strip_prefix("/etc/swanctl").unwrap().display();
        let text = finding.text.replace("/etc/swanctl/", "");
        format!("{:?} {file}:{}: {text}", finding.severity, finding.line)
    };
    report.findings.iter().map(line).collect()
}

/// A connection of that name and with those lines in its child.
fn connection(name: &str, child: &str) -> String {
    format!(
        "connections {{\n{name} {{\nremote_addrs = 192.0.2.2\nlocal {{\nauth = psk\n}}\nremote {{\nauth = psk\n}}\n\
         children {{\nnet {{\n{child}\n}}\n}}\n}}\n}}\n"
    )
}

#[test]
fn a_correct_configuration_has_no_findings() {
    let report = check(&[("swanctl.conf", &connection("gw", "local_ts = 10.1.0.0/16, 10.3.0.0/16"))]);
    assert_eq!(said(&report), [] as [&str; 0]);
    assert_eq!((report.connections, report.refused, report.complete), (1, 0, true));
}

#[test]
fn children_that_start_are_counted_where_they_would_be_loaded() {
    let of = |name, action: &str| connection(name, &format!("start_action = {action}"));
    let files = of("a", "start") + &of("b", "trap") + &of("c", "start\nmode = beet");
    let report = check(&[("swanctl.conf", &files)]);
    assert_eq!((report.connections, report.refused, report.starts), (2, 1, 1), "{:?}", said(&report));
}

#[test]
fn every_fault_is_named_with_file_and_line() {
    let faults = "local_ts = here\nesp_proposal = aes128\nmode = beet\nrekey_time = 010";
    let report =
        check(&[("swanctl.conf", "include conf.d/*.conf\n"), ("conf.d/a.conf", &connection("gw", faults))]);
    let path = "connections.gw.children.net";
    let addresses = "a subnet, an address, a range or dynamic, optionally with [protocol/port]";
    let expected = [
        format!("Fault conf.d/a.conf:12: {path}.local_ts: found \"here\", expected {addresses}"),
        format!("Fault conf.d/a.conf:13: {path}.esp_proposal: unknown key"),
        format!(
            "Fault conf.d/a.conf:14: {path}.mode: found \"beet\", but this mode is not supported; expected tunnel, \
             transport, pass or drop"
        ),
        format!(
            "Fault conf.d/a.conf:15: {path}.rekey_time: found \"010\", expected a time such as 30s, 5m, 1h or 1d"
        ),
    ];
    assert_eq!(said(&report), expected);
    assert_eq!((report.connections, report.refused, report.complete), (0, 1, true));
}

#[test]
fn a_missing_brace_is_no_empty_configuration() {
    let text = connection("gw", "");
    let report = check(&[("swanctl.conf", text.strip_suffix("}\n").unwrap())]);
    assert!(!report.complete && !report.loads());
    assert_eq!(
        said(&report)[0],
        "Fault swanctl.conf:16: found the end of the file, expected } of section connections of line 1"
    );
    let report = check(&[("swanctl.conf", &(text + "}\n"))]);
    assert_eq!(said(&report), ["Fault swanctl.conf:17: found }, which closes no section"]);
}

#[test]
fn templates_are_followed() {
    let text = "base {\nremote_addrs = 192.0.2.2\nlocal {\nauth = psk\n}\nremote {\nauth = psk\n}\nchildren {\nnet {\n\
                esp_proposals = nothing\n}\n}\n}\nconnections {\ngw : base {\nchildren {\nnet {\nesp_proposals = aes128gcm16\n}\n}\n}\n\
                other : base {\n}\nthird : bass {\n}\n}\n";
    let report = check(&[("swanctl.conf", text)]);
    let said = said(&report);
    assert!(
        said[0].starts_with("Fault swanctl.conf:11: connections.other.children.net.esp_proposals: found"),
        "{said:?}"
    );
    assert!(
        said.contains(&"Fault swanctl.conf:25: third: refers to bass, which is not there".to_owned()),
        "{said:?}"
    );
    assert_eq!((report.connections, report.refused), (1, 2));
}

#[test]
fn unread_keys_and_sections_are_faults() {
    let report = check(&[("swanctl.conf", "conections {\ngw {\n}\n}\nmode = tunnel\n")]);
    let said = said(&report);
    assert!(
        said[0].starts_with("Fault swanctl.conf:1: conections: found a section that is never read"),
        "{said:?}"
    );
    assert_eq!(said[1], "Fault swanctl.conf:5: mode: a key outside of all sections, which is never read");
}

#[test]
fn duplicates_are_warnings() {
    let one = connection("gw", "local_ts = 10.1.0.0/16\nremote_ts = 10.2.0.0/16");
    let more = "connections {\ngw {\nremote_addrs = 192.0.2.9\n}\n}\n";
    let other =
        connection("other", "local_ts = 10.1.0.0/16\nremote_ts = 10.2.0.0/16\npolicies_fwd_out = yes");
    let files = [("swanctl.conf", "include *.inc\n"), ("1.inc", &one), ("2.inc", more), ("3.inc", &other)];
    let report = check(&files);
    assert_eq!(
        said(&report),
        [
            "Warning 2.inc:2: connections.gw: occurs again, and is merged with 1.inc:2",
            "Warning 2.inc:3: connections.gw.remote_addrs: the value of 1.inc:3 has no effect",
            "Warning 3.inc:11: connections.other.children.net: has the same selectors as gw.net: outbound \
             traffic can use only one of them",
            "Warning 3.inc:14: connections.other.children.net.policies_fwd_out: yes has no effect: this gateway \
             has no forward policies",
        ]
    );
    assert!(report.loads() && report.connections == 2);
}

#[test]
fn secrets_pools_and_authorities_are_checked_too() {
    let text = "secrets {\nike-1 {\nid = moon\nsecert = abc\n}\neap-2 {\nid = carol\nsecret = x\n}\nother {\n}\n}\n\
                pools {\nrw {\naddrs = 10.3.0.0\nsubnets = 10.0.0.0/8\n}\n}\nauthorities {\nca {\ncacert = ca.pem\n}\n}\n";
    let report = check(&[("swanctl.conf", text)]);
    let said = said(&report);
    for expected in [
        "Fault swanctl.conf:4: secrets.ike-1.secert: unknown key",
        "Fault swanctl.conf:2: secrets.ike-1.data: missing, expected the key",
        "Fault swanctl.conf:6: secrets.eap-2.type: found \"eap\", but secrets of this type are not supported; expected ike or ppk",
        "Fault swanctl.conf:10: secrets.other: swanctl knows no secret of this name; expected one that begins with ike, ppk or private",
        "Fault swanctl.conf:16: pools.rw.subnets: unknown key",
        "Fault swanctl.conf:21: authorities.ca.cacert: /etc/swanctl/x509ca/ca.pem: entity not found",
    ] {
        let expected = expected.replace("/etc/swanctl/", "");
        assert!(said.contains(&expected), "{expected:?} is not in {said:#?}");
    }
}

/// swanctl loads no connection behind an authority that is refused.
#[test]
fn what_an_authority_would_have_fetched_is_warned_of_and_its_other_keys_are_checked() {
    let authority = |keys: &str| format!("{}authorities {{\nca {{\n{keys}\n}}\n}}\n", connection("gw", ""));
    let without_files = |keys: &str| {
        let path = Path::new("/etc/swanctl/a");
        let files = Fake([(path.to_owned(), authority(keys).into_bytes())].into());
        said(&Check { files: &files, policy: Policy::Modern, reads_files: false }.run(path))
    };
    let uris =
        "cacert = ca.pem\ncrl_uris = http://a/1, http://a/2\nocsp_uris = http://b\ncert_uri_base = http://c/";
    let has_no = |line: u32, key: &str, what: &str| {
        format!("Warning a:{line}: authorities.ca.{key} has no effect: {what}")
    };
    assert_eq!(
        without_files(uris),
        [
            has_no(
                20,
                "crl_uris: http://a/1",
                "no list of revoked certificates is fetched: put them into x509crl/"
            ),
            has_no(21, "ocsp_uris: http://b", "no OCSP server is asked"),
            has_no(22, "cert_uri_base: http://c/", "no certificate is fetched by its hash"),
        ]
    );
    assert_eq!(
        without_files("cacert = ca.pem\nmodule = pkcs11\ncolour = red"),
        [
            "Fault a:18: authorities.ca: swanctl loads no connection after this",
            "Fault a:20: authorities.ca.module: found \"pkcs11\", but tokens is not supported; leave the key out",
            "Fault a:21: authorities.ca.colour: unknown key",
        ]
    );
}

#[test]
fn no_connection_would_load_beside_a_pool_or_an_authority_that_is_refused() {
    for (section, stops) in [
        ("pools {\nrw {\naddrs = 10.3.0.0\n}\n}\n", None),
        ("pools {\nrw {\naddrs = 10.3.0.0\nnbns = 10.3.0.1\n}\n}\n", Some("18: pools.rw")),
        ("authorities {\nca {\ncacert = ca.pem\n}\n}\n", Some("18: authorities.ca")),
        ("secrets {\nike-1 {\n}\n}\n", None),
    ] {
        let report =
            check(&[("swanctl.conf", &format!("{}{section}", connection("gw", "start_action = start")))]);
        let stopped =
            stops.map(|at| format!("Fault swanctl.conf:{at}: swanctl loads no connection after this"));
        assert_eq!(said(&report).iter().find(|text| text.contains("no connection")), stopped.as_ref());
        let counts = if stops.is_some() { (0, 1, 0) } else { (1, 0, 1) };
        assert_eq!((report.connections, report.refused, report.starts), counts, "{section}");
    }
}

#[test]
fn files_that_are_named_are_read_or_left_out() {
    let text = connection("gw", "").replace("local {\nauth = psk", "local {\ncerts = gw.pem");
    let files = [("swanctl.conf", text.as_str())];
    let report = check(&files);
    assert_eq!(
        said(&report),
        ["Fault swanctl.conf:5: connections.gw.local.certs: x509/gw.pem: entity not found"]
    );
    let report = check(&[files[0], ("x509/gw.pem", "nothing")]);
    assert!(
        said(&report)[0]
            .starts_with("Fault swanctl.conf:5: connections.gw.local.certs: found entry 1 of 7 octets")
    );
    let fake = Fake([(PathBuf::from("/swanctl.conf"), text.into_bytes())].into());
    let report =
        Check { files: &fake, policy: Policy::Modern, reads_files: false }.run(Path::new("/swanctl.conf"));
    assert_eq!((report.findings.len(), report.connections), (0, 1));
}

/// Scripts that would be loaded and not run.
#[test]
fn scripts_that_are_not_run_are_warned_of() {
    let path = "connections.gw.children.net.updown";
    let told = |updown: &str| said(&check(&[("swanctl.conf", &connection("gw", updown)), ("up", "")]));
    assert_eq!(told("updown = /etc/swanctl/up now"), [] as [&str; 0]);
    let end = "the script is not run, and the tunnel comes up without it";
    let missing = format!("Warning swanctl.conf:12: {path}: gone: not there; {end}");
    assert_eq!(told("updown = /etc/swanctl/gone"), [missing]);
    let relative = "found \"ipsec _updown\", expected an absolute path to a program";
    assert_eq!(
        told("updown = ipsec _updown"),
        [format!("Warning swanctl.conf:12: {path}: {relative}; {end}")]
    );
    let files = Fake([("/a".into(), connection("gw", "updown = /gone").into_bytes())].into());
    let check = Check { files: &files, policy: Policy::Modern, reads_files: false };
    assert!(check.run(Path::new("/a")).findings.is_empty(), "nothing is looked at");
}

/// Text in another encoding, with `~` in the place of an octet that is not UTF-8.
fn latin(text: &str) -> Vec<u8> {
    text.bytes().map(|octet| if octet == b'~' { 0xfc } else { octet }).collect()
}

#[test]
fn octets_that_are_not_utf_8_are_refused_where_the_gateway_refuses_them() {
    let said_of = |text: &str| {
        let report = check_octets(&[("swanctl.conf", &latin(text))]);
        (said(&report), report.connections, report.refused)
    };
    let gw = connection("gw", "local_ts = 10.1.0.0/16");
    let fault =
        |line: u32, key: &str| format!("Fault swanctl.conf:{line}: {key}: found octet 0xFC, expected UTF-8");
    let id = gw.replace("remote {\n", "remote {\nid = \"J~rgen ~\"\n");
    assert_eq!(said_of(&id), (vec![fault(8, "connections.gw.remote.id")], 0, 1));
    let (found, connections, refused) = said_of(&gw.replace("gw {", "J~r {"));
    assert_eq!((found, connections, refused), (vec![fault(2, "connections.J\u{fffd}r")], 0, 1));
    let (found, ..) = said_of(&gw.replace("net {", "n~t {"));
    assert_eq!(found, [fault(11, "connections.gw.children.n\u{fffd}t")]);
    let (found, ..) = said_of(&(gw.clone() + "pools {\np~ol {\naddrs = 10.3.0.0/24\n}\n}\n"));
    assert_eq!(found, [fault(18, "pools.p\u{fffd}ol")]);
    let secrets = "secrets {\nike-1 {\nid = ~\nsecret = a\n}\n}\n";
    assert_eq!(said_of(&(gw.clone() + secrets)).0, [fault(19, "secrets.ike-1.id")]);
    // Both may be any octets.
    let secrets = "# J~rgen\nsecrets {\nike-1 {\nid = a # ~\nsecret = ~\n}\n}\n";
    assert_eq!(said_of(&(gw.clone() + secrets)), (vec![], 1, 0));
    let utf_8 = gw.replace("remote {\n", "remote {\nid = \u{fffd}J\u{fc}rgen\n");
    assert_eq!(said_of(&utf_8), (vec![], 1, 0), "a replacement character may be meant");
}

/// swanctl finds no section `connections` then, and unloads all.
#[test]
fn a_byte_order_mark_is_named() {
    let text = connection("gw", "");
    let report = check(&[("swanctl.conf", &format!("\u{feff}{text}"))]);
    assert!(!report.complete);
    let said = said(&report);
    assert!(said[0].starts_with("Fault swanctl.conf:1: found a byte order mark"), "{said:?}");
    assert_eq!((said.len(), report.connections), (1, 1), "what comes after it is read");
}

#[test]
fn what_swanctl_would_unload_is_known() {
    let text = connection("gw", "") + &connection("refused", "mode = beet") + "include gone.conf\n";
    let report = check(&[("swanctl.conf", &text)]);
    assert_eq!(report.named, ["gw", "refused"]);
    assert!(report.complete && report.lacks_include);
    assert!(!check(&[("swanctl.conf", "include none.*\n")]).lacks_include);
}

#[test]
fn passphrases_that_decrypt_nothing_are_warned_of() {
    let text = "secrets {\nprivate-1 {\nfile = gone.pem\nsecret = a\n}\nrsa-1 {\ncolour = red\nsecret = b\n}\n\
                pkcs8-1 {\nfile = gw.p8\nsecret = c\n}\n}\n";
    let report = check(&[("swanctl.conf", text), ("pkcs8/gw.p8", "encrypted")]);
    let gone = "secrets.private-1.file: private/gone.pem: entity not found, so swanctl decrypts nothing";
    assert_eq!(
        said(&report),
        [
            format!("Warning swanctl.conf:3: {gone}"),
            "Warning swanctl.conf:6: secrets.rsa-1: names no file, so swanctl decrypts nothing with it"
                .to_owned(),
            "Fault swanctl.conf:7: secrets.rsa-1.colour: unknown key".to_owned(),
        ]
    );
}

#[test]
fn files_that_swanctl_loads_unnamed_are_checked_too() {
    let conf = connection("gw", "");
    let files = [
        ("swanctl.conf", conf.as_str()),
        ("private/gw.pem", "rubbish"),
        ("private/asked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----"),
        ("x509/gw.pem", "rubbish"),
        ("x509crl/ca.crl", "rubbish"),
    ];
    let found = said(&check(&files));
    let begins = [
        "Fault x509/gw.pem:0: found a file of 7 octets, but this",
        "Fault x509crl/ca.crl:0: found a file of 7 octets, but this",
        "Fault private/gw.pem:0: found a file of 7 octets, but this",
    ];
    assert_eq!(found.len(), begins.len(), "{found:?}");
    for (said, begin) in found.iter().zip(begins) {
        assert!(said.starts_with(begin), "{said:?}, expected {begin:?}");
    }
}

#[test]
fn pools_that_are_not_there_are_warned_of() {
    let gw = connection("gw", "").replace("remote_addrs", "pools = rw, gone\nremote_addrs");
    let report = check(&[("swanctl.conf", &(gw + "pools {\nrw {\naddrs = 10.3.0.0/24\n}\n}\n"))]);
    let text = "connections.gw.pools: there is no pool gone, so peers get no address from it";
    assert_eq!(said(&report), [format!("Warning swanctl.conf:3: {text}")]);
}
