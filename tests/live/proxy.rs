//! A TCP proxy on loopback that does what networks do: cuts, holds, and loses the one message that matters.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

use crate::stage::Stage;
use crate::wire::{Fate, Wire};

/// What becomes of connections and bytes from now on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Pass,
    /// Open connections are closed now, new ones at once.
    Cut,
    /// Connections are accepted, and nothing is passed on.
    Hold,
}

/// What is lost at the commit that a trap waits for; a message takes its connection with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Loss {
    /// The server commits, and nobody hears of it.
    Reply,
    /// The server never hears of it.
    Request,
    /// Nothing of it: all connections are held from there on, until `set`.
    Time,
}

/// The commit of the first statement with this text in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) statement: &'static str,
    pub(crate) loss: Loss,
}

/// Traps that wait, shared by all connections.
pub(crate) type Traps = Arc<Mutex<Vec<Trap>>>;

/// Stands between `finaz` and a server.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
    traps: Traps,
}

impl Proxy {
    /// From a free port to the server at the URL. Its tasks end with the stage.
    pub(crate) fn to(stage: &Stage, server: &str) -> Self {
        let url = Url::parse(server).expect("a URL");
        let (host, port) = (url.host_str().expect("a host"), url.port().expect("a port"));
        let target = format!("{host}:{port}").parse().expect("an address");
        let listener = stage.runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let mode = watch::Sender::new(Mode::Pass);
        let traps = Traps::default();
        let postgres = url.scheme().starts_with("postgres").then(|| Arc::clone(&traps));
        stage.runtime.spawn(accept(listener, target, mode.clone(), postgres));
        Self { port, mode, traps }
    }

    /// The URL, by way of this proxy.
    pub(crate) fn url(&self, server: &str) -> String {
        let mut url = Url::parse(server).expect("a URL");
        url.set_port(Some(self.port)).expect("a URL with a port");
        url.into()
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Waits, once, for the commit of a statement with this text in it.
    pub(crate) fn trap(&self, statement: &'static str, loss: Loss) {
        self.traps.lock().expect("a sound lock").push(Trap { statement, loss });
    }

    /// Whether every trap has closed: without that the test has shown nothing.
    pub(crate) fn is_sprung(&self) -> bool {
        self.traps.lock().expect("a sound lock").is_empty()
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    mode: watch::Sender<Mode>,
    traps: Option<Traps>,
) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, target, mode.clone(), traps.clone().map(Wire::new)));
    }
}

/// Carries bytes both ways until either end, the mode or a trap says otherwise.
async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mode: watch::Sender<Mode>,
    mut wire: Option<Wire>,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    let mut modes = mode.subscribe();
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // What was held back goes first, once bytes pass again.
    let mut held = false;
    loop {
        let now = *modes.borrow_and_update();
        if now == Mode::Cut {
            return Ok(());
        }
        let passes = now == Mode::Pass;
        let (read, from_client) = tokio::select! {
            changed = modes.changed() => if changed.is_err() { return Ok(()) } else { continue },
            () = std::future::ready(()), if passes && held => (None, true),
            read = client.read(&mut up), if passes => (Some(read?), true),
            read = server.read(&mut down), if passes => (Some(read?), false),
        };
        let bytes = &(if from_client { &up } else { &down })[..read.unwrap_or(0)];
        let (pass, fate) = match &mut wire {
            Some(wire) if from_client => wire.from_client(bytes),
            Some(wire) => wire.from_server(bytes),
            None => (bytes.to_vec(), Fate::Open),
        };
        let to = if from_client { &mut server } else { &mut client };
        to.write_all(&pass).await?;
        if read == Some(0) || fate == Fate::Closed {
            return Ok(());
        }
        held = fate == Fate::Held;
        if held {
            mode.send_replace(Mode::Hold);
        }
    }
}
