use super::*;
use std::sync::Arc;

/// A test that takes so many milliseconds and reaches so many mutants.
fn known(kind: Kind, millis: u64, mutants: u32) -> Known {
    let test = Test { program: Arc::default(), kind };
    Known { test, time: Duration::from_millis(millis), reached: (0..mutants).collect() }
}

/// A plan for such tests, the shortest first.
fn plan(tests: &[(u64, u32)]) -> Plan {
    let known =
        tests.iter().map(|(millis, mutants)| known(Kind::Test(millis.to_string()), *millis, *mutants));
    Plan { directory: PathBuf::new(), known: known.collect(), reaching: BTreeMap::new(), failing: Vec::new() }
}

#[test]
fn half_of_the_time_is_for_the_shortest_tests_and_half_for_those_that_reach_few_mutants() {
    let plan = plan(&[(10, 900), (20, 800), (30, 700), (40, 2), (50, 600)]);
    let all = [0, 1, 2, 3, 4];
    assert_eq!(plan.choose(&all, Duration::from_millis(70)), [0, 1, 3]);
    assert_eq!(plan.choose(&all, Duration::from_millis(150)), all);
    assert_eq!(plan.choose(&[2, 4], Duration::from_millis(1)), [2], "one test is better than none");
    assert!(plan.choose(&[], Duration::from_secs(1)).is_empty());
}

#[test]
fn all_worlds_follow_the_tests_whatever_their_time() {
    let mut plan = plan(&[(10, 1), (20, 1)]);
    plan.known.extend([0, 1].map(|seed| known(Kind::World(seed), 9000, 500)));
    assert_eq!(plan.choose(&[0, 1, 2, 3], Duration::from_millis(10)), [0, 2, 3]);
    assert_eq!(plan.choose(&[2], Duration::ZERO), [2]);
    assert!(plan.known[2].test.group() != plan.known[3].test.group(), "each world has a run of its own");
}

#[test]
fn the_first_run_is_short_and_each_further_one_longer() {
    let plan = plan(&[(200, 1), (200, 1), (400, 1), (500, 1), (9000, 1)]);
    assert_eq!(plan.runs(&[0, 1, 2, 3, 4]), [&[0][..], &[1, 2, 3], &[4]]);
    assert!(plan.runs(&[]).is_empty());
}

#[test]
fn results_have_the_order_of_the_items_and_an_error_ends_the_work() {
    let items: Vec<u32> = (0..100).collect();
    assert_eq!(in_parallel(&items, 3, |item| Ok(item * 2)).unwrap(), (0..200).step_by(2).collect::<Vec<_>>());
    let fails = |item: &u32| match item {
        7 => Err(Error::DoesNotCompile { package: "seven".to_owned() }),
        item => Ok(*item),
    };
    assert!(in_parallel(&items, 3, fails).unwrap_err().to_string().starts_with("seven"));
}
