use super::*;
use std::sync::Arc;

/// A plan for tests that take so many milliseconds and reach so many mutants, the shortest first.
fn plan(tests: &[(u64, u32)]) -> Plan {
    let known = tests.iter().map(|(millis, mutants)| Known {
        test: Test { program: Arc::default(), name: millis.to_string() },
        time: Duration::from_millis(*millis),
        reached: (0..*mutants).collect(),
    });
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
