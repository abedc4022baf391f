//! Which new Child SAs are given up when the policies cannot be applied.

/// Applies the state. While that fails, gives up the newest of the fresh items, one, then two more,
/// then four, until it succeeds or none is left. An attempt may cost a look at every policy, so the
/// step doubles. The oldest items go last.
pub(crate) fn apply_with_backoff<S, T, E>(
    state: &mut S,
    fresh: impl Fn(&mut S) -> &mut Vec<T>,
    mut apply: impl FnMut(&mut S) -> Result<(), E>,
    mut give_up: impl FnMut(&mut S, Vec<T>, &E),
) -> Result<(), E> {
    let mut count = 1;
    while let Err(error) = apply(state) {
        let fresh = fresh(state);
        let newest = fresh.split_off(fresh.len().saturating_sub(count));
        if newest.is_empty() {
            return Err(error);
        }
        give_up(state, newest, &error);
        count *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of Child SAs, and room for some of them.
    struct Burst {
        room: usize,
        fresh: Vec<usize>,
        attempts: usize,
        given_up: Vec<usize>,
    }

    fn burst(room: usize) -> (Burst, Result<(), &'static str>) {
        let mut burst = Burst { room, fresh: (0..64).collect(), attempts: 0, given_up: Vec::new() };
        let apply = |burst: &mut Burst| {
            burst.attempts += 1;
            if burst.fresh.len() <= burst.room { Ok(()) } else { Err("no room") }
        };
        let give_up = |burst: &mut Burst, newest: Vec<usize>, _: &&str| burst.given_up.extend(newest);
        let result = apply_with_backoff(&mut burst, |burst| &mut burst.fresh, apply, give_up);
        (burst, result)
    }

    #[test]
    fn one_too_many_costs_no_other_its_sa() {
        let (burst, result) = burst(63);
        assert_eq!((result, burst.given_up, burst.attempts), (Ok(()), vec![63], 2));
        assert_eq!(burst.fresh, (0..63).collect::<Vec<_>>());
    }

    #[test]
    fn those_that_were_there_first_stay() {
        let (burst, result) = burst(40);
        assert_eq!(result, Ok(()));
        assert_eq!(burst.fresh, (0..33).collect::<Vec<_>>());
        assert_eq!(burst.given_up.len() + burst.fresh.len(), 64);
    }

    #[test]
    fn it_ends_whatever_the_reason_is() {
        let (burst, result) = burst(0);
        assert_eq!((result, burst.fresh.len(), burst.attempts), (Ok(()), 0, 8));
        let mut nobody = Vec::<()>::new();
        let result = apply_with_backoff(&mut nobody, |fresh| fresh, |_| Err("broken"), |_, _, _| ());
        assert_eq!(result, Err("broken"));
    }
}
