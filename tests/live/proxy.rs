//! A TCP proxy on loopback that does what networks do: cuts, holds, and loses the one message that matters.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

use crate::process::until;
use crate::stage::Stage;
use crate::wire::{Fate, Wire};

/// Words by which a trap knows a statement of the product.
pub(crate) const ADMISSION: &str = "INSERT INTO finaz.admission";
pub(crate) const CLAIM: &str = "LIMIT $3 FOR UPDATE SKIP LOCKED";
pub(crate) const PUBLICATION: &str = "INSERT INTO finaz.publications";
/// A run that fails, is cancelled or is given back.
pub(crate) const END: &str = "ELSE 'given back'";

const SOON: Duration = Duration::from_secs(60);

/// What becomes of connections and bytes from now on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    Pass,
    /// Open connections are closed now, new ones at once.
    Cut,
    /// Connections are accepted, and nothing is passed on.
    Hold,
}

/// What is lost of what a trap waits for: a commit of PostgreSQL, a request of HTTP. A message takes its connection
/// with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Loss {
    /// The server commits, and nobody hears of it. (HTTP: as `Request`.)
    Reply,
    /// The server never hears of it.
    Request,
    /// Nothing of it: all connections are held from there on, until `set`.
    Time,
}

/// The first statement with this text in it.
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
    state: watch::Sender<State>,
    traps: Traps,
}

/// The mode, and how often connections were cut: one that looks late must not miss it.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    cuts: usize,
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
        let state = watch::Sender::new(State { mode: Mode::Pass, cuts: 0 });
        let traps = Traps::default();
        let postgres = url.scheme().starts_with("postgres");
        let wires = (postgres, Arc::clone(&traps));
        stage.runtime.spawn(accept(listener, target, state.clone(), wires));
        Self { port, state, traps }
    }

    /// The URL, by way of this proxy.
    pub(crate) fn url(&self, server: &str) -> String {
        let mut url = Url::parse(server).expect("a URL");
        url.set_port(Some(self.port)).expect("a URL with a port");
        url.into()
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.state.send_modify(|state| {
            state.mode = mode;
            state.cuts += usize::from(mode == Mode::Cut);
        });
    }

    /// Between the stage's processes and its ClickHouse: the first insert, and all that comes after it, is held. The
    /// runs of that insert are computed, and in flight for as long as the test wants.
    pub(crate) fn held_at_staging(stage: &mut Stage) -> Self {
        let direct = stage.clickhouse_url().to_owned();
        let proxy = Self::to(stage, &direct);
        proxy.hold_staging();
        stage.set("FINAZ_CLICKHOUSE_URL", &proxy.url(&direct));
        proxy
    }

    /// The same for the next insert, over new connections.
    pub(crate) fn hold_staging(&self) {
        self.set(Mode::Cut);
        self.trap("INSERT", Loss::Time);
        self.set(Mode::Pass);
    }

    /// Waits, once, for a statement with this text in it.
    pub(crate) fn trap(&self, statement: &'static str, loss: Loss) {
        self.traps.lock().expect("a sound lock").push(Trap { statement, loss });
    }

    /// Waits until every trap has closed.
    #[track_caller]
    pub(crate) fn springs(&self) {
        until("what the trap waits for", SOON, || self.is_sprung().then_some(()));
    }

    /// Whether every trap has closed: without that the test has shown nothing.
    pub(crate) fn is_sprung(&self) -> bool {
        self.traps.lock().expect("a sound lock").is_empty()
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Sender<State>,
    (postgres, traps): (bool, Traps),
) {
    while let Ok((client, _)) = listener.accept().await {
        let wire = Wire::new(postgres, Arc::clone(&traps));
        tokio::spawn(carry(client, target, state.clone(), wire));
    }
}

/// Carries bytes both ways until either end, the mode or a trap says otherwise.
async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    state: watch::Sender<State>,
    mut wire: Wire,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    let mut states = state.subscribe();
    let cuts = states.borrow().cuts;
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // What was held back goes first, once bytes pass again.
    let mut held = false;
    loop {
        let now = *states.borrow_and_update();
        if now.mode == Mode::Cut || now.cuts != cuts {
            return Ok(());
        }
        let passes = now.mode == Mode::Pass;
        let (read, from_client) = tokio::select! {
            biased;
            changed = states.changed() => if changed.is_err() { return Ok(()) } else { continue },
            () = std::future::ready(()), if passes && held => (None, true),
            read = client.read(&mut up), if passes => (Some(read?), true),
            read = server.read(&mut down), if passes => (Some(read?), false),
        };
        let bytes = &(if from_client { &up } else { &down })[..read.unwrap_or(0)];
        let (pass, fate) =
            if from_client { wire.client_sent(bytes) } else { wire.server_sent(bytes) };
        let to = if from_client { &mut server } else { &mut client };
        to.write_all(&pass).await?;
        if read == Some(0) || fate == Fate::Closed {
            return Ok(());
        }
        held = fate == Fate::Held;
        if held {
            state.send_modify(|state| state.mode = Mode::Hold);
        }
    }
}
