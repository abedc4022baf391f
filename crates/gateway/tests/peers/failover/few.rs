//! Half of the nodes or fewer that corosync calls quorate, because it counts daemons.

use super::LIMIT;
use testudo_lab::bed::{Bed, BedOptions, Failure};
use testudo_lab::cluster::{Cut, Net};
use testudo_lab::{Lab, wait_until};

/// Node 3 has gone on alone, straight from a view with node 2, whose testudod has ended. Node 1 has
/// missed all of that. Beside node 2's corosync it has a quorum, and may not use it.
#[test]
fn a_node_that_has_missed_views_does_not_go_on_beside_a_bare_corosync() {
    let options = BedOptions { peers: Vec::new(), ..BedOptions::default() };
    let mut bed = Bed::start(&Lab::large("few", 2).unwrap(), &options).unwrap();
    bed.await_all().unwrap();
    bed.cluster.isolate(1, Cut::Silent).unwrap();
    bed.await_members(&[2, 3]).unwrap();
    bed.strike(2, Failure::Testudod).unwrap();
    bed.await_members(&[3]).unwrap();
    bed.cluster.isolate(3, Cut::Silent).unwrap();
    Net::ALL.iter().for_each(|net| bed.cluster.join(1, *net).unwrap());

    wait_until("node 1 waits", LIMIT, || {
        let log = bed.node(1).log()?;
        Ok(if log.contains("waiting for nodes 2, 3") { Ok(()) } else { Err("it does not".into()) })
    })
    .unwrap();
    assert!(bed.corosyncs[0].is_quorate().unwrap());
    let shown = bed.node(1).cluster().unwrap();
    assert_eq!((&shown["view"]["quorate"], &shown["phase"]), (&true.into(), &"exchange".into()), "{shown}");
    assert!(shown["why"].to_string().contains("waiting for nodes 2, 3"), "{shown}");

    bed.cluster.heal().unwrap();
    bed.await_members(&[1, 3]).unwrap();
    bed.mend(2, Failure::Testudod).unwrap();
    bed.await_all().unwrap();
}
