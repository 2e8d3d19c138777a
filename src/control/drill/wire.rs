//! As much of two protocols as it takes: of PostgreSQL's to find the one commit that matters, of Kafka's to keep clients
//! from going around the proxy.

use std::collections::HashMap;

use super::proxy::{Loss, Protocol, Shared, traps};

/// Requests of Kafka whose answers hold addresses: Metadata and DescribeCluster.
const ADDRESSES: [u16; 2] = [3, 60];
/// A broker on this machine is one of these to its clients.
const HOSTS: [&[u8]; 2] = [b"127.0.0.1", b"localhost"];

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Open,
    Closed,
    /// Nothing passes until somebody says so.
    Held,
    /// Nothing passes any more; it stays open.
    Muted,
}

/// One connection, message by message.
#[derive(Debug)]
pub(super) enum Wire {
    Postgres(Box<Postgres>),
    Kafka(Kafka),
    Other,
}

impl Wire {
    pub(super) fn new(protocol: Protocol, ports: (u16, u16), traps: Shared) -> Self {
        match protocol {
            Protocol::Postgres => Self::Postgres(Box::new(Postgres::new(traps))),
            Protocol::Kafka => Self::Kafka(Kafka {
                traps,
                ports,
                client: Vec::new(),
                server: Vec::new(),
                asked: HashMap::new(),
            }),
            Protocol::Other => Self::Other,
        }
    }

    /// What of a client's bytes may pass.
    pub(super) fn client_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        match self {
            Self::Postgres(wire) => wire.client_sent(bytes),
            Self::Kafka(wire) => (wire.client_sent(bytes), Fate::Open),
            Self::Other => (bytes.to_vec(), Fate::Open),
        }
    }

    /// What of the server's bytes may pass.
    pub(super) fn server_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        match self {
            Self::Postgres(wire) => wire.server_sent(bytes),
            Self::Kafka(wire) => (wire.server_sent(bytes), Fate::Open),
            Self::Other => (bytes.to_vec(), Fate::Open),
        }
    }
}

/// A session of PostgreSQL.
#[derive(Debug)]
pub(super) struct Postgres {
    traps: Shared,
    client: Vec<u8>,
    server: Vec<u8>,
    /// The first message of a client has no type.
    greeted: bool,
    /// The texts of prepared statements, by name.
    statements: HashMap<Vec<u8>, String>,
    /// Inside of BEGIN … COMMIT.
    in_transaction: bool,
    /// A trap's statement was bound: its commit is next.
    marked: Option<Loss>,
    /// The commit went through; the tag of the reply that must not.
    sprung: Option<&'static str>,
    /// That reply has come: nothing of the server's passes any more.
    losing: bool,
    muted: bool,
}

impl Postgres {
    fn new(traps: Shared) -> Self {
        Self {
            traps,
            client: Vec::new(),
            server: Vec::new(),
            greeted: false,
            statements: HashMap::new(),
            in_transaction: false,
            marked: None,
            sprung: None,
            losing: false,
            muted: false,
        }
    }

    fn client_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        self.client.extend_from_slice(bytes);
        let mut pass = Vec::new();
        while let Some(message) = next(&mut self.client, !self.greeted) {
            let loss = if self.greeted { self.commit(&message) } else { None };
            if self.muted {
                return (pass, Fate::Muted);
            }
            match loss.filter(|loss| self.spring(*loss)) {
                Some(Loss::Request) => return (pass, Fate::Closed),
                Some(Loss::Reply) => {
                    self.sprung = Some(if message[0] == b'Q' { "COMMIT" } else { "" });
                }
                Some(Loss::Time) => {
                    self.client.splice(..0, message);
                    return (pass, Fate::Held);
                }
                None => {}
            }
            self.greeted = true;
            pass.extend_from_slice(&message);
        }
        (pass, Fate::Open)
    }

    fn server_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        self.server.extend_from_slice(bytes);
        let mut pass = Vec::new();
        while let Some(message) = next(&mut self.server, false) {
            let tag = self.sprung.filter(|_| message[0] == b'C');
            self.losing |= tag.is_some_and(|tag| message[5..].starts_with(tag.as_bytes()));
            // ReadyForQuery, outside of any transaction: it is committed.
            if self.losing && message[0] == b'Z' && message[5] == b'I' {
                traps(&self.traps).lost += 1;
                return (pass, Fate::Closed);
            }
            if !self.losing {
                pass.extend_from_slice(&message);
            }
        }
        (pass, Fate::Open)
    }

    /// What is to be lost of a statement with this text.
    fn waiting(&self, text: &str) -> Option<Loss> {
        let traps = traps(&self.traps);
        traps.commits.iter().find(|(statement, _)| text.contains(statement)).map(|(_, loss)| *loss)
    }

    /// Takes note of a message; what is to be lost if it commits a statement that a trap waits for.
    fn commit(&mut self, message: &[u8]) -> Option<Loss> {
        let body = &message[5..];
        match message[0] {
            // Parse: name, text.
            b'P' => {
                let (name, rest) = text(body);
                let (statement, _) = text(rest);
                let statement = String::from_utf8_lossy(statement).into_owned();
                let mute = traps(&self.traps).mute;
                self.muted |= mute.is_some_and(|mute| statement.contains(mute));
                self.statements.insert(name.to_vec(), statement);
            }
            // Bind: portal, name.
            b'B' => {
                let (_, rest) = text(body);
                let statement = self.statements.get(text(rest).0).cloned().unwrap_or_default();
                self.marked = self.marked.or(self.waiting(&statement));
            }
            b'Q' if body.starts_with(b"BEGIN") || body.starts_with(b"START") => {
                self.in_transaction = true;
            }
            b'Q' if body.starts_with(b"COMMIT") => {
                self.in_transaction = false;
                return self.marked.take();
            }
            b'Q' if body.starts_with(b"ROLLBACK") => {
                self.in_transaction = false;
                self.marked = None;
            }
            // Sync: the end of a transaction of one statement.
            b'S' if !self.in_transaction => return self.marked.take(),
            _ => {}
        }
        None
    }

    /// Closes the trap; `false` when another connection was first.
    fn spring(&self, loss: Loss) -> bool {
        let mut traps = traps(&self.traps);
        let at = traps.commits.iter().position(|(_, waiting)| *waiting == loss);
        at.map(|at| traps.commits.remove(at)).is_some()
    }
}

/// Takes the next whole message off the front: a type, unless it is the first, and a length that counts itself.
fn next(bytes: &mut Vec<u8>, first: bool) -> Option<Vec<u8>> {
    let head = usize::from(!first);
    let length = bytes.get(head..head + 4)?;
    let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
    let end = head + usize::try_from(length).expect("a length");
    (bytes.len() >= end).then(|| bytes.drain(..end).collect())
}

/// A text ended by a zero byte, and what follows.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// A connection to a broker, whose answers lead clients to the proxy again.
#[derive(Debug)]
pub(super) struct Kafka {
    traps: Shared,
    /// The server's, and the proxy's.
    ports: (u16, u16),
    client: Vec<u8>,
    server: Vec<u8>,
    /// The kind of each request that waits for its answer, by its number.
    asked: HashMap<[u8; 4], u16>,
}

impl Kafka {
    fn client_sent(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.extend_from_slice(bytes);
        while let Some(frame) = frame(&mut self.client) {
            // Length, kind, version, number.
            if let (Some(kind), Some(number)) = (frame.get(4..6), frame.get(8..12)) {
                let kind = u16::from_be_bytes(kind.try_into().expect("two bytes"));
                self.asked.insert(number.try_into().expect("four bytes"), kind);
            }
        }
        bytes.to_vec()
    }

    fn server_sent(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.server.extend_from_slice(bytes);
        let mut pass = Vec::new();
        while let Some(mut frame) = frame(&mut self.server) {
            let number: Option<[u8; 4]> = frame.get(4..8).and_then(|number| number.try_into().ok());
            let kind = number.and_then(|number| self.asked.remove(&number));
            if kind.is_some_and(|kind| ADDRESSES.contains(&kind)) {
                traps(&self.traps).readdressed += readdress(&mut frame, self.ports);
            }
            pass.extend_from_slice(&frame);
        }
        pass
    }
}

/// Takes the next whole frame off the front: a length that does not count itself, and so many bytes.
fn frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().expect("four bytes"));
    let end = 4 + usize::try_from(length).expect("a length");
    (bytes.len() >= end).then(|| bytes.drain(..end).collect())
}

/// Replaces the port behind each address of this machine: the text of the host, then the port in four bytes.
fn readdress(frame: &mut [u8], (from, to): (u16, u16)) -> u64 {
    let mut count = 0;
    for host in HOSTS {
        let address = [host, &u32::from(from).to_be_bytes()].concat();
        let mut at = 0;
        while let Some(found) = frame[at..].windows(address.len()).position(|w| w == address) {
            at += found + address.len();
            frame[at - 4..at].copy_from_slice(&u32::from(to).to_be_bytes());
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_addresses_leads_to_the_proxy_and_no_other_answer_is_touched() {
        let request = |kind: u16, number: u32| {
            let body = [&kind.to_be_bytes()[..], &[0, 1], &number.to_be_bytes()].concat();
            [&u32::try_from(body.len()).expect("small").to_be_bytes()[..], &body].concat()
        };
        let answer = |number: u32, port: u16| {
            let body =
                [&number.to_be_bytes()[..], &[10], b"127.0.0.1", &u32::from(port).to_be_bytes()];
            let body = body.concat();
            [&u32::try_from(body.len()).expect("small").to_be_bytes()[..], &body].concat()
        };
        let mut wire = Wire::new(Protocol::Kafka, (19_092, 7), Shared::default());
        for (kind, expected) in [(3, 7), (60, 7), (1, 19_092)] {
            let asked = request(kind, 42);
            assert_eq!(wire.client_sent(&asked).0, asked);
            let whole = answer(42, 19_092);
            // In two pieces.
            let mut passed = wire.server_sent(&whole[..9]).0;
            passed.extend(wire.server_sent(&whole[9..]).0);
            assert_eq!(passed, answer(42, expected), "kind {kind}");
        }
    }
}
