//! The pictures, those of [MIG]'s figures 2 to 7 among them. Its figures have no values in their
//! text; what it states are ratios, which are lines in the pictures of ratios.

use super::row::{LARGEST, Row, median};
use super::way::Way;
use testudo_lab::plot::{BoxPlot, Chart, Column, Limit, Series, Style};

const FOOTNOTE: &str = "Virtual machines without KVM; both hosts share the processors of one machine";
const DIRECTIONS: [&str; 2] = ["there", "back"];

/// What is measured in each migration.
struct Figure {
    /// In the names of files.
    file: &'static str,
    title: &'static str,
    unit: &'static str,
    /// Values, there and back.
    values: fn(&Row) -> [Vec<f64>; 2],
}

/// [MIG] figures 2, 3 and 5, and 4 and 6.
const FIGURES: [Figure; 2] = [
    Figure {
        file: "time",
        title: "The time of a migration",
        unit: "ms",
        values: |row| scaled(&row.seconds, 1e3),
    },
    Figure {
        file: "packets",
        title: "Packets that the source sends",
        unit: "thousand packets",
        values: |row| scaled(&row.packets, 1e-3),
    },
];

/// What is compared with a migration in clear over the same link.
struct Ratio {
    file: &'static str,
    title: &'static str,
    value: fn(&Row) -> Option<f64>,
    /// The aim, and what [MIG] states.
    limits: &'static [(f64, &'static str)],
}

const RATIOS: [Ratio; 2] = [
    Ratio {
        file: "times",
        title: "The time of a migration, compared with one in clear",
        value: |row| row.times_none,
        limits: &[(1.15, "aim"), (6.0, "[MIG], bandwidth"), (10.0, "[MIG], throughput")],
    },
    Ratio {
        file: "ping",
        title: "The time of a ping, compared with one in clear",
        value: |row| row.ping_times_none,
        limits: &[(1.2, "aim"), (2.0, "[MIG]")],
    },
];

/// Links that differ in one size.
struct Sweep<'a> {
    file: &'static str,
    name: &'static str,
    size: fn(&Row) -> u16,
    rows: Vec<&'a Row>,
}

/// Each with its name.
pub(super) fn all(rows: &[Row]) -> Vec<(String, String)> {
    let (by_segment, by_mtu): (Vec<&Row>, Vec<&Row>) =
        rows.iter().filter(|row| row.link.multifd == 0).partition(|row| row.link.segment.is_some());
    let sweeps = [
        Sweep { file: "mtu", name: "MTU", size: |row| row.link.mtu, rows: by_mtu },
        Sweep {
            file: "mss",
            name: "MSS, MTU 8000",
            size: |row| row.link.segment.unwrap_or_default(),
            rows: by_segment,
        },
    ];
    let mut pictures: Vec<(String, String)> = sweeps.iter().flat_map(Sweep::pictures).collect();
    pictures.extend(peaks(rows).map(|svg| ("peak-cpu".into(), svg)));
    pictures
}

impl Sweep<'_> {
    fn pictures(&self) -> Vec<(String, String)> {
        let mut pictures = Vec::new();
        let by = |file: &str| format!("{file}-by-{}", self.file);
        for figure in &FIGURES {
            for way in self.ways() {
                pictures.push((format!("{}-{}", by(figure.file), way.name()), self.boxes(figure, way)));
            }
            let both = |row: &Row| median(&(figure.values)(row).concat());
            pictures
                .extend(self.lines(figure.title, figure.unit, both, &[]).map(|svg| (by(figure.file), svg)));
        }
        for Ratio { file, title, value, limits } in &RATIOS {
            pictures.extend(self.lines(title, "times", value, limits).map(|svg| (by(file), svg)));
        }
        pictures
    }

    fn ways(&self) -> impl Iterator<Item = Way> {
        Way::ALL.into_iter().filter(|way| self.rows.iter().any(|row| row.way == *way))
    }

    /// The values of one way, there and back.
    fn boxes(&self, figure: &Figure, way: Way) -> String {
        let columns = self.rows.iter().filter(|row| row.way == way).flat_map(|row| {
            let name = |direction: &str| format!("{} {direction}", (self.size)(row));
            let values = DIRECTIONS.iter().zip((figure.values)(row));
            values.map(move |(direction, values)| Column { name: name(direction), values })
        });
        BoxPlot {
            title: format!("{} by {}: {}", figure.title, self.name, way.name()),
            subtitle: FOOTNOTE.into(),
            y_name: figure.unit.into(),
            columns: columns.collect(),
            limits: Vec::new(),
        }
        .render()
    }

    /// A line for each way; none without values.
    fn lines(
        &self,
        title: &str,
        unit: &str,
        value: impl Fn(&Row) -> Option<f64>,
        limits: &[(f64, &str)],
    ) -> Option<String> {
        let mut sizes: Vec<u16> = self.rows.iter().map(|row| (self.size)(row)).collect();
        sizes.dedup();
        let of = |way: Way, octets: u16| {
            self.rows
                .iter()
                .find(|row| row.way == way && (self.size)(row) == octets)
                .and_then(|row| value(row))
        };
        let series = self.ways().map(|way| Series {
            name: way.name().into(),
            values: sizes.iter().map(|octets| of(way, *octets)).collect(),
        });
        let series: Vec<Series> = series.filter(|line| line.values.iter().any(Option::is_some)).collect();
        let limit = |(at, name): &(f64, &str)| Limit { at: *at, name: format!("{name}: {at}") };
        let chart = Chart {
            title: title.into(),
            subtitle: FOOTNOTE.into(),
            x_name: self.name.into(),
            y_name: unit.into(),
            cases: sizes.iter().map(ToString::to_string).collect(),
            style: Style::Lines,
            limits: limits.iter().map(limit).collect(),
            series,
        };
        (!chart.series.is_empty()).then(|| chart.render())
    }
}

/// The most processor time of each way, on the link of [MIG]'s figure 7, or otherwise on that with
/// the largest MTU; none without links.
fn peaks(rows: &[Row]) -> Option<String> {
    let links = || rows.iter().map(|row| row.link).filter(|link| link.multifd == 0);
    let widest = || links().filter(|link| link.segment.is_none()).max_by_key(|link| link.mtu);
    let link = links().find(|link| *link == LARGEST).or_else(widest)?;
    let rows: Vec<&Row> = rows.iter().filter(|row| row.link == link).collect();
    let series = DIRECTIONS.into_iter().enumerate().map(|(direction, name)| Series {
        name: name.into(),
        values: rows.iter().map(|row| median(&row.peak_cpu[direction])).collect(),
    });
    let chart = Chart {
        title: format!("The most processor time at the source, {link}"),
        subtitle: "QEMU and what protects the migration, in any 0.2 s".into(),
        x_name: String::new(),
        y_name: "% of a processor".into(),
        cases: rows.iter().map(|row| row.way.name().to_owned()).collect(),
        series: series.collect(),
        style: Style::Bars,
        limits: Vec::new(),
    };
    Some(chart.render())
}

fn scaled(values: &[Vec<f64>; 2], by: f64) -> [Vec<f64>; 2] {
    values.each_ref().map(|values| values.iter().map(|value| value * by).collect())
}

#[cfg(test)]
mod tests {
    use super::super::hosts::{STAGES, Trip};
    use super::super::row::{Link, compare};
    use super::*;
    use testudo_lab::topology::Side;

    fn row(way: Way, link: Link, ping_us: Option<f64>) -> Row {
        let mut row = Row::new(way, link, ping_us);
        let packets = u64::from(link.mtu) * 100;
        for (from, seconds) in [(Side::One, 1.0), (Side::Two, 2.0)] {
            let stage_seconds = [0.5; STAGES.len()];
            row.add(Trip { from, seconds, packets, octets: 3_000_000, stage_seconds, peak: seconds / 4.0 });
        }
        row
    }

    fn pictures(links: &[Link]) -> Vec<(String, String)> {
        let ways = [(Way::None, Some(100.0)), (Way::Esp, Some(130.0)), (Way::Tls, None)];
        let of = |link: &Link| {
            ways.map(|(way, ping_us)| row(way, *link, ping_us.filter(|_| link.segment.is_none())))
        };
        let mut rows: Vec<Row> = links.iter().flat_map(of).collect();
        compare(&mut rows);
        all(&rows)
    }

    fn find<'a>(pictures: &'a [(String, String)], name: &str) -> &'a str {
        &pictures.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name}")).1
    }

    const WIDE: Link = Link { mtu: 9000, segment: None, multifd: 0 };

    #[test]
    fn time_and_packets_have_boxes_for_each_way_by_mtu_and_by_mss() {
        let pictures = pictures(&[WIDE, LARGEST]);
        for file in ["time", "packets"] {
            for (by, size) in [("mtu", 9000), ("mss", 7960)] {
                for way in ["none", "esp", "tls"] {
                    let svg = find(&pictures, &format!("{file}-by-{by}-{way}"));
                    assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
                    assert!(
                        svg.contains(&format!(">{size} there<")) && svg.contains(&format!(">{size} back<"))
                    );
                }
            }
        }
        assert!(find(&pictures, "time-by-mtu-esp").contains("median 2000.0"));
        assert!(find(&pictures, "packets-by-mss-esp").contains("median 800.0"));
    }

    #[test]
    fn what_mig_states_stands_beside_the_ratios() {
        let pictures = pictures(&[WIDE, LARGEST]);
        for name in ["times-by-mtu", "times-by-mss"] {
            let svg = find(&pictures, name);
            for said in ["[MIG], throughput: 10", "[MIG], bandwidth: 6", "aim: 1.15"] {
                assert!(svg.contains(said), "{said}: {svg}");
            }
        }
        let ping = find(&pictures, "ping-by-mtu");
        assert!(ping.contains(">[MIG]: 2<") && ping.contains(">esp<") && !ping.contains(">tls<"), "{ping}");
        assert!(!pictures.iter().any(|(name, _)| name == "ping-by-mss"), "nobody pings there");
    }

    #[test]
    fn the_peaks_are_those_of_migs_link_there_and_back() {
        let on_its_link = pictures(&[WIDE, LARGEST]);
        let svg = find(&on_its_link, "peak-cpu");
        assert!(
            svg.contains("MTU 8000, MSS 7960") && svg.contains(">25.0<") && svg.contains(">50.0<"),
            "{svg}"
        );
        let elsewhere = pictures(&[Link { mtu: 1500, ..WIDE }, WIDE]);
        assert!(find(&elsewhere, "peak-cpu").contains("MTU 9000<"));
        assert!(all(&[]).is_empty());
    }
}
