//! Where the brokers are: `host:port`, several with commas between them.

use crate::invalid::Invalid;

/// The brokers to ask first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Address {
    /// `host:port` each.
    pub(super) brokers: Vec<String>,
    /// All of them on this machine.
    pub(super) loopback: bool,
}

impl Address {
    /// Reads a list of brokers.
    ///
    /// # Errors
    /// `BROKERS_INVALID`.
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        let brokers: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
        let mut loopback = true;
        for broker in &brokers {
            let host = host(broker).ok_or_else(|| {
                let message = format!("`{}` is no broker", broker.escape_debug());
                let hint = "write host:port, and commas between several: kafka-1:9092,kafka-2:9092";
                Invalid::new("BROKERS_INVALID", "--brokers", message, hint)
            })?;
            loopback &= is_loopback(host);
        }
        Ok(Self { brokers, loopback })
    }

    /// All of it, for clients and messages.
    pub(super) fn text(&self) -> String {
        self.brokers.join(",")
    }
}

/// The host of `host:port`, without brackets; `None` for anything else.
pub(super) fn host(broker: &str) -> Option<&str> {
    let (host, port) = broker.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port > 0)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok().then_some(inner);
    }
    (!host.is_empty() && host.chars().all(plain)).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_hosts_with_ports() {
        let address = Address::parse("kafka-1:9092, [::1]:9093").unwrap();
        assert_eq!(address.brokers, ["kafka-1:9092", "[::1]:9093"]);
        assert!(!address.loopback);
        assert!(Address::parse("localhost:1,127.0.0.1:2,[::1]:3").unwrap().loopback);
        for bad in [
            "",
            ",",
            "h",
            "h:",
            ":1",
            "h:0",
            "h:65536",
            "h:x",
            "a b:1",
            "http://h:1",
            "[h]:1",
            "u@h:1",
        ] {
            assert_eq!(Address::parse(bad).map_err(|e| e.code), Err("BROKERS_INVALID"), "{bad}");
        }
    }
}
