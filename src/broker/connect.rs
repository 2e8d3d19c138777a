//! The way to the brokers: TLS and login for both clients, and an end to every wait.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use krafka::auth::{AuthConfig, TlsConfig};
use krafka::{Kafka, KrafkaError};
use rskafka::BackoffConfig;
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::error::chain;
use super::{Error, probe};
use crate::invalid::Invalid;

const CLIENT_ID: &str = "finaz";
/// Of one attempt; a broker that is there answers in milliseconds.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Of the attempts that the writing client makes by itself.
const ATTEMPTS_MAX: Duration = Duration::from_secs(3);
/// Of one request of a client that follows; whoever has data answers within the long poll.
const REQUEST_MAX: Duration = Duration::from_secs(10);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

const NO_ANSWER: &str = "no answer within";

/// How to reach the brokers.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port`, several with commas.
    pub brokers: String,
    pub tls: Tls,
    pub login: Option<Login>,
    /// The authorities to trust in place of Mozilla's, a PEM file.
    pub ca: Option<PathBuf>,
    /// Allow connections without TLS to other machines.
    pub allow_plaintext: bool,
    /// How long an absent broker is waited for.
    pub patience: Duration,
}

/// Whether to speak TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tls {
    /// Unless all brokers are on this machine and no login is given.
    Auto,
    On,
    Off,
}

/// Who we are to the broker.
#[derive(Clone)]
pub struct Login {
    /// `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`.
    pub mechanism: String,
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({} as {})", self.mechanism, self.user)
    }
}

/// The brokers, as both clients know them. Cloned freely.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(super) kafka: Kafka,
    pub(super) patience: Duration,
    /// For messages.
    pub(super) place: String,
    security: AuthConfig,
    writers: Arc<WriterOptions>,
}

/// What a client that writes is made of.
#[derive(Debug)]
struct WriterOptions {
    brokers: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    login: Option<Login>,
}

/// What the options come to.
struct Way {
    address: Address,
    place: String,
    /// For the client that reads, and for the one that writes.
    security: AuthConfig,
    tls: Option<Arc<ClientConfig>>,
}

impl Options {
    /// Whether they make sense; reaches for nothing but the file of authorities.
    ///
    /// # Errors
    /// `BROKERS_INVALID`, `PLAINTEXT_REFUSED`, `BROKER_CA`.
    pub fn check(&self) -> Result<(), Invalid> {
        self.way().map(drop)
    }

    fn way(&self) -> Result<Way, Invalid> {
        let address = Address::parse(&self.brokers)?;
        let is_tls = match self.tls {
            Tls::On => true,
            Tls::Off => false,
            Tls::Auto => !address.loopback || self.login.is_some(),
        };
        if !is_tls && !address.loopback && !self.allow_plaintext {
            let hint = "set --broker-tls on, or --allow-plaintext if the network is yours alone";
            let message = "a connection without TLS to another machine";
            return Err(Invalid::new("PLAINTEXT_REFUSED", "--broker-tls", message, hint));
        }
        let security = security(is_tls, self)?;
        let tls = if is_tls { Some(Arc::new(client_config(self)?)) } else { None };
        Ok(Way { place: address.text(), address, security, tls })
    }
}

impl Broker {
    /// Connects, trying again until patience ends. What waiting cannot heal ends it at once.
    ///
    /// # Errors
    /// Each [`Error`] says who has to do what.
    pub async fn connect(options: &Options) -> Result<Self, Error> {
        let Way { address, place, security, tls } = options.way()?;
        let is_tls = tls.is_some();
        let end = Instant::now() + options.patience;
        let mut wait = BACKOFF_MIN;
        let kafka = loop {
            let error = match attempt(&place, &security, options.patience).await {
                Ok(kafka) => break kafka,
                Err(error) => diagnosed(error, &address, is_tls, options.login.is_some()).await,
            };
            if !error.is_away() || Instant::now() + wait >= end {
                return Err(error);
            }
            tracing::debug!(%error, "trying again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(BACKOFF_MAX);
        };
        let login = options.login.clone();
        let writers = Arc::new(WriterOptions { brokers: address.brokers, tls, login });
        Ok(Self { kafka, patience: options.patience, place, security, writers })
    }

    /// Another client that reads, with connections of its own: requests queue behind a long poll.
    ///
    /// # Errors
    /// The broker went away.
    pub(super) async fn another(&self) -> Result<Kafka, Error> {
        attempt(&self.place, &self.security, self.patience.min(REQUEST_MAX)).await
    }

    /// A client that writes, with connections of its own.
    ///
    /// # Errors
    /// The broker went away.
    pub(super) async fn writer(&self) -> Result<Client, Error> {
        let options = &self.writers;
        let mut builder = ClientBuilder::new(options.brokers.clone())
            .client_id(CLIENT_ID)
            .backoff_config(backoff(self.patience));
        if let Some(tls) = &options.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some(login) = &options.login {
            builder = builder.sasl_config(sasl(login));
        }
        let away = |why: String| Error::Away { place: self.place.clone(), why };
        match timeout(self.patience, builder.build()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(away(chain(&error))),
            Err(_late) => Err(away("no connection in time".to_owned())),
        }
    }
}

/// The client's own attempts end before ours do: what it says then has a cause, a timeout of ours has none.
fn backoff(patience: Duration) -> BackoffConfig {
    BackoffConfig {
        init_backoff: BACKOFF_MIN,
        max_backoff: BACKOFF_MAX,
        base: 2.0,
        deadline: Some(ATTEMPTS_MAX.min(patience)),
    }
}

async fn attempt(place: &str, security: &AuthConfig, patience: Duration) -> Result<Kafka, Error> {
    let most = CONNECT_MAX.min(patience);
    let connect = Kafka::builder(place)
        .client_id(CLIENT_ID)
        .connect_timeout(most)
        .request_timeout(patience)
        .security(security.clone())
        .connect();
    match timeout(most, connect).await {
        Ok(Ok(kafka)) => Ok(kafka),
        Ok(Err(KrafkaError::Config { message })) => {
            Err(Invalid::new("BROKERS_INVALID", "--brokers", message, "correct it").into())
        }
        Ok(Err(error)) => Err(Error::of(&error, place)),
        Err(_late) => {
            let why = format!("{NO_ANSWER} {} s", most.as_secs_f64());
            Err(Error::Away { place: place.to_owned(), why })
        }
    }
}

/// The same error, or what is behind it.
async fn diagnosed(error: Error, address: &Address, is_tls: bool, has_login: bool) -> Error {
    if matches!(error, Error::Invalid(_) | Error::Login { .. } | Error::Untrusted { .. }) {
        return error;
    }
    for broker in &address.brokers {
        let place = broker.clone();
        if is_tls && probe::speaks_kafka(broker).await {
            return Error::SpeaksPlaintext { place };
        }
        if !is_tls && probe::speaks_tls(broker).await {
            return Error::SpeaksTls { place };
        }
        // It shakes hands, and hangs up on whoever does not say who they are. Silence is not that.
        let hung_up = matches!(&error, Error::Away { why, .. } if !why.contains(NO_ANSWER));
        if is_tls && !has_login && hung_up && probe::speaks_tls(broker).await {
            return Error::WantsLogin { place };
        }
    }
    error
}

fn security(is_tls: bool, options: &Options) -> Result<AuthConfig, Invalid> {
    let security = match &options.login {
        None => AuthConfig::plaintext(),
        Some(login) => {
            let (user, password) = (login.user.clone(), login.password.clone());
            match login.mechanism.as_str() {
                "PLAIN" => AuthConfig::sasl_plain(user, password),
                "SCRAM-SHA-256" => AuthConfig::sasl_scram_sha256(user, password),
                _ => AuthConfig::sasl_scram_sha512(user, password),
            }
        }
    };
    if !is_tls {
        return Ok(security);
    }
    let mut tls = TlsConfig::new();
    if let Some(ca) = &options.ca {
        tls = tls.with_ca_cert_pem(fs::read(ca).map_err(|error| bad_ca(options, &error))?);
    }
    Ok(if options.login.is_some() { security.with_tls(tls) } else { AuthConfig::ssl(tls) })
}

fn sasl(login: &Login) -> SaslConfig {
    let credentials = Credentials::new(login.user.clone(), login.password.clone());
    match login.mechanism.as_str() {
        "PLAIN" => SaslConfig::Plain(credentials),
        "SCRAM-SHA-256" => SaslConfig::ScramSha256(credentials),
        _ => SaslConfig::ScramSha512(credentials),
    }
}

/// Host name, dates and chain are always checked.
fn client_config(options: &Options) -> Result<ClientConfig, Invalid> {
    let mut roots = RootCertStore::empty();
    match &options.ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(ca) => {
            let certificates =
                CertificateDer::pem_file_iter(ca).map_err(|error| bad_ca(options, &error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| bad_ca(options, &error))?;
                roots.add(certificate).map_err(|error| bad_ca(options, &error))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(bad_ca(options, &"holds no certificate"));
    }
    Ok(ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring serves the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn bad_ca(options: &Options, why: &dyn fmt::Display) -> Invalid {
    let place = options.ca.as_ref().map(|ca| ca.display().to_string()).unwrap_or_default();
    let hint = "name a PEM file of CA certificates by --tls-ca";
    Invalid::new("BROKER_CA", place, why.to_string(), hint)
}
