use super::*;

fn decided(hosts: [(u64, u64); 2]) -> Choice {
    let of = |side, (processors, workers)| Host { side, processors, workers };
    decide(&[of(Side::Source, hosts[0]), of(Side::Destination, hosts[1])])
}

#[test]
fn each_connection_needs_a_worker_and_two_processors() {
    for (hosts, channels) in [
        // The machine of the benchmarks, where it does not pay.
        ([(2, 2), (2, 2)], None),
        ([(2, 1), (2, 1)], None),
        ([(64, 1), (64, 1)], None),
        ([(4, 2), (4, 2)], Some(2)),
        ([(4, 2), (3, 2)], None),
        ([(16, 4), (16, 8)], Some(4)),
        ([(5, 4), (16, 8)], Some(2)),
        ([(64, 64), (64, 64)], Some(8)),
    ] {
        assert_eq!(decided(hosts).channels, channels, "{hosts:?}");
    }
}

#[test]
fn people_read_which_host_decides() {
    assert_eq!(
        decided([(4, 2), (2, 2)]).line(),
        "Memory goes by one connection: 2 processors and 2 of testudod's workers at the destination, which \
         further ones would share"
    );
    assert_eq!(
        decided([(4, 2), (16, 8)]).line(),
        "Memory goes by 2 further connections: 4 processors and 2 of testudod's workers at the source"
    );
}

#[test]
fn the_option_is_a_word_or_a_number() {
    let read = |text: &str| text.parse::<Multifd>().ok();
    assert_eq!([read("auto"), read("off")], [Some(Multifd::Auto), Some(Multifd::Off)]);
    assert_eq!([read("1"), read("255")], [1, 255].map(|channels| Some(Multifd::Channels(channels))));
    for wrong in ["0", "256", "-1", "", "yes", "Auto"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

#[test]
fn a_qemu_that_does_not_list_it_has_none() {
    let capability = |name: &str| json!([{ "capability": "events", "state": true }, { "capability": name, "state": false }]);
    assert!(is_able(&capability("multifd")));
    assert!(!is_able(&capability("compress")) && !is_able(&json!({})));
}
