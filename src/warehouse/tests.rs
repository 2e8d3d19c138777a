//! Against servers that misbehave: the real one is in tests/live/warehouse.rs.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

const PATIENCE: Duration = Duration::from_millis(400);
/// What a wait may take beyond our patience on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options { ca: None, allow_plaintext: false, patience: PATIENCE }
}

/// A server that does with each connection what it is told, in order, and then refuses the rest.
/// The receiver gets a word for each connection taken.
fn server(connections: Vec<Box<dyn FnOnce(TcpStream) + Send>>) -> (Warehouse, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://me:hunter2@{}/d", listener.local_addr().unwrap());
    let (taken, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for serve in connections {
            let (stream, _) = listener.accept().unwrap();
            taken.send(()).ok();
            serve(stream);
        }
    });
    (Warehouse::connect(&url, &options()).unwrap(), receiver)
}

/// Reads one request whole; false when the other side has closed.
fn request(stream: &mut impl Read) -> bool {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => seen.push(byte[0]),
            Ok(_) => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    let head = String::from_utf8(seen).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    if stream.read_exact(&mut body).is_err() {
        return false;
    }
    let chunked = head.contains("transfer-encoding: chunked");
    let mut end = Vec::new();
    while chunked && !end.ends_with(b"\r\n0\r\n\r\n") {
        if stream.read_exact(&mut byte).is_err() {
            return false;
        }
        end.push(byte[0]);
    }
    true
}

fn answer(stream: &mut impl Write, head: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream.flush().unwrap();
}

/// Answers every request of a connection in this way.
fn always(head: &'static str, body: &'static str) -> Box<dyn FnOnce(TcpStream) + Send> {
    Box::new(move |mut stream| {
        while request(&mut stream) {
            answer(&mut stream, head, body.as_bytes());
        }
    })
}

/// Never answers; ends with the other side.
fn hang(mut stream: TcpStream) {
    let mut sink = [0; 4096];
    while stream.read(&mut sink).is_ok_and(|read| read > 0) {}
}

const RUN: &str = "run_1";

async fn stage(warehouse: &Warehouse) -> Result<(), Error> {
    let series =
        vec![Series { instrument: "a", node: "n", event_time: &[1, 2], values: &[f64::NAN, 2.0] }];
    warehouse.stage(&[StagedRun { run_no: 1, run_id: RUN, epoch: 1, fence: 1, series }]).await
}

async fn read(warehouse: &Warehouse, attempt: Ref<'_>) -> StagedRead {
    warehouse.read_runs(&[attempt]).await?.pop().expect("a read for each")
}

async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, what).await.expect("it hung")
}

#[tokio::test]
async fn a_server_that_never_answers_is_away_in_bounded_time() {
    let (warehouse, _taken) =
        server(vec![Box::new(hang), Box::new(hang), Box::new(hang), Box::new(hang)]);
    let limit = PATIENCE + SLACK;
    assert!(within(limit, stage(&warehouse)).await.unwrap_err().is_away());
    assert!(within(limit, warehouse.state()).await.unwrap_err().is_away());
    assert!(within(limit, read(&warehouse, (1, RUN, 1, 1))).await.unwrap_err().is_away());
    assert!(within(limit, warehouse.migrate()).await.unwrap_err().is_away());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_away() {
    let (warehouse, _taken) = server(Vec::new());
    let error = within(SLACK, stage(&warehouse)).await.unwrap_err();
    assert!(error.is_away(), "{error:?}");
    assert!(!format!("{error} {error:?} {warehouse:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_dies_in_mid_insert_is_tried_once_more_and_then_away() {
    let die = |mut stream: TcpStream| {
        let mut some = [0; 64];
        stream.read_exact(&mut some).unwrap();
    };
    let (warehouse, taken) = server(vec![Box::new(die), Box::new(die)]);
    let error = within(SLACK, stage(&warehouse)).await.unwrap_err();
    assert!(error.is_away(), "{error:?}");
    assert_eq!(taken.try_iter().count(), 2);
}

#[tokio::test]
async fn an_idle_connection_closed_by_the_server_is_not_an_error() {
    let once = |mut stream: TcpStream| {
        assert!(request(&mut stream));
        answer(&mut stream, "200 OK", b"");
        // The next request is read and not answered: the worst moment to close.
        request(&mut stream);
    };
    let (warehouse, taken) = server(vec![Box::new(once), always("200 OK", "")]);
    stage(&warehouse).await.expect("the first answer");
    stage(&warehouse).await.expect("the second connection");
    assert_eq!(taken.try_iter().count(), 2);
}

#[tokio::test]
async fn an_answer_cut_short_is_away() {
    fn cut(mut stream: TcpStream) {
        if request(&mut stream) {
            let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n\x05\x03seq";
            stream.write_all(half).unwrap();
        }
    }
    let (warehouse, _taken) = server(vec![Box::new(cut), Box::new(cut)]);
    let error = within(SLACK, read(&warehouse, (1, RUN, 1, 1))).await.unwrap_err();
    assert!(error.is_away(), "{error:?}");
}

#[tokio::test]
async fn what_the_server_says_decides_between_away_refused_and_wrong() {
    let wrong = always("400 Bad Request", "Code: 62. DB::Exception: Syntax error");
    let (warehouse, _taken) = server(vec![wrong]);
    let error = stage(&warehouse).await.unwrap_err();
    assert!(matches!(error, Error::Query { code: 62, .. }), "{error:?}");

    let refused = always("403 Forbidden", "Code: 516. DB::Exception: hunter2 is not me");
    let (warehouse, _taken) = server(vec![refused]);
    let error = stage(&warehouse).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));

    let (warehouse, _taken) = server(vec![always("502 Bad Gateway", "<html>no upstream</html>")]);
    assert!(stage(&warehouse).await.unwrap_err().is_away());

    let (warehouse, _taken) = server(vec![always("200 OK", "\u{1}\u{3}seq\u{3}Odd")]);
    let error = read(&warehouse, (1, RUN, 1, 1)).await.unwrap_err();
    assert!(matches!(error, Error::Answer { .. }), "{error:?}");
}

#[tokio::test]
async fn no_password_is_logged() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let (warehouse, _taken) = server(vec![always("404 Not Found", "Code: 60. DB::Exception: no")]);
    stage(&warehouse).await.unwrap_err();
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!log.is_empty(), "nothing was logged, so nothing was tested");
    assert!(!log.contains("hunter2"), "{log}");
}

fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

/// Serves TLS with the certificate of tests/data/tls, which is for `localhost` alone.
fn tls_server() -> u16 {
    let certificate = CertificateDer::from_pem_file(tls_file("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            while request(&mut stream) {
                answer(&mut stream, "200 OK", b"");
            }
        }
    });
    port
}

#[tokio::test]
async fn tls_holds_only_with_the_right_roots_and_the_right_name() {
    let port = tls_server();
    let ca = tls_file("ca.crt");
    let patient = Options { patience: SLACK, ..options() };
    let with = |url: String, options: &Options| Warehouse::connect(&url, options).unwrap();

    let alone = format!("https://localhost:{port}/?sslrootcert={}", ca.display());
    stage(&with(alone, &patient)).await.expect("the CA of the URL");
    let too = Options { ca: Some(ca.clone()), ..patient.clone() };
    stage(&with(format!("https://localhost:{port}"), &too)).await.expect("the CA of the options");

    for (url, options) in [
        (format!("https://localhost:{port}"), &patient),
        (format!("https://127.0.0.1:{port}"), &too),
    ] {
        let error = stage(&with(url.clone(), options)).await.unwrap_err();
        assert!(matches!(error, Error::Untrusted { .. }), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_in_plaintext() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; 16];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            assert_eq!(hello[0], 22, "a TLS handshake record");
        }
    });
    let url = format!("https://me:hunter2@127.0.0.1:{port}");
    let error = stage(&Warehouse::connect(&url, &options()).unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
}
