//! New keys for the IKE SA (RFC 7296 §1.3.2, §2.18): a new IKE SA, to which the children move, and the old one goes.

use super::agreement::{Exchanged, KeyedAnswer};
use super::followup::next_link;
use super::keys::{agreed_keys, other_method};
use crate::alloc::Home;
use crate::config::{Connection, IkeChange};
use crate::endpoint::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::endpoint::{Endpoint, ExchangeCounter};
use crate::exchange::child::NoChild;
use crate::exchange::describe;
use crate::message::{ExchangeType, IkeSpi, NotifyType, Payload, Payloads, SaPayload};
use crate::output::{Event, Reason, Time};
use crate::sa::{
    AgreedIke, ChildPhase, Closing, Creating, FollowupSa, IkeSa, KeyExchanges, Keys, Offered, OutdatedIke,
    Phase, RequestKind, Rival, RivalSa, Series, Task, Times, WantedIke, What, earlier, lowest,
};
use crate::suite::{IkeKeys, IkeSpis, Nonces, Role, SuiteError, accept, offer, select};
use std::sync::Arc;

impl Endpoint {
    /// Asks for new keys of the IKE SA. False: that cannot be asked.
    pub(crate) fn ask_new_ike_keys(&mut self, now: Time, sa: &mut IkeSa) -> Result<bool, Reason> {
        sa.times.rekey = None;
        if sa.followup.is_some() {
            // What the peer is making would not know where it belongs.
            self.try_later(now, sa, Task::RekeyIke);
            return Ok(false);
        }
        self.log(sa, ORDINARY, format!("rekeying IKE_SA {}[{}]", sa.connection, sa.id.0));
        let asked = self.begin_ike_rekey(now, sa);
        if let Err(reason) = &asked {
            self.ike_rekey_failed(now, sa, false, &reason.to_string());
        }
        Ok(asked.is_ok())
    }

    fn begin_ike_rekey(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let refuse = |text: &str| Reason::Refused(text.to_owned());
        let connection = self.connections.get(&sa.connection);
        let connection = connection.ok_or_else(|| refuse("the connection was unloaded meanwhile"))?;
        let spi = self
            .new_ike_spi(Home::Renewing(sa.our_spi().shard()))
            .ok_or_else(|| refuse("no free SPI is left"))?;
        let nonce = self.new_nonce().ok_or_else(|| refuse("there is no entropy"))?;
        let offered = connection.proposals.clone();
        let method = offered.iter().find_map(|proposal| proposal.ke.first()).copied();
        let ke = self.key_for(method)?;
        let tried = method.into_iter().collect();
        let what = What::Ike(WantedIke { spi, series: None });
        let creating = Creating {
            what,
            nonce,
            ke,
            tried,
            offered: Offered::Ike(offered),
            anew: false,
            outdated: false,
            rival: None,
        };
        self.ask_ike(now, sa, creating, spi)
    }

    fn ask_ike(&mut self, now: Time, sa: &mut IkeSa, creating: Creating, spi: IkeSpi) -> Result<(), Reason> {
        let offered = offer::ike(creating.offered.ike(), Some(spi));
        let mut payloads = vec![Payload::Sa(offered), Payload::Nonce(creating.nonce.clone())];
        payloads.extend(creating.ke.as_ref().map(|ke| Payload::Ke(ke.payload())));
        sa.creating = Some(Box::new(creating));
        self.request(now, sa, ExchangeType::CreateChildSa, RequestKind::CreateChild, payloads)
    }

    /// The answer. `Err`: the IKE SA is gone.
    pub(super) fn ike_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        mut creating: Creating,
        spi: IkeSpi,
        answer: KeyedAnswer<'_>,
    ) -> Result<(), Reason> {
        let payloads = answer.payloads;
        if payloads.sa().is_none()
            && let Some(error) = payloads.error()
        {
            let offered =
                |method| creating.offered.ike().iter().any(|proposal| proposal.ke.contains(&method));
            let other = other_method(payloads, &creating, offered).filter(|_| sa.closing.is_none());
            if let Some(method) = other {
                creating.ke = self.key_for(Some(method))?;
                creating.tried.push(method);
                return self.ask_ike(now, sa, creating, spi);
            }
            self.ike_refused(now, sa, &creating, &format!("the peer answered {}", error.kind));
            return Ok(());
        }
        let judged = judge_ike(sa, &creating, spi, answer).and_then(|series| {
            let next = next_link(&series.exchanges, payloads)?;
            Ok((series, next))
        });
        match judged {
            Ok((series, None)) => self.ike_agreed(now, sa, &creating, &series),
            Ok((series, Some(next))) => self.begin_ike_series(now, sa, creating, spi, series, next),
            Err(why) => {
                self.ike_refused(now, sa, &creating, &why);
                Ok(())
            }
        }
    }

    /// Both sides have new keys; if both renewed the IKE SA at once, the lowest nonce decides whose stay (RFC 7296 §2.8.2).
    pub(super) fn ike_agreed(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        creating: &Creating,
        series: &Series<AgreedIke>,
    ) -> Result<(), Reason> {
        let Series { agreed, exchanges } = series;
        let keys = match renewed(sa, *agreed, exchanges) {
            Ok(keys) => keys,
            Err(error) => {
                self.ike_refused(now, sa, creating, &error.to_string());
                return Ok(());
            }
        };
        let mut new = self.successor(now, sa, Role::Initiator, keys, agreed.spis);
        if creating.outdated && new.outdated.is_none() {
            // It is by what the connection was when we asked.
            self.outdate_ike(now, &mut new, IkeChange::Rekey);
        }
        self.count(sa, ExchangeCounter::IkeRekeyInit);
        let deadline = now.plus(self.config.delete_timeout);
        if sa.closing.is_some() {
            // Too late: the old one is on its way out, and what was to be its successor with it.
            self.delete_ike(now, &mut new, Reason::Rekeyed, deadline)?;
            self.put(new);
            if let Some(Rival { sa: RivalSa::Ike(rival), .. }) = creating.rival {
                self.yield_to(now, sa, rival);
            }
            return Ok(());
        }
        if creating.is_outdone(&exchanges.nonces) {
            self.delete_ike(now, &mut new, Reason::Rekeyed, deadline)?;
            self.put(new);
            self.ike_outdone(now, sa, creating);
            return Ok(());
        }
        match creating.rival.as_ref().map(|rival| rival.sa) {
            Some(RivalSa::Ike(rival)) => self.outlive(now, rival),
            Some(RivalSa::Awaited) => self.forget_followup(now, sa),
            Some(RivalSa::Child(_)) | None => {}
        }
        self.inherit(now, sa, &mut new);
        self.put(new);
        self.delete_ike(now, sa, Reason::Rekeyed, deadline)
    }

    /// Both sides have renewed the IKE SA, and what the peer makes of it counts. The peer deletes the old one.
    pub(super) fn ike_outdone(&mut self, now: Time, sa: &mut IkeSa, creating: &Creating) {
        self.log(sa, ORDINARY, "the peer renews the IKE_SA too: its new one stays, ours goes");
        match creating.rival.as_ref().map(|rival| rival.sa) {
            Some(RivalSa::Ike(rival)) => self.yield_to(now, sa, rival),
            // Should the peer not go on, we do.
            _ => self.try_later(now, sa, Task::RekeyIke),
        }
    }

    /// The peer makes no new IKE SA. One that it has made itself at the same time is the one that counts.
    pub(super) fn ike_refused(&mut self, now: Time, sa: &mut IkeSa, creating: &Creating, why: &str) {
        match &creating.rival {
            Some(Rival { sa: RivalSa::Ike(rival), .. }) => self.yield_to(now, sa, *rival),
            _ => self.ike_rekey_failed(now, sa, creating.outdated, why),
        }
    }

    /// `outdated`: what failed is not what we would ask for now.
    fn ike_rekey_failed(&mut self, now: Time, sa: &mut IkeSa, outdated: bool, why: &str) {
        self.stats.failed += 1;
        self.log(sa, FAILURE, format!("no new keys for IKE_SA {}[{}]: {why}", sa.connection, sa.id.0));
        let by_change = sa.outdated.as_ref().is_some_and(|outdated| outdated.is_rekey());
        if sa.closing.is_none() && by_change && !outdated {
            self.rekey_is_not_enough(now, sa);
        } else if sa.closing.is_none() {
            self.try_later(now, sa, Task::RekeyIke);
        }
    }

    /// The peer wants new keys for the IKE SA.
    pub(super) fn answer_ike_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        payloads: &Payloads,
        exchanged: Option<Exchanged>,
    ) -> Result<Vec<Payload>, NoChild> {
        if let Some(why) = busy(sa) {
            return Err(NoChild::new(NotifyType::TemporaryFailure, why));
        }
        let gone = || NoChild::new(NotifyType::NoProposalChosen, "the connection is not configured any more");
        let connection = self.connections.get(&sa.connection).ok_or_else(gone)?;
        let none = || NoChild::new(NotifyType::InvalidSyntax, "SA is missing");
        let offered = payloads.sa().ok_or_else(none)?;
        let choice =
            select::ike(offered, &connection.proposals).map_err(|_| no_proposal(offered, &connection))?;
        let initiator = choice.spi.ok_or_else(|| no_proposal(offered, &connection))?;
        let (nonces, keys) = self.answer_keys(sa, Some(choice.suite.ke), payloads, exchanged)?;
        let (ke, shared) = keys.unzip();
        let nonce = nonces.responder.clone();
        let exchanges = KeyExchanges::new(nonces, shared, choice.suite.additional);
        let no_spi = || NoChild::new(NotifyType::TemporaryFailure, "no free SPI is left");
        let responder = self.new_ike_spi(Home::Renewing(sa.our_spi().shard())).ok_or_else(no_spi)?;
        let agreed = AgreedIke { suite: choice.suite, spis: IkeSpis { initiator, responder } };
        let link = if exchanges.due().is_some() {
            Some(self.begin_followup(now, sa, FollowupSa::Ike(agreed), exchanges)?)
        } else {
            self.complete_ike(now, sa, agreed, &exchanges)?;
            None
        };
        let mut answer = vec![Payload::Sa(choice.answer(Some(responder))), Payload::Nonce(nonce)];
        answer.extend(ke.map(Payload::Ke));
        answer.extend(link.map(Payload::Notify));
        Ok(answer)
    }

    /// All key exchanges have taken place.
    pub(super) fn complete_ike(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        agreed: AgreedIke,
        exchanges: &KeyExchanges,
    ) -> Result<(), NoChild> {
        let failed = |error: SuiteError| NoChild::new(NotifyType::TemporaryFailure, error.to_string());
        let keys = renewed(sa, agreed, exchanges).map_err(failed)?;
        self.adopt(now, sa, keys, agreed.spis, &exchanges.nonces);
        Ok(())
    }

    /// The responder has a new IKE SA. The children are its, unless we are renewing the old one too: then the nonces will
    /// tell (RFC 7296 §2.8.2).
    fn adopt(&mut self, now: Time, sa: &mut IkeSa, keys: IkeKeys, spis: IkeSpis, nonces: &Nonces) {
        let mut new = self.successor(now, sa, Role::Responder, keys, spis);
        self.count(sa, ExchangeCounter::IkeRekeyResp);
        match sa.creating.as_mut() {
            Some(creating) => {
                let rival = Rival { lowest: lowest(nonces).clone(), sa: RivalSa::Ike(new.our_spi()) };
                creating.rival = Some(rival);
                new.rival_of = Some(sa.our_spi());
            }
            None => {
                self.inherit(now, sa, &mut new);
                self.await_delete(now, sa);
            }
        }
        self.put(new);
    }

    /// The peer's new IKE SA takes the place of this one.
    fn yield_to(&mut self, now: Time, sa: &mut IkeSa, rival: IkeSpi) {
        let rival =
            self.table.by_spi(rival).filter(|new| new.rival_of == Some(sa.our_spi()) && !new.is_gone());
        let Some(id) = rival.map(|new| new.id) else { return };
        self.with_sa(now, id, |endpoint, new| endpoint.succeed(now, sa, new));
    }

    /// The place of an IKE SA is another's: with all that it has, or, where it is to go, with the wish that it goes.
    fn succeed(&mut self, now: Time, sa: &mut IkeSa, new: &mut IkeSa) -> Result<(), Reason> {
        let wish = sa.closing.as_ref().map(|closing| closing.reason.clone());
        match wish.filter(|reason| *reason != Reason::Rekeyed) {
            Some(reason) if new.closing.is_none() => {
                new.rival_of = None;
                self.delete_ike(now, new, reason, now.plus(self.config.delete_timeout))
            }
            Some(_) => Ok(()),
            None => {
                self.inherit(now, sa, new);
                self.await_delete(now, sa);
                Ok(())
            }
        }
    }

    /// An IKE SA that both sides were at renewing is gone, and not because the peer's new one won: that one is all that is left.
    pub(crate) fn leave_to_rival(&mut self, now: Time, sa: &mut IkeSa) {
        let rival = sa.creating.as_ref().and_then(|creating| creating.rival.as_ref());
        let Some(RivalSa::Ike(rival)) = rival.map(|rival| rival.sa) else { return };
        self.yield_to(now, sa, rival);
    }

    /// The peer uses the IKE SA that it has made while we were at renewing the same: it is the one that stays, and we need
    /// not wait for our answer to know it.
    pub(crate) fn decide_for(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let old = sa.rival_of.take().and_then(|old| self.table.by_spi(old)).map(|old| old.id);
        let Some(mut old) = old.and_then(|id| self.table.take(id)) else { return Ok(()) };
        let decided = self.succeed(now, &mut old, sa);
        self.put(old);
        decided
    }

    /// The peer has deleted the IKE SA. If it had renewed it, the new one is in its place, also where we were at renewing it
    /// ourselves (RFC 7296 §2.25.2).
    pub(crate) fn ike_deleted(&mut self, now: Time, sa: &mut IkeSa) -> Reason {
        let rival = sa.creating.as_ref().and_then(|creating| creating.rival.as_ref());
        if let Some(RivalSa::Ike(rival)) = rival.map(|rival| rival.sa) {
            self.yield_to(now, sa, rival);
        }
        match &sa.closing {
            Some(closing) if closing.reason == Reason::Rekeyed => Reason::Rekeyed,
            _ => Reason::DeletedByPeer,
        }
    }

    /// What the peer made at the same time as we did, and for nothing, it deletes itself (RFC 7296
    /// §2.8.2). A peer that our delete of the old IKE SA reaches before our answer has forgotten
    /// its request, and will never know what we made of it (§2.25.2). It can hear our answer for as
    /// long as the old IKE SA waits for its end, and no longer.
    fn outlive(&mut self, now: Time, rival: IkeSpi) {
        let rival = self.table.by_spi(rival).filter(|sa| !sa.is_gone()).map(|sa| sa.id);
        if let Some(mut sa) = rival.and_then(|id| self.table.take(id)) {
            self.commit(&mut sa);
            sa.rival_of = None;
            await_delete_until(&mut sa, now.plus(self.config.delete_timeout));
            self.put(sa);
        }
    }

    /// The peer deletes the IKE SA that it has renewed. Until then it repeats the answer that says so.
    fn await_delete(&self, now: Time, sa: &mut IkeSa) {
        await_delete_until(sa, now.plus(self.config.retransmit.patience()));
    }

    /// A new IKE SA between the same two, with counters that begin at 0 (RFC 7296 §2.18).
    fn successor(&mut self, now: Time, sa: &IkeSa, role: Role, keys: IkeKeys, spis: IkeSpis) -> IkeSa {
        let id = self.new_ike_id();
        let lifetime = self.connections.get(&sa.connection).map(|connection| connection.lifetime);
        // New keys do not prove again who the peer is.
        let mut times = Times::of_ike(&lifetime.unwrap_or_default(), sa.reauth_at, now, self.entropy());
        // New keys are by the connection as it is now; the rest is as it was.
        let outdated = sa.outdated.clone().filter(|_| sa.keeps_its_end());
        let outdated =
            outdated.or_else(|| self.has_lost_its_proof(sa).then(|| Box::new(OutdatedIke::given_up())));
        if outdated.is_some() {
            times.end = earlier(times.end, sa.times.end);
        }
        let blank = IkeSa::new(id, role, spis, sa.connection.clone(), sa.path, now);
        let mut new = IkeSa {
            phase: Phase::Established,
            keys: Some(Keys::new(keys, role, self.alloc.sender_id())),
            established: Some(now),
            times,
            reauth_at: sa.reauth_at,
            creations_until: sa.creations_until,
            began_at: sa.began_at.clone(),
            nat: sa.nat,
            // Of rekeying RFC 6311 says nothing; but what both sides can counts "during the lifetime of the SA" (§5), there
            // is no IKE_AUTH to say it again, and charon sees it that way too.
            extensions: sa.extensions,
            local_id: sa.local_id.clone(),
            remote_id: sa.remote_id.clone(),
            anchor: sa.anchor.clone(),
            // SK_d came from it, and so do the new keys.
            ppk: sa.ppk,
            dpd_delay: sa.dpd_delay,
            outdated,
            ..blank
        };
        if new.keeps_its_end() && !sa.keeps_its_end() {
            self.reauthenticate_before_end(&mut new);
        }
        self.commit(&mut new);
        new
    }

    /// The children move over, and what was about to be asked.
    fn inherit(&mut self, now: Time, sa: &mut IkeSa, new: &mut IkeSa) {
        self.commit(sa);
        self.commit(new);
        new.rival_of = None;
        new.children.append(&mut sa.children);
        new.virtual_ips = std::mem::take(&mut sa.virtual_ips);
        new.childless = sa.childless.take();
        self.pools.hand_on(sa.id, new);
        new.outgoing.tasks.append(&mut sa.outgoing.tasks);
        new.outgoing.later.append(&mut sa.outgoing.later);
        // The windows of the new one have not been anybody else's.
        let renewal = |task: &Task| matches!(task, Task::RekeyIke | Task::SyncMessageIds);
        new.outgoing.tasks.retain(|task| !renewal(task));
        new.outgoing.later.retain(|delayed| !renewal(&delayed.task));
        for task in new.outgoing.tasks.iter().chain(new.outgoing.later.iter().map(|delayed| &delayed.task)) {
            if let Task::NewChild { name, .. } = task {
                let moved = Event::InitiateMoved { from: sa.id, to: new.id, child: name.clone() };
                self.event(moved);
            }
        }
        let line = format!("IKE_SA {}[{}] rekeyed: it is [{}] now", sa.connection, sa.id.0, new.id.0);
        self.log(sa, IMPORTANT, line);
        self.event(Event::IkeRekeyed(sa.id, new.id));
        // Its turn comes as soon as the peer can know the new IKE SA.
        let tasks = std::mem::take(&mut new.outgoing.tasks);
        tasks.into_iter().for_each(|task| new.outgoing.delay(now, task));
    }
}

fn await_delete_until(sa: &mut IkeSa, deadline: Time) {
    sa.closing = Some(Box::new(Closing { reason: Reason::Rekeyed, deadline }));
}

/// Why no new IKE SA can be made now (RFC 7296 §2.25.2). Its children would not know where they belong.
fn busy(sa: &IkeSa) -> Option<&'static str> {
    let awaited = sa.followup.as_ref().is_some_and(|followup| !followup.sa.is_ike());
    match sa.creating.as_deref() {
        Some(creating) if creating.is_ike() && creating.is_in_series() => Some("we are at renewing it"),
        Some(Creating { rival: Some(Rival { sa: RivalSa::Ike(_), .. }), .. }) => {
            Some("the IKE_SA is being renewed")
        }
        _ if awaited => Some("a CHILD_SA is being made"),
        _ => obstacle(sa),
    }
}

/// Why none can be made either if that has begun.
pub(super) fn obstacle(sa: &IkeSa) -> Option<&'static str> {
    let deleting = matches!(&sa.outgoing.pending, Some(p) if matches!(p.kind, RequestKind::DeleteSpi(_)));
    let moving = |child: &crate::sa::ChildSa| child.phase == ChildPhase::Deleting;
    match &sa.creating {
        _ if sa.closing.is_some() => Some("the IKE_SA is on its way out"),
        Some(creating) if !creating.is_ike() => Some("a CHILD_SA is being made"),
        _ if sa.reauth.is_some() => Some("the IKE_SA is being reauthenticated"),
        _ if deleting || sa.children.iter().any(moving) => Some("a CHILD_SA is being deleted"),
        _ => None,
    }
}

/// The check of the answer, and what the keys are made of. The error is for the log.
fn judge_ike(
    sa: &IkeSa,
    creating: &Creating,
    spi: IkeSpi,
    answer: KeyedAnswer<'_>,
) -> Result<Series<AgreedIke>, String> {
    let chosen = answer.payloads.sa().ok_or("the answer has no SA")?;
    let offered = offer::ike(creating.offered.ike(), Some(spi));
    let text = |error: SuiteError| error.to_string();
    let (suite, theirs) = accept::ike(&offered, creating.offered.ike(), chosen).map_err(text)?;
    let responder = theirs.ok_or("the answer has no SPI")?;
    let agreed = AgreedIke { suite, spis: IkeSpis { initiator: spi, responder } };
    let exchanges = agreed_keys(sa, creating, Some(suite.ke), suite.additional, answer)?;
    Ok(Series { agreed, exchanges })
}

/// Every new key of the IKE SA.
fn renewed(sa: &IkeSa, agreed: AgreedIke, exchanges: &KeyExchanges) -> Result<IkeKeys, SuiteError> {
    let keys = sa.keys.as_ref().ok_or(SuiteError::Prf)?;
    keys.ike.derive_rekeyed(agreed.suite, &exchanges.shared, &exchanges.nonces, agreed.spis)
}

fn no_proposal(offered: &SaPayload, connection: &Arc<Connection>) -> NoChild {
    let (theirs, ours) = (describe::sa(offered), describe::ike_proposals(&connection.proposals));
    let why = format!("no common IKE proposal: offered {theirs}, configured {ours}");
    NoChild::new(NotifyType::NoProposalChosen, why)
}
