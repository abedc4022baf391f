//! What the watch sees of the gateway, and what becomes of its alarms.

use super::{Gateway, Note};
use crate::alarms::Counts;
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_alarms::{Alarm, Kind, News, Severity};
use testudo_fastpath::fib::Route;
use testudo_ike::output::LogLevel;

impl Gateway {
    /// Looks at the counters, if it is time to, and passes on what the watch has to say.
    pub(crate) fn look_for_attacks(&mut self) {
        if self.alarms.is_due() {
            self.look_for_thieves();
            self.alarms.look(Counts { packets: &self.data, ike: self.endpoint.stats_mut() });
            self.look_at_dropped_sources();
            if self.alarms.wants_order(self.has_few_sas()) {
                self.begin_look_at_traffic();
            }
        }
        self.programs.reap();
        while let Some(news) = self.alarms.next_news() {
            self.tell_of_alarm(news);
        }
    }

    /// Somebody may have claimed an address of ours.
    fn look_for_thieves(&mut self) {
        if self.alarms.watches(Kind::AddressSpoofing) {
            let (fib, vips) = (self.data.fib(), self.data.vips());
            let stolen = self.own_claims.take(fib, &vips, &self.data.own_macs());
            stolen.into_iter().for_each(|sighting| self.alarms.see(sighting));
        }
    }

    /// The kernel's table of neighbours may have changed.
    pub(super) fn look_at_neighbours(&mut self) {
        let moved = self.claims.follow(self.data.fib());
        if moved.is_empty() {
            return;
        }
        // Other hosts come and go. These are the next hops of packets to peers.
        let ids = self.endpoint.sa_ids().into_iter();
        let peers = ids.filter_map(|id| self.endpoint.sa(id)).map(|sa| sa.remote.ip());
        let fib = self.data.fib();
        let next_hop = |peer| match fib.lookup(peer) {
            Route::Forward(hop) => Some(hop.neighbour(peer)),
            _ => None,
        };
        let next_hops: BTreeSet<IpAddr> = peers.filter_map(next_hop).collect();
        for neighbour in moved.iter().filter(|moved| next_hops.contains(&moved.address)) {
            self.alarms.see(neighbour.sighting());
        }
    }

    fn tell_of_alarm(&mut self, news: News) {
        let (state, alarm, line) = match &news {
            News::Drop(alarm, source, time) => return self.drop_source(alarm, *source, *time),
            News::Raised(alarm) => ("raised", alarm, alarm.to_string()),
            News::Lasts(alarm) => ("lasts", alarm, format!("{alarm}; it lasts")),
            News::Ended(alarm) => {
                ("ended", alarm, format!("{}, and then none for ten seconds", brief(alarm)))
            }
        };
        let level = match (&news, alarm.severity) {
            (News::Ended(_), _) | (_, Severity::Notice) => LogLevel::Notice,
            (_, Severity::Warning) => LogLevel::Warning,
            (_, Severity::Critical) => LogLevel::Error,
        };
        let report = Box::new(self.alarms.report(alarm));
        self.log(None, None, level, line);
        let program = self.alarms.program_for(alarm.kind).filter(|_| state != "lasts");
        if let Some(program) = program
            && let Some(why) = self.programs.start(&program, state, &report)
        {
            let line = format!("cannot run {} for alarm {}: {why}", program.display(), alarm.number);
            self.log(None, None, LogLevel::Warning, line);
        }
        self.notes.push_back(Note::Alarm(state, report));
    }
}

fn brief(alarm: &Alarm) -> String {
    let Alarm { number, kind, count, subject, peak, .. } = alarm;
    format!(
        "alarm {number} ({kind}) is over: {count} {} at {subject}, at most {peak} in a second",
        kind.what()
    )
}
