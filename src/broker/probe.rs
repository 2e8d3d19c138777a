//! Whom do we speak to? Asked only when a connection failed, so that TLS spoken to a plaintext port, or
//! the other way round, is not taken for a broker that is away.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(2);

/// Whether what listens there answers a greeting of TLS as TLS does.
pub(super) async fn speaks_tls(broker: &str) -> bool {
    // The first byte of a record: 22 is a handshake, 21 an alert.
    let Some(greeting) = greeting() else { return false };
    matches!(ask(broker, &greeting, 1).await.as_deref(), Some([22 | 21]))
}

/// Whether what listens there answers Kafka's `ApiVersions`.
pub(super) async fn speaks_kafka(broker: &str) -> bool {
    // Length, key 18, version 0, correlation id, no client id.
    const REQUEST: &[u8] = b"\0\0\0\x0a\0\x12\0\0finz\xff\xff";
    ask(broker, REQUEST, 8).await.is_some_and(|answer| answer.ends_with(b"finz"))
}

/// A ClientHello that trusts nobody: only the first byte of the answer is looked at.
fn greeting() -> Option<Vec<u8>> {
    let config =
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
    let name = ServerName::try_from("localhost").ok()?;
    let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).ok()?;
    Some(hello)
}

/// Sends a request and reads so many bytes of the answer.
async fn ask(broker: &str, request: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let talk = async {
        let mut stream = TcpStream::connect(broker).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut answer = vec![0; bytes];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    timeout(PATIENCE, talk).await.ok()?
}
