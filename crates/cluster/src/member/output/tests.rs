use super::*;

fn taken(lanes: &[(u8, Option<u64>)]) -> TakenLanes {
    let lanes = lanes.iter().map(|(lane, exact)| (Shard(*lane), *exact)).collect();
    TakenLanes { spi_in: Spi(0x0100_0400), mark: 100, reach: 50, esn: true, unseen: true, lanes }
}

/// A peer may be below a floor that nobody has told, and gets new keys for it.
#[test]
fn floors_of_lanes_whose_carriers_have_told_their_last_numbers_are_exact() {
    let exact = taken(&[(1, Some(120)), (2, Some(0))]);
    assert!(!exact.is_estimate() && !taken(&[]).is_estimate());
    let floors: Vec<u64> = exact.floors(0, None).map(|lane| lane.floor).collect();
    assert_eq!(floors, [120, 0]);
    let one_is_not = taken(&[(1, Some(120)), (2, None)]);
    assert!(one_is_not.is_estimate());
    let floors: Vec<u64> = one_is_not.floors(0, None).map(|lane| lane.floor).collect();
    assert_eq!(floors, [120, 150], "as far as another node can have accepted");
}
