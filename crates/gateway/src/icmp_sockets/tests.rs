use super::*;
use std::io::Write;
use testudo_base::spi::Spi;

/// A socket, and what puts messages into it. Neither asks for privileges.
fn pair(filter: &[SockFilter], read: fn(&[u8]) -> Option<TooBig>) -> (IcmpSocket, Socket) {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::DGRAM.nonblocking(), None).unwrap();
    ours.attach_filter(filter).unwrap();
    (IcmpSocket::new(ours, read), theirs)
}

fn passes(filter: &[SockFilter], message: &[u8]) -> bool {
    let (socket, sender) = pair(filter, |_| None);
    (&sender).write_all(message).unwrap();
    (&socket.socket).read(&mut [0; MAX_MESSAGE_OCTETS]).is_ok()
}

/// An IPv4 header without options.
fn ipv4(protocol: u8) -> Vec<u8> {
    let mut header = vec![0x45; 20];
    header[9] = protocol;
    header
}

fn needs_fragmentation(options: usize, kind: [u8; 2], quoted: &[u8]) -> Vec<u8> {
    let mut outer = ipv4(1);
    outer[0] += (options / 4) as u8;
    outer.resize(20 + options, 0);
    [&outer[..], &kind, &[0; 6], quoted].concat()
}

#[test]
fn of_ipv4_the_kernel_gives_what_quotes_esp() {
    let passes = |message: &[u8]| passes(&ipv4_filter(), message);
    let esp = [&ipv4(50)[..], &[7; 8]].concat();
    let udp = |port: u16| [&ipv4(17)[..], &port.to_be_bytes(), &[7; 14]].concat();
    for options in [0, 4, 40] {
        let message = |quoted: &[u8]| needs_fragmentation(options, [3, 4], quoted);
        assert!(passes(&message(&esp)) && passes(&message(&udp(4500))));
        assert!(!passes(&message(&udp(500))) && !passes(&message(&udp(53))));
        assert!(passes(&message(&[&ipv4(51)[..], &[7; 12]].concat())), "AH");
        for protocol in [1, 6, 52, 44] {
            assert!(!passes(&message(&[&ipv4(protocol)[..], &[7; 8]].concat())), "protocol {protocol}");
        }
        let mut with_options = esp.clone();
        with_options[0] = 0x46;
        assert!(!passes(&message(&with_options)), "we send none");
        assert!(!passes(&message(&ipv4(17))) && !passes(&message(&[])), "cut off");
        for kind in [[3, 3], [11, 4], [8, 0], [0, 0]] {
            assert!(!passes(&needs_fragmentation(options, kind, &esp)), "{kind:?}");
        }
    }
}

#[test]
fn of_ipv6_the_kernel_gives_what_quotes_esp() {
    let passes = |message: &[u8]| passes(&ipv6_filter(), message);
    let message = |kind: u8, next: u8, payload: &[u8]| {
        let mut quoted = [0x60; 40];
        quoted[6] = next;
        [&[kind, 0, 0, 0, 0, 0, 5, 0][..], &quoted, payload].concat()
    };
    let udp = |port: u16| [&port.to_be_bytes()[..], &[7; 14]].concat();
    let fragment = |next: u8, payload: &[u8]| [&[next, 0, 0, 1, 0, 0, 0, 9][..], payload].concat();
    assert!(passes(&message(2, 50, &[7; 8])) && passes(&message(2, 17, &udp(4500))));
    assert!(passes(&message(2, 51, &[7; 12])) && passes(&message(2, 44, &fragment(51, &[7; 12]))));
    assert!(passes(&message(2, 44, &fragment(50, &[7; 8]))));
    assert!(passes(&message(2, 44, &fragment(17, &udp(4500)))));
    assert!(!passes(&message(2, 17, &udp(500))) && !passes(&message(2, 44, &fragment(17, &udp(500)))));
    assert!(!passes(&message(2, 44, &fragment(6, &udp(4500)))));
    assert!(!passes(&message(2, 6, &[7; 8])) && !passes(&message(2, 58, &[7; 8])));
    assert!(!passes(&message(2, 17, &[])) && !passes(&message(2, 44, &[])) && !passes(&[2]), "cut off");
    assert!(!passes(&message(1, 50, &[7; 8])) && !passes(&message(135, 50, &[7; 8])));
}

/// Quotes the packet with that number.
fn read(message: &[u8]) -> Option<TooBig> {
    let sequence = u32::from_be_bytes(*message.first_chunk()?);
    let [local, remote] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(Into::into);
    Some(TooBig { local, remote, spi: Spi(1), sequence, udp: false, mtu: 1400 })
}

/// What is made up many thousand times leaves those their turn that are believed.
#[test]
fn junk_does_not_use_up_what_is_for_messages_that_are_believed() {
    let everything = [step(RETURN, 0, 0, u32::MAX)];
    let (mut socket, sender) = pair(&everything, read);
    // Whoever quotes number 7 has seen it.
    let mut believed = 0;
    let mut tell = |socket: &mut IcmpSocket, message: &[u8]| {
        (&sender).write_all(message).unwrap();
        socket.receive(|told| {
            believed += usize::from(told.sequence == 7);
            told.sequence == 7
        });
        believed
    };
    for number in 0..10_000_u32 {
        let junk = (number + 8).to_be_bytes();
        tell(&mut socket, if number % 2 == 0 { &junk } else { &junk[..1] });
    }
    assert_eq!(tell(&mut socket, &7_u32.to_be_bytes()), 1);
    for _ in 1..MAX_BELIEVED_PER_SECOND {
        tell(&mut socket, &7_u32.to_be_bytes());
    }
    assert_eq!(tell(&mut socket, &7_u32.to_be_bytes()), MAX_BELIEVED_PER_SECOND, "and that has an end too");
    socket.left = (MAX_BELIEVED_PER_SECOND, MAX_DISBELIEVED_PER_SECOND);
    assert!(!socket.receive(|_| true), "what was left is read in the next second, and then there is no more");
    assert_eq!(socket.left, (MAX_BELIEVED_PER_SECOND - 1, MAX_DISBELIEVED_PER_SECOND));
}
