//! How we reach PostgreSQL: the URL, TLS, and what every session is set to.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Error;
use crate::invalid::Invalid;

/// A connection that is not there by then counts as an absent service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes sent and not acknowledged for this long end a connection: a frozen host must not hold us.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
/// Sessions of one process: a command needs one, a worker one for each stage of its pipeline.
const POOL_MAX: usize = 6;
/// A session that nothing was asked of for this long is asked whether it is still there before it is used: the server may
/// have ended it while this process was stopped, and the news not have been read yet.
const IDLE: Duration = Duration::from_millis(10);

/// What we connect with. Its `Debug` does not show the password.
#[derive(Clone)]
pub struct Connect {
    config: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
    session: String,
    /// `user@host:port/database`, for messages.
    pub place: String,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connect").field(&self.place).finish()
    }
}

/// How long a session may hold others up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The lease's TTL: an idle transaction ends before a lease does, so that a stopped owner
    /// cannot hold up its successor.
    pub ttl: Duration,
}

impl Connect {
    /// Reads a `postgresql://` URL. Beside libpq's names it knows `sslmode=verify-full` (the default
    /// for a host that is not loopback) and `sslrootcert=FILE`. Plaintext needs loopback or consent.
    pub fn new(url: &str, limits: Limits, allow_plaintext: bool) -> Result<Self, Invalid> {
        let (url, tls_words) = split_tls(url)?;
        let mut config: tokio_postgres::Config = url.parse().map_err(|_unshown| bad_url())?;
        let local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => is_loopback(name),
            Host::Unix(_) => true,
        });
        if config.get_hosts().is_empty() {
            return Err(bad_url());
        }
        let tls = match tls_words.mode.as_deref() {
            Some("disable") if local || allow_plaintext => None,
            None if local => None,
            Some("disable") => return Err(plaintext_refused()),
            None | Some("require" | "verify-ca" | "verify-full") => {
                Some(tls(tls_words.root.as_deref())?)
            }
            Some(_other) => return Err(bad_url()),
        };
        // Allowed to do without and not told how: TLS if the server has it.
        let either = allow_plaintext && tls_words.mode.is_none();
        config.ssl_mode(match (&tls, either) {
            (None, _) => SslMode::Disable,
            (Some(_), true) => SslMode::Prefer,
            (Some(_), false) => SslMode::Require,
        });
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(TCP_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(5)).keepalives_interval(Duration::from_secs(2));
        // So that a person, or a drill, knows the sessions of one process from another's.
        if config.get_application_name().is_none() {
            config.application_name("finaz");
        }
        let place = place(&config);
        let hold = limits.ttl.min(Duration::from_mins(1)).as_millis().max(100);
        let lock = (limits.ttl / 2).min(Duration::from_secs(5)).as_millis().max(50);
        let session = format!(
            "SET idle_in_transaction_session_timeout = {hold}; SET lock_timeout = {lock}; \
             SET synchronous_commit = on; SET timezone = 'UTC'; SET jit = off"
        );
        Ok(Self { config, tls, session, place })
    }

    /// A pool of sessions; opens none yet.
    pub(super) fn pool(&self) -> Result<Pool, Error> {
        let manage = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &self.tls {
            None => Manager::from_config(self.config.clone(), NoTls, manage),
            Some(tls) => Manager::from_config(self.config.clone(), tls.clone(), manage),
        };
        let session = self.session.clone();
        Pool::builder(manager)
            .max_size(POOL_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(30)))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .pre_recycle(Hook::async_fn(|client, metrics| {
                let idle = metrics.last_used() >= IDLE;
                Box::pin(async move {
                    if idle {
                        client.check_connection().await.map_err(HookError::Backend)?;
                    }
                    Ok(())
                })
            }))
            .post_create(Hook::async_fn(move |client, _metrics| {
                let session = session.clone();
                Box::pin(
                    async move { client.batch_execute(&session).await.map_err(HookError::Backend) },
                )
            }))
            .build()
            .map_err(|error| Error::Away { place: self.place.clone(), why: error.to_string() })
    }

    /// A session of its own, outside of the pool, with what the server says unasked.
    pub(super) async fn session(
        &self,
        notices: tokio::sync::mpsc::Sender<()>,
    ) -> Result<Client, Error> {
        let timed = tokio::time::timeout(CONNECT_TIMEOUT, async {
            match &self.tls {
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    tokio::spawn(super::listen::drive(connection, notices));
                    Ok::<_, tokio_postgres::Error>(client)
                }
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    tokio::spawn(super::listen::drive(connection, notices));
                    Ok(client)
                }
            }
        });
        let client = timed
            .await
            .map_err(|_late| self.away("no answer in time"))?
            .map_err(|error| Error::of(&self.place, &error))?;
        client
            .batch_execute(&self.session)
            .await
            .map_err(|error| Error::of(&self.place, &error))?;
        Ok(client)
    }

    pub(super) fn away(&self, why: &str) -> Error {
        Error::Away { place: self.place.clone(), why: why.to_owned() }
    }
}

struct TlsWords {
    mode: Option<String>,
    root: Option<String>,
}

/// Takes `sslmode` and `sslrootcert` out of the URL's query: the client library knows neither
/// verify-full nor a root file.
fn split_tls(url: &str) -> Result<(String, TlsWords), Invalid> {
    let mut words = TlsWords { mode: None, root: None };
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), words));
    };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=').ok_or_else(bad_url)? {
            ("sslmode", mode) => words.mode = Some(mode.to_owned()),
            ("sslrootcert", file) => words.root = Some(file.replace("%2F", "/")),
            _ => rest.push(pair),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, words))
}

/// A URL in its parts, as the client library takes it apart: what comes before the host, the host and port, and what
/// follows the name of the database.
fn parts(url: &str) -> (&str, &str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let user = url[start..].find('@').map_or(start, |at| start + at + 1);
    let host = url[user..].find(['/', '?']).map_or(url.len(), |at| user + at);
    let query = url[host..].find('?').map_or(url.len(), |at| host + at);
    (&url[..user], &url[user..host], &url[query..])
}

/// The same server, another database.
pub(super) fn in_database(url: &str, database: &str) -> String {
    let (user, host, query) = parts(url);
    format!("{user}{host}/{database}{query}")
}

/// The same database, by way of a port of this machine; and the address that the way must lead to.
#[must_use]
pub fn by_way_of(url: &str, port: u16) -> (String, String) {
    let (user, host, _) = parts(url);
    let rest = &url[user.len() + host.len()..];
    let target = match host.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        Some(_) | None => format!("{host}:5432"),
    };
    (format!("{user}127.0.0.1:{port}{rest}"), target)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// The URL is never shown: it may hold a password.
fn bad_url() -> Invalid {
    Invalid::new(
        "PG_URL_INVALID",
        "FINAZ_PG_URL",
        "is not a PostgreSQL URL",
        "write postgresql://user:password@host:port/database?sslmode=verify-full",
    )
}

fn plaintext_refused() -> Invalid {
    Invalid::new(
        "PLAINTEXT_REFUSED",
        "FINAZ_PG_URL",
        "asks for a connection without TLS to a host that is not this one",
        "use sslmode=verify-full, or allow it with --allow-plaintext",
    )
}

fn tls(root: Option<&str>) -> Result<MakeRustlsConnect, Invalid> {
    let mut roots = rustls::RootCertStore::empty();
    match root {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            let refuse = |what: String| {
                Invalid::new("PG_CA_INVALID", file, what, "give a PEM file of CA certificates")
            };
            let pem = std::fs::read(file).map_err(|error| refuse(error.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
                roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(refuse("holds no certificate".to_owned()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(client))
}

fn place(config: &tokio_postgres::Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "?".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or("?");
    format!("{user}@{host}:{port}/{}", config.get_dbname().unwrap_or(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { ttl: Duration::from_secs(6) };

    #[test]
    fn a_password_is_in_no_message() {
        for url in ["postgresql://u:hunter2@127.0.0.1:1/d", "postgresql://u:hunter2@h:port/d?x"] {
            let shown = match Connect::new(url, LIMITS, false) {
                Ok(connect) => format!("{connect:?} {}", connect.place),
                Err(refused) => format!("{refused:?} {refused}"),
            };
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_url_leads_elsewhere_and_keeps_the_rest() {
        let url = "postgresql://u:p%40/?w@h:1234/d?sslmode=disable&x=/y";
        assert_eq!(in_database(url, "e"), "postgresql://u:p%40/?w@h:1234/e?sslmode=disable&x=/y");
        assert_eq!(in_database("postgresql://h", "e"), "postgresql://h/e");
        let (way, target) = by_way_of(url, 9);
        assert_eq!(way, "postgresql://u:p%40/?w@127.0.0.1:9/d?sslmode=disable&x=/y");
        assert_eq!((target.as_str(), &*by_way_of("postgresql://h/d", 9).1), ("h:1234", "h:5432"));
    }

    #[test]
    fn plaintext_leaves_this_machine_only_with_consent() {
        let url = "postgresql://u:p@db.example/d?sslmode=disable";
        assert_eq!(Connect::new(url, LIMITS, false).expect_err("far").code, "PLAINTEXT_REFUSED");
        assert!(Connect::new(url, LIMITS, true).is_ok());
        assert!(Connect::new("postgresql://u:p@localhost/d", LIMITS, false).is_ok());
        let default = Connect::new("postgresql://u:p@db.example/d", LIMITS, false).expect("tls");
        assert!(default.tls.is_some(), "a far host is reached over verified TLS by default");
    }
}
