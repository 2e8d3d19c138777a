//! As much of a protocol as it takes to find the one message that matters: of PostgreSQL a commit, of HTTP a request.

use std::collections::HashMap;

use crate::proxy::{Loss, Traps};

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Open,
    Closed,
    /// Nothing passes until somebody says so.
    Held,
}

/// One connection, message by message.
#[derive(Debug)]
pub(crate) struct Wire {
    postgres: bool,
    traps: Traps,
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
}

impl Wire {
    pub(crate) fn new(postgres: bool, traps: Traps) -> Self {
        Self {
            postgres,
            traps,
            client: Vec::new(),
            server: Vec::new(),
            greeted: false,
            statements: HashMap::new(),
            in_transaction: false,
            marked: None,
            sprung: None,
            losing: false,
        }
    }

    /// What of a client's bytes may pass.
    pub(crate) fn client_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        self.client.extend_from_slice(bytes);
        if !self.postgres {
            return self.http_request();
        }
        let mut pass = Vec::new();
        while let Some(message) = next(&mut self.client, !self.greeted) {
            let loss = if self.greeted { self.commit(&message) } else { None };
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

    /// The head of a request comes in one piece.
    fn http_request(&mut self) -> (Vec<u8>, Fate) {
        let text = String::from_utf8_lossy(&self.client).into_owned();
        match self.waiting(&text).filter(|loss| self.spring(*loss)) {
            Some(Loss::Time) => (Vec::new(), Fate::Held),
            Some(Loss::Request | Loss::Reply) => (Vec::new(), Fate::Closed),
            None => (std::mem::take(&mut self.client), Fate::Open),
        }
    }

    /// What is to be lost of a statement with this text.
    fn waiting(&self, text: &str) -> Option<Loss> {
        let traps = self.traps.lock().expect("a sound lock");
        traps.iter().find(|trap| text.contains(trap.statement)).map(|trap| trap.loss)
    }

    /// What of the server's bytes may pass.
    pub(crate) fn server_sent(&mut self, bytes: &[u8]) -> (Vec<u8>, Fate) {
        if !self.postgres {
            return (bytes.to_vec(), Fate::Open);
        }
        self.server.extend_from_slice(bytes);
        let mut pass = Vec::new();
        while let Some(message) = next(&mut self.server, false) {
            let tag = self.sprung.filter(|_| message[0] == b'C');
            self.losing |= tag.is_some_and(|tag| message[5..].starts_with(tag.as_bytes()));
            // ReadyForQuery, outside of any transaction: it is committed.
            if self.losing && message[0] == b'Z' && message[5] == b'I' {
                return (pass, Fate::Closed);
            }
            if !self.losing {
                pass.extend_from_slice(&message);
            }
        }
        (pass, Fate::Open)
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
        let mut traps = self.traps.lock().expect("a sound lock");
        let at = traps.iter().position(|trap| trap.loss == loss);
        at.map(|at| traps.remove(at)).is_some()
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
