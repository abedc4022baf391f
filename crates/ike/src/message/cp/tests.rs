use super::*;
use crate::message::{PayloadType, Payloads};

/// Reads a Configuration payload behind its generic header.
fn read(body: &[u8]) -> Result<Configuration, ParseError> {
    let length = u16::try_from(body.len() + 4).unwrap().to_be_bytes();
    let message = [&[0, 0, length[0], length[1]], body].concat();
    let payloads = Payloads::parse(PayloadType::Configuration, &message)?;
    Ok(payloads.configuration().unwrap().clone())
}

fn written(configuration: &Configuration) -> Vec<u8> {
    let mut out = Vec::new();
    configuration.write(&mut out).unwrap();
    out
}

#[test]
fn addresses_and_servers_survive_the_wire() {
    let addrs: [IpAddr; 2] = ["10.3.0.1".parse().unwrap(), "fd00:3::1".parse().unwrap()];
    let attributes = addrs.iter().flat_map(|a| [CfgAttribute::inner_address(*a), CfgAttribute::dns(*a)]);
    let sent = Configuration { kind: CfgType::Reply, attributes: attributes.collect() };
    let came = read(&written(&sent)).unwrap();
    assert_eq!(came, sent);
    assert!(came.addresses().eq(addrs) && came.name_servers().eq(addrs));
}

#[test]
fn attributes_without_a_value_are_requests() {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let attributes = any.map(CfgAttribute::inner_address).to_vec();
    assert!(attributes.iter().all(|attribute| attribute.value.is_empty()));
    let request = Configuration { kind: CfgType::Request, attributes };
    assert_eq!(written(&request), [1, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0]);
    assert!(request.addresses().eq(any));
    assert_eq!(request.name_servers().count(), 0);
}

#[test]
fn subnets_are_written_with_mask_or_prefix() {
    let value = |first: &str, length| CfgAttribute::subnet(first.parse().unwrap(), length).value;
    assert_eq!(value("10.1.0.0", 16), [10, 1, 0, 0, 255, 255, 0, 0]);
    assert_eq!(value("0.0.0.0", 0), [0; 8]);
    assert_eq!(value("fd00::", 8).last(), Some(&8));
}

#[test]
fn the_reserved_bit_means_nothing() {
    let came = read(&[2, 0, 0, 0, 0x80, 1, 0, 4, 10, 3, 0, 1]).unwrap();
    assert!(came.addresses().eq(["10.3.0.1".parse::<IpAddr>().unwrap()]));
}

#[test]
fn a_value_of_an_odd_length_is_passed_over() {
    let odd = [(1, 3), (1, 5), (8, 15), (8, 18), (3, 0), (3, 5), (10, 17)];
    for (kind, length) in odd {
        let attribute = CfgAttribute { kind: CfgAttributeType::from(kind), value: vec![1; length] };
        assert_eq!((attribute.address(), attribute.name_server()), (None, None), "type {kind}, {length}");
    }
}

#[test]
fn attributes_that_do_not_fit_are_refused() {
    for cut in 1..8 {
        let whole = [1, 0, 0, 0, 0, 1, 0, 4, 10, 3, 0, 1];
        assert!(read(&whole[..whole.len() - cut]).is_err(), "without {cut} octets");
    }
    assert!(read(&[]).is_err() && read(&[1, 0, 0]).is_err());
    assert!(read(&[1, 0, 0, 0]).is_ok(), "nothing is asked for");
}

#[test]
fn a_flood_of_empty_attributes_is_refused() {
    let flood = |count: usize| [vec![1, 0, 0, 0], [0, 1, 0, 0].repeat(count)].concat();
    assert!(read(&flood(MAX_ATTRIBUTES)).is_ok());
    assert!(read(&flood(MAX_ATTRIBUTES + 1)).is_err());
}
