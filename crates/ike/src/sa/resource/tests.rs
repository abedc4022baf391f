//! Parts, and which worker comes next.

use super::*;

#[test]
fn the_least_used_worker_comes_next() {
    let mut resources = Resources::default();
    resources.set(Spi(1), "net", Part::Fallback);
    assert_eq!(resources.least_used("net", 3), Some((0, 0)));
    for (spi, worker) in [(2, 0), (3, 2)] {
        resources.set(Spi(spi), "net", Part::Worker(worker));
    }
    resources.set(Spi(4), "other", Part::Worker(1));
    assert_eq!(resources.least_used("net", 3), Some((1, 0)));
    resources.set(Spi(5), "net", Part::Worker(1));
    assert_eq!(resources.least_used("net", 3), Some((0, 1)));
    assert_eq!((resources.additional("net"), resources.additional("other")), (3, 1));
    assert_eq!(resources.least_used("net", 0), None);
}

#[test]
fn a_renewed_one_keeps_its_part() {
    let mut resources = Resources::default();
    resources.set(Spi(1), "net", Part::Fallback);
    resources.set(Spi(2), "net", Part::Worker(7));
    resources.pass_on(Spi(2), Spi(3));
    resources.pass_on(Spi(9), Spi(4));
    resources.forget(Spi(2));
    assert_eq!([2, 3, 4].map(|spi| resources.worker(Spi(spi))), [None, Some(7), None]);
    assert_eq!(resources.fallbacks("net").collect::<Vec<_>>(), [Spi(1)]);
}
