use super::*;
use std::convert::Infallible;

fn found(most: u16, path: u16) -> (Option<u16>, usize) {
    let mut asked = 0;
    let Ok(found) = largest(most, |size| {
        asked += 1;
        assert!(size <= most);
        Ok::<_, Infallible>(size <= path)
    });
    (found, asked)
}

#[test]
fn the_edge_of_the_path_is_found_in_few_steps() {
    for path in 1280..=9000 {
        let (found, asked) = found(9000, path);
        assert_eq!(found, Some(path));
        assert!(asked <= 15, "{asked} for {path}");
    }
    assert_eq!(found(9000, 9216), (Some(9000), 2));
    assert_eq!(found(9000, 1000), (None, 1));
    assert_eq!(found(1280, 9000), (Some(1280), 1));
    assert_eq!(found(600, 9000), (Some(600), 1), "an interface of IPv4");
}

fn path(mtu: Option<u16>, told: &[Side], restored: &[Side], unknown: Option<&str>) -> Path {
    let unknown = unknown.map(str::to_owned);
    Path { expected_mtu: Some(1500), mtu, told: told.to_vec(), restored: restored.to_vec(), unknown }
}

#[test]
fn people_read_what_it_takes_and_who_knows() {
    let both = [Side::Source, Side::Destination];
    for (path, line, is_narrow) in [
        (
            path(Some(1500), &[], &[], None),
            "The path takes packets of 1500 octets, the largest that are sent",
            false,
        ),
        (
            path(Some(1400), &both, &both, None),
            "The path takes packets of 1400 octets and not of 1500: both testudods knew that",
            true,
        ),
        (
            path(Some(1400), &both, &both[..1], None),
            "The path takes packets of 1400 octets and not of 1500: both testudods knew that, and the \
             destination's forgets it in a minute",
            true,
        ),
        (
            path(Some(1400), &[], &[], None),
            "The path takes packets of 1400 octets and not of 1500: the testudods could not be told",
            true,
        ),
        (path(None, &[], &[], Some("no answer")), "The MTU of the path is not known: no answer", false),
    ] {
        assert_eq!((path.line().as_str(), path.is_narrow()), (line, is_narrow));
    }
}

/// This host answers itself, by its kernel.
#[test]
fn the_loopback_interface_takes_what_it_has() {
    for address in ["127.0.0.1", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(expected_mtu(address).unwrap(), u16::MAX);
        let echo = Echo::open(address).unwrap();
        for size in [LEAST, 9000] {
            assert!(echo.passes(size, FIRST_LIMIT).unwrap(), "{size} to {address}");
        }
    }
    let nobody = Path::search("255.255.255.255".parse().unwrap());
    assert_eq!((nobody.expected_mtu, nobody.mtu), (None, None));
    assert!(nobody.unknown.unwrap().starts_with("no route to 255.255.255.255: "));
}
