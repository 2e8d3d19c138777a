//! Leases by name: acquire, renew, release, begin a new epoch. The row is locked, the rules decide.

use std::time::Duration;

use tokio_postgres::Transaction;

use super::{Error, Store};
use crate::ids::Owner;
use crate::points::{Point, reach};
use crate::rules::lease::{Grant, Held, HighWater, Refusal, acquire, admit_effect};

/// A lease as it stands, for people and programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseRow {
    pub name: String,
    pub owner: Owner,
    pub fence: i64,
    pub epoch: i64,
    /// RFC 3339, UTC, by the database.
    pub expires_at: String,
    pub live: bool,
}

const COLUMNS: &str = "
    name, owner, fence, epoch,
    to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
    NOT closed AND expires_at > clock_timestamp()";

fn lease_row(row: &tokio_postgres::Row) -> LeaseRow {
    LeaseRow {
        name: row.get(0),
        owner: Owner::from_token(row.get(1)),
        fence: row.get(2),
        epoch: row.get(3),
        expires_at: row.get(4),
        live: row.get(5),
    }
}

impl Store {
    /// Leases whose name begins with `prefix`, newest first.
    pub async fn leases(
        &self,
        prefix: &str,
        live_only: bool,
        limit: i64,
    ) -> Result<Vec<LeaseRow>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                &format!(
                    "SELECT {COLUMNS} FROM finaz.leases WHERE starts_with(name, $1)
                       AND (NOT $2 OR (NOT closed AND expires_at > clock_timestamp()))
                     ORDER BY lease_no DESC LIMIT $3"
                ),
                &[&prefix, &live_only, &limit],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(lease_row).collect())
    }

    /// The lease of this name, or the one that the run of this id is or was under.
    pub async fn lease(&self, name: &str) -> Result<Option<LeaseRow>, Error> {
        let client = self.client().await?;
        let row = client
            .query_opt(
                &format!(
                    "SELECT {COLUMNS} FROM finaz.leases WHERE name = $1
                     UNION ALL
                     SELECT {COLUMNS} FROM finaz.leases WHERE lease_no = (
                         SELECT lease_no FROM finaz.api_runs WHERE run_id = regexp_replace($1, '^run/', ''))
                     LIMIT 1"
                ),
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.as_ref().map(lease_row))
    }

    /// Asks for a lease. `known` is the highest fence handed out that survives outside of the database.
    pub async fn acquire(
        &self,
        name: &str,
        owner: &Owner,
        ttl: Duration,
        known: Option<HighWater>,
    ) -> Result<(Grant, LeaseRow), Error> {
        self.on_row(name, async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            // Two first claims of one name must meet on something: a row that is not there cannot be locked.
            transaction
                .execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", &[&name])
                .await
                .map_err(|error| self.error(&error))?;
            let held = self.lock(&transaction, name).await?;
            reach(Point::LeaseLocked);
            let grant = acquire(held.as_ref(), owner, known);
            match grant {
                Grant::Claim { epoch, fence } => {
                    transaction
                        .execute(
                            "INSERT INTO finaz.leases (lease_no, name, owner, fence, epoch, expires_at)
                             VALUES (nextval('finaz.lease_no'), $1, $2, $3,
                                     -- An epoch of all batch and run leases is theirs too when one is taken by hand.
                                     greatest($4, (SELECT max(epoch) FROM finaz.epochs
                                                   WHERE lease = '' AND $1 ~ '^(batch|run)/')),
                                     clock_timestamp() + $5::float8 * interval '1 second')
                             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence,
                                 epoch = excluded.epoch, closed = false, acquired_at = clock_timestamp(),
                                 expires_at = clock_timestamp() + $5::float8 * interval '1 second'",
                            &[&name, &owner.token(), &fence, &epoch, &ttl.as_secs_f64()],
                        )
                        .await
                        .map_err(|error| self.error(&error))?;
                }
                Grant::Renew => self.extend(&transaction, name, ttl).await?,
                Grant::Held | Grant::Regression { .. } | Grant::Exhausted => {}
            }
            let row = self.reread(&transaction, name).await?;
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            reach(Point::LeaseGranted);
            // A regression may meet no row at all: then what was asked for is shown.
            let row = row.unwrap_or_else(|| LeaseRow {
                name: name.to_owned(),
                owner: owner.clone(),
                fence: 0,
                epoch: 0,
                expires_at: String::new(),
                live: false,
            });
            Ok((grant, row))
        })
        .await
    }

    /// Gives a lease that is still the owner's more time.
    pub async fn renew(
        &self,
        name: &str,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Result<LeaseRow, (Refusal, Option<LeaseRow>)>, Error> {
        self.on_row(name, async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let held = self.lock(&transaction, name).await?;
            reach(Point::RenewalLocked);
            let fence = held.as_ref().map_or(0, |held| held.fence);
            let verdict = admit_effect(held.as_ref(), owner, fence);
            if verdict.is_ok() {
                self.extend(&transaction, name, ttl).await?;
            }
            reach(Point::RenewalMade);
            let row = self.reread(&transaction, name).await?;
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            reach(Point::RenewalAcked);
            Ok(match (verdict, row) {
                (Ok(()), Some(row)) => Ok(row),
                (Ok(()), None) => Err((Refusal::Missing, None)),
                (Err(refusal), row) => Err((refusal, row)),
            })
        })
        .await
    }

    /// Ends a lease that is still the owner's; the fence stays.
    pub async fn release(
        &self,
        name: &str,
        owner: &Owner,
    ) -> Result<Result<LeaseRow, (Refusal, Option<LeaseRow>)>, Error> {
        self.on_row(name, async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let held = self.lock(&transaction, name).await?;
            reach(Point::ReleaseLocked);
            let fence = held.as_ref().map_or(0, |held| held.fence);
            let verdict = admit_effect(held.as_ref(), owner, fence);
            if verdict.is_ok() {
                // Not `closed`: what ran under it, if anything, is still the sweep's to find.
                transaction
                    .execute(
                        "UPDATE finaz.leases SET expires_at = clock_timestamp() WHERE name = $1",
                        &[&name],
                    )
                    .await
                    .map_err(|error| self.error(&error))?;
            }
            reach(Point::ReleaseMade);
            let row = self.reread(&transaction, name).await?;
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            reach(Point::LeaseReleased);
            Ok(match (verdict, row) {
                (Ok(()), Some(row)) => Ok(row),
                (Ok(()), None) => Err((Refusal::Missing, None)),
                (Err(refusal), row) => Err((refusal, row)),
            })
        })
        .await
    }

    /// Begins a new epoch: above everything handed out so far, on record and outside. `None`: for all batch and
    /// run leases to come. The lease expires, its fence stays the highest.
    pub async fn new_epoch(
        &self,
        name: Option<&str>,
        who: &str,
        reason: &str,
        known: Option<HighWater>,
    ) -> Result<i64, Error> {
        self.on_row(name.unwrap_or_default(), async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let known_epoch = known.map_or(0, |known| known.epoch);
            let known_fence = known.map_or(0, |known| known.fence);
            let scope = name.unwrap_or_default();
            transaction
                .execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", &[&scope])
                .await
                .map_err(|error| self.error(&error))?;
            let epoch: i64 = transaction
                .query_one(
                    "INSERT INTO finaz.epochs (lease, epoch, who, reason)
                     SELECT $1, 1 + greatest($2::bigint, 1, (SELECT max(epoch) FROM finaz.epochs WHERE lease = $1),
                                             (SELECT epoch FROM finaz.leases WHERE name = $1)), $3, $4
                     RETURNING epoch",
                    &[&scope, &known_epoch, &who, &reason],
                )
                .await
                .map_err(|error| self.error(&error))?
                .get(0);
            if let Some(name) = name {
                transaction
                    .execute(
                        "INSERT INTO finaz.leases (lease_no, name, owner, fence, epoch, expires_at)
                         VALUES (nextval('finaz.lease_no'), $1, $2, greatest($3::bigint, 1), $4, clock_timestamp())
                         ON CONFLICT (name) DO UPDATE SET epoch = $4, expires_at = clock_timestamp(),
                             fence = greatest(finaz.leases.fence, $3)",
                        &[&name, &who, &known_fence, &epoch],
                    )
                    .await
                    .map_err(|error| self.error(&error))?;
            }
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            Ok(epoch)
        })
        .await
    }

    /// Bounds work on the row of a lease; when somebody else holds the row for too long, says who.
    pub(super) async fn on_row<T>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.bounded(work).await {
            Err(Error::Busy) => {
                let blockers = self.bounded(self.blockers()).await.unwrap_or_default();
                Err(Error::LeaseBusy { name: name.to_owned(), blockers })
            }
            done => done,
        }
    }

    /// Renews all these leases that are still the owner's; gives those.
    pub async fn renew_many(
        &self,
        owner: &Owner,
        lease_nos: &[i64],
        ttl: Duration,
    ) -> Result<Vec<i64>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "WITH l AS MATERIALIZED (
                     SELECT lease_no, expires_at FROM finaz.leases
                     WHERE lease_no = ANY ($1) AND owner = $2 AND NOT closed ORDER BY lease_no FOR UPDATE
                 )
                 UPDATE finaz.leases AS held SET expires_at = clock_timestamp() + $3::float8 * interval '1 second'
                 FROM l WHERE held.lease_no = l.lease_no AND l.expires_at > clock_timestamp()
                 RETURNING held.lease_no",
                &[&lease_nos, &owner.token(), &ttl.as_secs_f64()],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Locks the row; whether it is live is judged after the lock was granted.
    async fn lock(&self, transaction: &Transaction<'_>, name: &str) -> Result<Option<Held>, Error> {
        let row = transaction
            .query_opt(
                "WITH l AS MATERIALIZED (
                     SELECT owner, epoch, fence, closed, expires_at FROM finaz.leases WHERE name = $1 FOR UPDATE
                 ) SELECT owner, epoch, fence, NOT closed AND expires_at > clock_timestamp() FROM l",
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.map(|row| Held {
            owner: Owner::from_token(row.get(0)),
            epoch: row.get(1),
            fence: row.get(2),
            live: row.get(3),
        }))
    }

    async fn extend(
        &self,
        transaction: &Transaction<'_>,
        name: &str,
        ttl: Duration,
    ) -> Result<(), Error> {
        transaction
            .execute(
                "UPDATE finaz.leases SET expires_at = clock_timestamp() + $2::float8 * interval '1 second'
                 WHERE name = $1",
                &[&name, &ttl.as_secs_f64()],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    async fn reread(
        &self,
        transaction: &Transaction<'_>,
        name: &str,
    ) -> Result<Option<LeaseRow>, Error> {
        let row = transaction
            .query_opt(&format!("SELECT {COLUMNS} FROM finaz.leases WHERE name = $1"), &[&name])
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.as_ref().map(lease_row))
    }
}
