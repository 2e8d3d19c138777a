//! A transaction in one round trip: everything is sent before anything is answered. In a process that a drill holds it goes
//! out step by step instead, the same statements in the same transaction: what a server has done of it when a client dies is
//! no other than one of these steps.

use std::pin::pin;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::{BEGIN_HOT, Error, Store};
use crate::points::{self, Point};

/// What COMMIT needs to be on its way: its answer is not waited for.
const SENT: Duration = Duration::from_millis(1);

/// A statement and what it is about.
pub(super) type Asked<'a> = (&'a Statement, &'a [&'a (dyn ToSql + Sync)]);

/// Where a process can be held within a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) begun: Point,
    /// Behind the lock, where there is one.
    pub(super) locked: Option<Point>,
    pub(super) made: Point,
    pub(super) sent: Point,
    pub(super) acked: Point,
}

impl Store {
    /// BEGIN, the lock, the statement, COMMIT; gives the rows of the statement.
    pub(super) async fn one_trip(
        &self,
        client: &Client,
        lock: Option<Asked<'_>>,
        (statement, params): Asked<'_>,
        steps: Option<&Steps>,
    ) -> Result<Vec<Row>, Error> {
        if let Some(steps) = steps.filter(|_| points::is_armed()) {
            let done = self.step_by_step(client, lock, (statement, params), steps).await;
            if done.is_err() {
                // The session is another's next.
                let _ended = client.batch_execute("ROLLBACK").await;
            }
            return done;
        }
        // The futures are polled in this order, and so sent. A statement that fails turns the COMMIT into a rollback.
        let (begun, locked, done, committed) = tokio::join!(
            client.batch_execute(BEGIN_HOT),
            async {
                match lock {
                    Some((lock, named)) => client.query(lock, named).await.map(drop),
                    None => Ok(()),
                }
            },
            client.query(statement, params),
            client.batch_execute("COMMIT"),
        );
        begun.map_err(|error| self.error(&error))?;
        locked.map_err(|error| self.error(&error))?;
        let done = done.map_err(|error| self.commit_error(&error))?;
        committed.map_err(|error| self.commit_error(&error))?;
        Ok(done)
    }

    async fn step_by_step(
        &self,
        client: &Client,
        lock: Option<Asked<'_>>,
        (statement, params): Asked<'_>,
        steps: &Steps,
    ) -> Result<Vec<Row>, Error> {
        client.batch_execute(BEGIN_HOT).await.map_err(|error| self.error(&error))?;
        points::reach(steps.begun);
        if let Some((lock, named)) = lock {
            client.query(lock, named).await.map_err(|error| self.error(&error))?;
        }
        if let Some(locked) = steps.locked {
            points::reach(locked);
        }
        let done = client.query(statement, params).await.map_err(|error| self.error(&error))?;
        points::reach(steps.made);
        let mut committed = pin!(client.batch_execute("COMMIT"));
        let early = tokio::time::timeout(SENT, &mut committed).await;
        points::reach(steps.sent);
        let committed = match early {
            Ok(committed) => committed,
            Err(_on_its_way) => committed.await,
        };
        committed.map_err(|error| self.commit_error(&error))?;
        points::reach(steps.acked);
        Ok(done)
    }
}
