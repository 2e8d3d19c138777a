//! The HTTP client below the ClickHouse client: connect timeout, TLS verified in full.

use std::path::Path;
use std::time::Duration;

use clickhouse::Client;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring as ciphers;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::invalid::Invalid;

/// Below the 3 s after which older servers close an idle connection, so that we close it first.
const IDLE_MAX: Duration = Duration::from_secs(2);
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// PEM files of certificate authorities.
#[derive(Debug)]
pub(super) struct Trust<'a> {
    /// The only ones to trust.
    pub(super) alone: Option<&'a Path>,
    /// Those to trust beside Mozilla's; means nothing with `alone`.
    pub(super) too: Option<&'a Path>,
}

/// A client that connects within `connect` or not at all. Host name, dates and chain of a
/// certificate are always checked.
///
/// # Errors
/// [`Invalid`] when a file cannot be read or holds no certificate.
pub(super) fn client(trust: &Trust<'_>, connect: Duration) -> Result<Client, Invalid> {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(connect));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);

    let tls = ClientConfig::builder_with_provider(ciphers::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring serves the default versions of TLS")
        .with_root_certificates(roots(trust)?)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http() // address.rs has decided which
        .enable_http1()
        .wrap_connector(tcp);
    let http =
        HyperClient::builder(TokioExecutor::new()).pool_idle_timeout(IDLE_MAX).build(connector);
    Ok(Client::with_http_client(http))
}

fn roots(trust: &Trust<'_>) -> Result<RootCertStore, Invalid> {
    let mut roots = RootCertStore::empty();
    if trust.alone.is_none() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(file) = trust.alone.or(trust.too) {
        add(&mut roots, file)?;
    }
    Ok(roots)
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), Invalid> {
    let refuse = |message: String| {
        let place = file.display().to_string();
        Invalid::new("CLICKHOUSE_CA", place, message, "name a PEM file of CA certificates")
    };
    let before = roots.len();
    let certificates = CertificateDer::pem_file_iter(file)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| refuse(format!("is not PEM: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| refuse(format!("holds a bad certificate: {error}")))?;
    }
    if roots.len() == before {
        return Err(refuse("holds no certificate".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_file_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let refusal = || {
            for trust in
                [Trust { alone: Some(&file), too: None }, Trust { alone: None, too: Some(&file) }]
            {
                let error = client(&trust, Duration::from_secs(1)).map(|_| ()).unwrap_err();
                assert_eq!(error.code, "CLICKHOUSE_CA");
            }
        };
        refusal();
        std::fs::write(&file, "nothing here").unwrap();
        refusal();
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&file, bad).unwrap();
        refusal();
    }
}
