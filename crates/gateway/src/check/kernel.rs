//! Settings of the kernel that decide about packets.

use super::{Host, Report};
use crate::config::Config;
use testudo_fastpath::tun::TunError;

/// Strict reverse path filtering (RFC 3704 §2.2), in `rp_filter`.
const RP_FILTER_STRICT: &str = "1";

pub(super) fn look(config: &Config, host: &dyn Host, report: &mut Report) {
    let setting = |path: String| host.read(&path).map(|text| text.trim().to_owned());
    let rp_filter = |interface: &str| setting(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"));
    if let Some(found) = rp_filter("all").filter(|found| found != "0") {
        report.fault(TunError::ReversePath { found }.to_string());
    }
    for port in &config.ports {
        let interface = &port.interface;
        if rp_filter(interface).as_deref() == Some(RP_FILTER_STRICT) {
            report.warn(format!(
                "net.ipv4.conf.{interface}.rp_filter is 1 (strict): the kernel drops IKE and clear packets that come in \
                 by {interface} from sources whose route leads elsewhere, as that of a protected prefix leads into \
                 {}. Set it to 0, or to 2 (loose), where routes are asymmetric or a peer's own address is protected",
                config.tun
            ));
        }
    }
    forwarding(host, report);
}

/// Workers forward the traffic of tunnels; the kernel forwards all else.
fn forwarding(host: &dyn Host, report: &mut Report) {
    let families = [
        ("IPv4", "net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("IPv6", "net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ];
    let on = |path: &str| host.read(path).is_some_and(|text| text.trim() != "0");
    let forwarded: Vec<&str> =
        families.iter().filter(|(.., path)| on(path)).map(|(family, ..)| *family).collect();
    if forwarded.is_empty() {
        let settings = families.map(|(_, setting, _)| setting).join(" and ");
        report.warn(format!(
            "{settings} are 0: workers forward what comes by ports to and from tunnels; the kernel forwards nothing, \
             neither clear packets nor what comes to a tunnel by an interface that is no port"
        ));
    } else {
        report.would(format!("leave clear {} to the kernel, which forwards it", forwarded.join(" and ")));
    }
}
