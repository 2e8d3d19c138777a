//! Waiting: always for something, always with an end, and the end says for what.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::broker;
use crate::drill::Broke;
use crate::store;

/// How often we look.
const LOOK: Duration = Duration::from_millis(15);

/// Looks again and again until there is something to see; when time is up, what should have come to pass has failed.
pub(super) async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Broke>,
) -> Result<T, Broke> {
    let end = Instant::now() + limit;
    loop {
        if let Some(seen) = look().await? {
            return Ok(seen);
        }
        if Instant::now() >= end {
            return Err(Broke::Failed(format!("not within {} s: {what}", limit.as_secs_f64())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What keeps a scenario from being carried out.
pub(super) fn unable(place: &dyn Display, why: &dyn Display) -> Broke {
    Broke::Unable(format!("{place}: {why}"))
}

impl From<store::Error> for Broke {
    fn from(error: store::Error) -> Self {
        Self::Unable(error.to_string())
    }
}

impl From<broker::Error> for Broke {
    fn from(error: broker::Error) -> Self {
        Self::Unable(error.to_string())
    }
}
