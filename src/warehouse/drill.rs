//! A database of a drill's own in ClickHouse: on the same server, by a name that nothing else has, and destroyed.

use url::Url;

use super::address::refuse;
use super::{Error, Warehouse};
use crate::invalid::Invalid;

/// What the names of such databases begin with.
const PREFIX: &str = "finaz_drill_";

/// The URL of a drill's database on the server of this URL.
///
/// # Errors
/// [`Invalid`], without the password: not a URL.
pub fn drill_warehouse(url: &str, nonce: &str) -> Result<String, Invalid> {
    let mut url = Url::parse(url).map_err(|error| refuse(format!("is not a URL: {error}")))?;
    url.set_path(&format!("{PREFIX}{nonce}"));
    let rest: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| name != "database")
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    url.set_query(None);
    if !rest.is_empty() {
        url.query_pairs_mut().extend_pairs(rest);
    }
    Ok(url.into())
}

/// The same database by way of a port of this machine, and the address that the way must lead to; `None` over TLS, whose
/// names a proxy does not have.
#[must_use]
pub fn warehouse_by_way_of(url: &str, port: u16) -> Option<(String, String)> {
    let mut url = Url::parse(url).ok().filter(|url| url.scheme() == "http")?;
    let target = format!("{}:{}", url.host_str()?, url.port().unwrap_or(80));
    url.set_host(Some("127.0.0.1")).ok()?;
    url.set_port(Some(port)).ok()?;
    Some((url.into(), target))
}

impl Warehouse {
    /// Destroys the database, if its name is that of a drill's; any other is left alone.
    ///
    /// # Errors
    /// What any call may meet.
    pub async fn drop_drill(&self) -> Result<(), Error> {
        if !self.database.starts_with(PREFIX) {
            return Ok(());
        }
        self.execute(&format!("DROP DATABASE IF EXISTS {} SYNC", self.database)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_leads_to_the_drill_s_database_and_keeps_the_rest() {
        for (url, expected) in [
            ("http://u:p@h:8123/finaz", "http://u:p@h:8123/finaz_drill_1"),
            (
                "http://h:8123?database=a&sslrootcert=%2Fc",
                "http://h:8123/finaz_drill_1?sslrootcert=%2Fc",
            ),
            ("https://h", "https://h/finaz_drill_1"),
        ] {
            assert_eq!(drill_warehouse(url, "1").expect("a URL"), expected);
        }
        assert!(drill_warehouse("hunter2", "1").is_err());
    }

    #[test]
    fn a_url_leads_by_way_of_a_port_and_says_where_to() {
        let (way, target) = warehouse_by_way_of("http://u:p%40@h:8123/d", 7).expect("a URL");
        assert_eq!((way.as_str(), target.as_str()), ("http://u:p%40@127.0.0.1:7/d", "h:8123"));
        assert_eq!(warehouse_by_way_of("https://h/d", 7), None);
    }
}
