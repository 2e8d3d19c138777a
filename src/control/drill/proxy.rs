//! A TCP proxy on loopback that does what networks do: cuts, holds, and loses the one message that matters.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::wait::{unable, until};
use super::wire::{Fate, Wire};
use crate::drill::Broke;

/// What becomes of connections and bytes from now on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    Pass,
    /// Open connections are closed now, new ones at once.
    Cut,
    /// The same, by a reset.
    Reset,
    /// Connections are accepted, and nothing is passed on.
    Hold,
    /// All of it comes later by so many milliseconds.
    Late(u64),
    /// The server hears its clients, and they hear nothing; such connections end with the mode.
    Unheard,
}

/// What is lost of the commit that a trap waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Loss {
    /// The server commits, and nobody hears of it.
    Reply,
    /// The server never hears of it.
    Request,
    /// Nothing of it: all connections are held from there on, until the mode is set.
    Time,
}

/// What a proxy lies in wait for, shared by all its connections.
#[derive(Debug, Default)]
pub(super) struct Traps {
    /// The first commit of a statement with this text in it.
    pub(super) commits: Vec<(&'static str, Loss)>,
    /// Every connection that sends a statement with this text in it is heard no more.
    pub(super) mute: Option<&'static str>,
    /// From which the proxy has spoken to the server.
    ports: Vec<i32>,
    /// Addresses of the server that were replaced by the proxy's own.
    pub(super) readdressed: u64,
    /// Replies to commits that were made, and that nobody heard of.
    pub(super) lost: u64,
}

pub(super) type Shared = Arc<Mutex<Traps>>;

/// The traps; a connection that panicked has left them whole.
pub(super) fn traps(shared: &Shared) -> std::sync::MutexGuard<'_, Traps> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is spoken through it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Protocol {
    Postgres,
    Kafka,
    /// Nothing in it is looked at.
    Other,
}

/// Stands between processes and a server; its connections end with the value.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    state: watch::Sender<State>,
    traps: Shared,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The mode, and how often connections were cut: one that looks late must not miss it.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    cuts: usize,
    changes: u64,
}

impl State {
    fn change(&mut self, mode: Mode) {
        self.mode = mode;
        self.cuts += usize::from(matches!(mode, Mode::Cut | Mode::Reset));
        self.changes += 1;
    }
}

impl Proxy {
    /// From a free port of this machine to a server, `host:port`.
    pub(super) async fn to(target: &str, protocol: Protocol) -> Result<Self, Broke> {
        let bound = TcpListener::bind("127.0.0.1:0").await;
        let listener = bound.map_err(|error| unable(&"a proxy", &error))?;
        let port = listener.local_addr().map_err(|error| unable(&"a proxy", &error))?.port();
        let state = watch::Sender::new(State { mode: Mode::Pass, cuts: 0, changes: 0 });
        let traps = Shared::default();
        let way = Way { target: target.to_owned(), port, protocol, traps: Arc::clone(&traps) };
        let task = tokio::spawn(accept(listener, way, state.clone()));
        Ok(Self { port, state, traps, task })
    }

    /// Gives the number of this change.
    pub(super) fn set(&self, mode: Mode) -> u64 {
        self.state.send_modify(|state| state.change(mode));
        self.state.borrow().changes
    }

    /// The same if nothing has changed the mode since the change of this number.
    pub(super) fn set_if(&self, changes: u64, mode: Mode) {
        self.state.send_if_modified(|state| {
            let is_so = state.changes == changes;
            if is_so {
                state.change(mode);
            }
            is_so
        });
    }

    /// Waits, once, for a commit of a statement with this text in it.
    pub(super) fn trap(&self, statement: &'static str, loss: Loss) {
        traps(&self.traps).commits.push((statement, loss));
    }

    /// Hears nothing more of connections that send such a statement.
    pub(super) fn mute(&self, statement: Option<&'static str>) {
        traps(&self.traps).mute = statement;
    }

    /// The ports from which the server was spoken to.
    pub(super) fn ports(&self) -> Vec<i32> {
        traps(&self.traps).ports.clone()
    }

    pub(super) fn readdressed(&self) -> u64 {
        traps(&self.traps).readdressed
    }

    /// Whether no trap waits any more.
    pub(super) fn is_sprung(&self) -> bool {
        traps(&self.traps).commits.is_empty()
    }

    /// Commits that were made and whose replies were lost.
    pub(super) fn lost(&self) -> u64 {
        traps(&self.traps).lost
    }

    /// Takes all traps away.
    pub(super) fn disarm(&self) {
        traps(&self.traps).commits.clear();
    }

    /// Waits until every trap has closed: without that nothing was shown.
    pub(super) async fn sprung(&self, limit: Duration) -> Result<(), Broke> {
        until("the message that the proxy waits for", limit, async || {
            Ok(self.is_sprung().then_some(()))
        })
        .await
    }
}

struct Way {
    target: String,
    port: u16,
    protocol: Protocol,
    traps: Shared,
}

async fn accept(listener: TcpListener, way: Way, state: watch::Sender<State>) {
    // Dropped with the task, and with it every connection.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let ports = (port_of(&way.target), way.port);
        let wire = Wire::new(way.protocol, ports, Arc::clone(&way.traps));
        let Ok(server) = TcpStream::connect(&way.target).await else { continue };
        if let Ok(own) = server.local_addr() {
            traps(&way.traps).ports.push(own.port().into());
        }
        connections.spawn(carry(client, server, state.clone(), wire));
        while connections.try_join_next().is_some() {}
    }
}

fn port_of(target: &str) -> u16 {
    target.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0)
}

/// Carries bytes both ways until either end, the mode or a trap says otherwise.
async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    state: watch::Sender<State>,
    mut wire: Wire,
) -> std::io::Result<()> {
    let mut states = state.subscribe();
    let cuts = states.borrow().cuts;
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // What was held back goes first, once bytes pass again.
    let mut held = false;
    let mut muted = false;
    let mut unheard = false;
    loop {
        let now = *states.borrow_and_update();
        if now.mode == Mode::Reset {
            client.set_zero_linger()?;
            server.set_zero_linger()?;
            return Ok(());
        }
        if now.mode == Mode::Cut || now.cuts != cuts || (unheard && now.mode != Mode::Unheard) {
            return Ok(());
        }
        let passes = now.mode != Mode::Hold && !muted;
        let (read, from_client) = tokio::select! {
            // What was held back goes before anything that came after it.
            biased;
            changed = states.changed() => if changed.is_err() { return Ok(()) } else { continue },
            () = std::future::ready(()), if passes && held => (None, true),
            read = client.read(&mut up), if passes => (Some(read?), true),
            read = server.read(&mut down), if passes => (Some(read?), false),
        };
        if let Mode::Late(ms) = now.mode {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        if now.mode == Mode::Unheard && !from_client && read != Some(0) {
            unheard = true;
            continue;
        }
        let bytes = &(if from_client { &up } else { &down })[..read.unwrap_or(0)];
        let (pass, fate) =
            if from_client { wire.client_sent(bytes) } else { wire.server_sent(bytes) };
        let to = if from_client { &mut server } else { &mut client };
        to.write_all(&pass).await?;
        if read == Some(0) || fate == Fate::Closed {
            return Ok(());
        }
        muted = fate == Fate::Muted;
        held = fate == Fate::Held;
        if held {
            state.send_modify(|state| state.change(Mode::Hold));
        }
    }
}
