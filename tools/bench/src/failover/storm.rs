//! A node dies in the middle of a storm of setups. Whoever has had an answer to his IKE_AUTH has a
//! tunnel, and it must be there.
//!
//! That is asked of each initiator himself: he makes new keys for his Child SA. Only who has both
//! SAs, and knows which messages have been exchanged, can answer that.

use super::FailoverArgs;
use super::crash::Crash;
use super::figures::{Aim, Row, Source};
use super::site::{NODES, Places, Site};
use crate::error::BenchError;
use crate::setup::initiator::Initiator;
use crate::setup::shape::Shape;
use crate::setup::swarm::{Ended, Swarm};
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_terminal::progress::Progress;

/// For the setups: a handshake whose node has died may begin anew by hand only.
const SETUP_LIMIT: Duration = Duration::from_secs(45);
/// For new keys, and for taking the tunnels down.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
/// The node dies when so many of all have their tunnel.
const AT: f64 = 0.5;

/// What came of a storm.
struct Outcome {
    /// Whose IKE_AUTH was answered: before the node died, and in all.
    before: usize,
    answered: usize,
    /// Of all those, who have no tunnel.
    lost: usize,
    /// Setups a second until the node died.
    rate: f64,
}

pub(super) fn measure(args: &FailoverArgs, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let mut site = Site::start(Kind::Strongswan)?;
    let across = site.across().clone();
    let outcomes = across.enter(|| -> Result<Vec<Outcome>, BenchError> {
        let mut swarm = Swarm::open(Shape::OneForAll, Places::CLUSTER)?;
        progress.begin("failover, storms", args.repeats.into());
        let storms = (0..args.repeats).map(|repeat| {
            let victim = (repeat % u32::from(NODES) + 1) as u8;
            let outcome = storm(&mut site, &mut swarm, args, victim, progress)?;
            progress.step();
            Ok(outcome)
        });
        storms.collect()
    })??;
    let of = |value: fn(&Outcome) -> usize| outcomes.iter().map(|outcome| value(outcome) as f64).collect();
    let what = format!("tunnels lost, node killed while {} are set up", args.tunnels);
    Ok(vec![
        Row::new(what, "tunnels", of(|outcome| outcome.lost))
            .others(Source::Strongswan, "4-5 % never reach the standby")
            .aim(Aim::none_above(0.0)),
        Row::new("of those answered in all", "tunnels", of(|outcome| outcome.answered)),
        Row::new("answered before the node died", "tunnels", of(|outcome| outcome.before)),
        Row::new("setups until the node died", "1/s", outcomes.iter().map(|outcome| outcome.rate).collect()),
    ])
}

fn storm(
    site: &mut Site,
    swarm: &mut Swarm,
    args: &FailoverArgs,
    victim: u8,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    let width = args.width as usize;
    let initiators = swarm.prepare(0..args.tunnels)?;
    let enough = (f64::from(args.tunnels) * AT) as usize;
    let (start, mut struck) = (Instant::now(), None);
    let ended = swarm.follow(initiators, width, SETUP_LIMIT, |ended: &Ended| {
        if struck.is_none() && ended.done.len() >= enough {
            struck = Some((ended.done.len(), start.elapsed()));
            Crash::Killed.strike(&mut site.bed, victim)?;
        }
        Ok::<_, BenchError>(())
    })?;
    let (before, time) = struck.unwrap_or((ended.done.len(), start.elapsed()));
    let answered = ended.done.len();
    let survivors: Vec<u8> = (1..=NODES).filter(|node| *node != victim).collect();
    site.bed.await_members(&survivors)?;
    let look = |_: &Ended| Ok::<_, BenchError>(());
    let renewed = swarm.follow(each(ended.done, Initiator::renew), width, CHECK_LIMIT, look)?;
    let lost = renewed.failed.len();
    if let Some((number, reason)) = renewed.failed.first() {
        let others = lost - 1;
        progress.aside(|| eprintln!("tunnel {number} is lost, as are {others} others: {reason}"));
    }
    swarm.follow(each(renewed.done, Initiator::end), width, CHECK_LIMIT, look)?;
    Crash::Killed.mend(&mut site.bed, victim)?;
    Ok(Outcome { before, answered, lost, rate: before as f64 / time.as_secs_f64() })
}

fn each(initiators: Vec<(u32, Initiator)>, what: fn(&mut Initiator)) -> Vec<(u32, Initiator)> {
    let mut initiators = initiators;
    initiators.iter_mut().for_each(|(_, initiator)| what(initiator));
    initiators
}
