//! Contents of the notifies of RFC 6311 §6.

use super::{MessageId, Notify, NotifyType};

/// IKEV2_MESSAGE_ID_SYNC (RFC 6311 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageIdSync {
    /// Chosen by the cluster, returned by the peer.
    pub nonce: [u8; 4],
    /// EXPECTED_SEND_REQ_MESSAGE_ID: of the sender's next request.
    pub send: MessageId,
    /// EXPECTED_RECV_REQ_MESSAGE_ID: of the next request that the sender accepts.
    pub receive: MessageId,
}

impl MessageIdSync {
    /// `None` if the notify is another, or malformed.
    pub fn read(notify: &Notify) -> Option<Self> {
        if notify.kind != NotifyType::MessageIdSync || notify.sa.is_some() {
            return None;
        }
        let (nonce, rest) = notify.data.split_first_chunk()?;
        let (send, receive) = rest.split_first_chunk()?;
        let receive = <[u8; 4]>::try_from(receive).ok()?;
        let id = |octets| MessageId(u32::from_be_bytes(octets));
        Some(Self { nonce: *nonce, send: id(*send), receive: id(receive) })
    }

    /// The notify.
    pub fn notify(self) -> Notify {
        let data = [self.nonce, self.send.0.to_be_bytes(), self.receive.0.to_be_bytes()].concat();
        Notify::new(NotifyType::MessageIdSync, data)
    }
}

/// IPSEC_REPLAY_COUNTER_SYNC (RFC 6311 §6.4): the number of sequence numbers to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCounterSync(pub u64);

impl ReplayCounterSync {
    /// `esn`: whether the Child SAs have extended numbers, which determines the size. `None` if the
    /// notify is another, or malformed.
    pub fn read(notify: &Notify, esn: bool) -> Option<Self> {
        if notify.kind != NotifyType::ReplayCounterSync || notify.sa.is_some() {
            return None;
        }
        let data = notify.data.as_slice();
        match esn {
            true => data.try_into().ok().map(|octets| Self(u64::from_be_bytes(octets))),
            false => data.try_into().ok().map(|octets| Self(u32::from_be_bytes(octets).into())),
        }
    }

    /// The notify; `None` if the number does not fit.
    pub fn notify(self, esn: bool) -> Option<Notify> {
        let data = match esn {
            true => self.0.to_be_bytes().to_vec(),
            false => u32::try_from(self.0).ok()?.to_be_bytes().to_vec(),
        };
        Some(Notify::new(NotifyType::ReplayCounterSync, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{NotifySa, Protocol, SaSpi};
    use testudo_base::spi::Spi;

    const SYNC: MessageIdSync =
        MessageIdSync { nonce: [1, 2, 3, 4], send: MessageId(0x0506_0708), receive: MessageId(0x090a_0b0c) };

    #[test]
    fn the_octets_are_those_of_the_rfc() {
        let notify = SYNC.notify();
        assert_eq!(notify.data, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(MessageIdSync::read(&notify), Some(SYNC));
        let short = ReplayCounterSync(0x0102_0304).notify(false).unwrap();
        assert_eq!(short.data, [1, 2, 3, 4]);
        let long = ReplayCounterSync(0x0102_0304).notify(true).unwrap();
        assert_eq!(long.data, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(ReplayCounterSync::read(&short, false), Some(ReplayCounterSync(0x0102_0304)));
        assert_eq!(ReplayCounterSync::read(&long, true), Some(ReplayCounterSync(0x0102_0304)));
        assert_eq!(ReplayCounterSync(1 << 32).notify(false), None);
    }

    #[test]
    fn another_size_another_kind_or_an_spi_is_refused() {
        for size in (0..12).chain([13, 24]) {
            let notify = Notify::new(NotifyType::MessageIdSync, vec![0; size]);
            assert_eq!(MessageIdSync::read(&notify), None, "{size}");
        }
        for (size, esn) in [(0, false), (3, false), (8, false), (4, true), (9, true)] {
            let notify = Notify::new(NotifyType::ReplayCounterSync, vec![0; size]);
            assert_eq!(ReplayCounterSync::read(&notify, esn), None, "{size}");
        }
        let other = Notify { kind: NotifyType::Cookie, ..SYNC.notify() };
        assert_eq!(MessageIdSync::read(&other), None);
        let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(Spi(0x0100_0000)) };
        let of_child = Notify { sa: Some(about), ..SYNC.notify() };
        assert_eq!(MessageIdSync::read(&of_child), None);
    }
}
