//! Reordering of packets, by the metrics of RFC 4737.

use std::collections::BTreeMap;

/// The metrics of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// Packets that arrived, each counted once.
    pub received: u64,
    /// Those that arrived after one with a higher number (section 3.3).
    pub reordered: u64,
    /// The largest reordering extent: how many places before a reordered packet the first one with
    /// a higher number arrived (section 4.2).
    pub max_extent: u64,
    /// For each n, the packets that are n-reordered and not (n + 1)-reordered (section 5): each
    /// of the n arrivals before such a packet has a higher number.
    runs: BTreeMap<u64, u64>,
}

impl Reordering {
    /// The metrics of these numbers, in the order of arrival. Each occurs once (section 3.3 counts
    /// the first copy only).
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut found = Self::default();
        // The arrivals that were higher than all before them, with their places: the first one
        // above a number is one of these.
        let mut records: Vec<(u64, u64)> = Vec::new();
        // The arrivals from which no later one has been higher, with their places: the last one
        // below a number is one of these.
        let mut rising: Vec<(u64, u64)> = Vec::new();
        for (place, number) in (0..).zip(numbers) {
            found.received += 1;
            let first_above = records.partition_point(|(_, record)| *record < number);
            match records.get(first_above) {
                Some((above, _)) => {
                    found.reordered += 1;
                    found.max_extent = found.max_extent.max(place - above);
                }
                None => records.push((place, number)),
            }
            while rising.pop_if(|(_, before)| *before > number).is_some() {}
            let run = rising.last().map_or(place, |(below, _)| place - below - 1);
            if run > 0 {
                *found.runs.entry(run).or_default() += 1;
            }
            rising.push((place, number));
        }
        found
    }

    /// The ratio of reordered packets (section 4.1).
    pub fn ratio(&self) -> f64 {
        self.part(self.reordered)
    }

    /// The degree of n-reordering: the part of the packets that are n-reordered (section 5). TCP
    /// without SACK or RACK takes a 3-reordered segment for a lost one.
    pub fn degree(&self, n: u64) -> f64 {
        self.part(self.runs.range(n..).map(|(_, count)| count).sum())
    }

    /// The largest n for which a packet is n-reordered; 0 if none is.
    pub fn max_n(&self) -> u64 {
        self.runs.keys().next_back().copied().unwrap_or_default()
    }

    fn part(&self, packets: u64) -> f64 {
        if self.received == 0 { 0.0 } else { packets as f64 / self.received as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reordered packets, the largest extent, and the packets that are 1-, 2- and 3-reordered.
    fn metrics(numbers: &[u64]) -> (u64, u64, [u64; 3], u64) {
        let found = Reordering::of(numbers.iter().copied());
        let degrees = [1, 2, 3].map(|n| (found.degree(n) * numbers.len() as f64).round() as u64);
        (found.reordered, found.max_extent, degrees, found.max_n())
    }

    #[test]
    fn packets_in_order_are_not_reordered() {
        assert_eq!(metrics(&[1, 2, 3, 4, 5]), (0, 0, [0, 0, 0], 0));
        assert_eq!(metrics(&[2, 5, 9]), (0, 0, [0, 0, 0], 0), "lost packets do not count");
        assert_eq!(Reordering::of([]).ratio(), 0.0);
    }

    #[test]
    fn a_late_packet_is_reordered_as_far_as_it_is_late() {
        // Packet 4 comes after 5 to 8: four places late, and each of the four before it is higher.
        assert_eq!(metrics(&[1, 2, 3, 5, 6, 7, 8, 4, 9]), (1, 4, [1, 1, 1], 4));
        assert_eq!(metrics(&[2, 1]), (1, 1, [1, 0, 0], 1));
    }

    #[test]
    fn an_early_packet_makes_all_that_it_has_overtaken_reordered() {
        // Packet 9 comes before 5 to 8. All of them are reordered, by 1 to 4 places. Only the first
        // of them is 1-reordered: the others come after a lower number.
        assert_eq!(metrics(&[4, 9, 5, 6, 7, 8, 10]), (4, 4, [1, 0, 0], 1));
    }

    #[test]
    fn the_extent_counts_from_the_first_higher_number() {
        // Packet 3 is behind 6 by three places, and behind 4, which is higher too, by one.
        assert_eq!(metrics(&[1, 2, 6, 5, 4, 3]), (3, 3, [3, 2, 1], 3));
        assert_eq!(metrics(&[7, 1, 8, 2]), (2, 3, [2, 0, 0], 1));
    }

    #[test]
    fn what_is_found_agrees_with_the_definitions() {
        // By the definitions alone, without regard to time.
        fn slow(s: &[u64]) -> (u64, u64, Vec<u64>) {
            let (mut reordered, mut extent, mut runs) = (0, 0, vec![0; s.len() + 1]);
            for i in 0..s.len() {
                if let Some(j) = (0..i).find(|j| s[*j] > s[i]) {
                    reordered += 1;
                    extent = extent.max((i - j) as u64);
                }
                for (n, run) in runs.iter_mut().enumerate().take(i + 1).skip(1) {
                    *run += u64::from((i - n..i).all(|j| s[j] > s[i]));
                }
            }
            (reordered, extent, runs)
        }
        let mut x = 1_u64;
        for length in 0..60 {
            let mut numbers: Vec<u64> = (0..length).collect();
            for i in 1..numbers.len() {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let with = i.saturating_sub((x >> 33) as usize % 7);
                numbers.swap(i, with);
            }
            let (reordered, extent, runs) = slow(&numbers);
            let found = Reordering::of(numbers.iter().copied());
            assert_eq!((found.reordered, found.max_extent), (reordered, extent), "{numbers:?}");
            for (n, count) in (0_u64..).zip(runs).skip(1) {
                let degree = (found.degree(n) * length as f64).round() as u64;
                assert_eq!(degree, count, "{n}-reordered in {numbers:?}");
            }
        }
    }
}
