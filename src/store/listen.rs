//! The session that hears of new runs. A notification is a wake-up and nothing more: whoever misses
//! it finds the run at its next poll.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Connection};

use super::{Error, Store};

/// The channel that admission rings, outside of its transaction: a NOTIFY inside one takes a lock that
/// serialises all commits.
const CHANNEL: &str = "finaz_runs";

/// Wakes whoever listens. Not durable on purpose: losing it costs one poll.
pub(super) const RING: &str =
    "BEGIN; SET LOCAL synchronous_commit = off; NOTIFY finaz_runs; COMMIT";

/// Drives a connection; each notification becomes one wake-up, and many at once become one.
pub(super) async fn drive<S, T>(mut connection: Connection<S, T>, notices: mpsc::Sender<()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(_))) => {
                // A full channel already holds a wake-up.
                let _full = notices.try_send(());
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// A session that listens for new runs.
#[derive(Debug)]
pub struct Listener {
    client: Client,
    notices: mpsc::Receiver<()>,
}

impl Listener {
    /// Waits for the next wake-up; `false` when the session is gone.
    pub async fn wait(&mut self) -> bool {
        self.notices.recv().await.is_some() && !self.client.is_closed()
    }

    /// Proves that the session still listens: a half-open connection is silent for ever.
    pub async fn is_alive(&self) -> bool {
        let check = self
            .client
            .query_opt("SELECT 1 FROM pg_listening_channels() AS c WHERE c = $1", &[&CHANNEL]);
        let timed = tokio::time::timeout(std::time::Duration::from_secs(5), check);
        matches!(timed.await, Ok(Ok(Some(_))))
    }
}

impl Store {
    /// Opens a session that listens.
    pub async fn listen(&self) -> Result<Listener, Error> {
        let (sender, notices) = mpsc::channel(1);
        let client = self.connect.session(sender).await?;
        client
            .batch_execute(&format!("LISTEN {CHANNEL}"))
            .await
            .map_err(|error| Error::of(&self.connect.place, &error))?;
        Ok(Listener { client, notices })
    }
}
