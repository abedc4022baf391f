//! A node dies during many setups. Every initiator whose IKE_AUTH was answered has a tunnel, and it
//! must still exist.
//!
//! To check this, each initiator rekeys its Child SA: a node can only answer that if it has both
//! SAs and the current message IDs.

use super::FailoverArgs;
use super::crash::Crash;
use super::site::{NODES, Places, Site};
use crate::error::BenchError;
use crate::figures::{Aim, Row, Source};
use crate::setup::initiator::Initiator;
use crate::setup::shape::Shape;
use crate::setup::swarm::{Ended, Swarm};
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_terminal::progress::Progress;

/// Limit for the setups: a handshake whose node has died may need to be started again by hand.
const SETUP_LIMIT: Duration = Duration::from_secs(45);
/// Limit for the rekeyings, and for deleting the tunnels.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
/// The node dies when this part of all tunnels is up.
const AT: f64 = 0.5;

/// The result of a storm.
struct Outcome {
    /// Initiators whose IKE_AUTH was answered: before the node died, and in total.
    before: usize,
    answered: usize,
    /// Those of all that have no tunnel.
    lost: usize,
    /// Setups per second until the node died.
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
