//! What a drill does to a database of its own: make it, mark it, take note of all that happens in it, and destroy it.
//!
//! The mark is a comment on the database and a row in it. Nothing here touches a database that lacks it.

use tokio_postgres::Client;

use super::connect::in_database;
use super::{Connect, Error, Limits, Store};
use crate::drill::Moment;
use crate::invalid::Invalid;

/// The comment of a database that is a drill's, to be destroyed at will.
const MARK: &str = "finaz drill";
/// What the names of such databases begin with.
const PREFIX: &str = "finaz_drill_";
/// The advisory lock that a drill holds in its database for as long as it lives.
const LIVING: i64 = 0x6669_6e61_7a64_7269;

const MARKED: &str = include_str!("schema/drill_mark.sql");
const WATCHED: &str = include_str!("schema/drill_history.sql");

/// Who a drill is, as its database has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DrillMark {
    pub nonce: String,
    /// What the names of its topics begin with.
    pub topics: String,
    pub folder: String,
}

/// What a database has of a drill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DrillState {
    /// No comment says that it is a drill's.
    Unmarked,
    /// It is marked, and has tables that no drill made.
    InUse,
    /// Marked and empty.
    Empty,
    /// A drill is or was there.
    Of(DrillMark),
}

/// A session of the drill's own that holds something for as long as it lives.
#[derive(Debug)]
pub struct DrillSession {
    pub(super) client: Client,
    pub(super) place: String,
    /// Of the server's process.
    pub pid: i32,
}

impl Connect {
    /// The same server, another database.
    pub fn to_database(
        url: &str,
        database: &str,
        limits: Limits,
        allow_plaintext: bool,
    ) -> Result<(Self, String), Invalid> {
        let url = in_database(url, database);
        Ok((Self::new(&url, limits, allow_plaintext)?, url))
    }
}

/// The name of a drill's database.
#[must_use]
pub fn drill_database(nonce: &str) -> String {
    debug_assert!(nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{nonce}");
    format!("{PREFIX}{nonce}")
}

impl Store {
    /// Makes an empty database on the same server.
    pub async fn create_drill_database(&self, nonce: &str) -> Result<(), Error> {
        self.order(&format!("CREATE DATABASE {}", drill_database(nonce))).await
    }

    /// Destroys the database of this nonce, whoever is in it.
    pub async fn drop_drill_database(&self, nonce: &str) -> Result<(), Error> {
        self.order(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", drill_database(nonce))).await
    }

    /// The nonces of the databases on this server that drills made.
    pub async fn drill_databases(&self) -> Result<Vec<String>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT d.datname::text FROM pg_database AS d
                 WHERE starts_with(d.datname, $1) AND shobj_description(d.oid, 'pg_database') = $2",
                &[&PREFIX, &MARK],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let names = rows.iter().map(|row| row.get::<_, String>(0));
        let nonces = names.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned));
        Ok(nonces.filter(|nonce| nonce.bytes().all(|b| b.is_ascii_alphanumeric())).collect())
    }

    /// Says by a comment that this database is a drill's.
    pub async fn mark_database(&self) -> Result<(), Error> {
        self.order(&format!(
            "DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE %I IS ''{MARK}''', current_database()); END $$"
        ))
        .await
    }

    /// Writes who the drill is into its database.
    pub async fn mark_drill(&self, mark: &DrillMark) -> Result<(), Error> {
        self.order(MARKED).await?;
        let client = self.client().await?;
        client
            .execute(
                "INSERT INTO finaz_drill.mark (nonce, topics, folder) VALUES ($1, $2, $3)",
                &[&mark.nonce, &mark.topics, &mark.folder],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// Takes note of every lease, commit and refusal from now on; the schema must be there.
    pub async fn watch_drill(&self) -> Result<(), Error> {
        self.order(WATCHED).await
    }

    /// What this database is to a drill.
    pub async fn drill_state(&self) -> Result<DrillState, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT coalesce(shobj_description(d.oid, 'pg_database') = $1, false),
                        to_regclass('finaz_drill.mark') IS NOT NULL,
                        EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                                WHERE n.nspname !~ '^(pg_|information_schema$)')
                 FROM pg_database AS d WHERE d.datname = current_database()",
                &[&MARK],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let (marked, there, tables): (bool, bool, bool) = (row.get(0), row.get(1), row.get(2));
        match (marked, there, tables) {
            (false, _, _) => Ok(DrillState::Unmarked),
            (true, true, _) => {
                let row = client
                    .query_opt("SELECT nonce, topics, folder FROM finaz_drill.mark", &[])
                    .await
                    .map_err(|error| self.error(&error))?;
                Ok(row.map_or(DrillState::InUse, |row| {
                    DrillState::Of(DrillMark {
                        nonce: row.get(0),
                        topics: row.get(1),
                        folder: row.get(2),
                    })
                }))
            }
            (true, false, true) => Ok(DrillState::InUse),
            (true, false, false) => Ok(DrillState::Empty),
        }
    }

    /// Removes what a drill made in a database that stays.
    pub async fn clear_drill(&self) -> Result<(), Error> {
        self.order("DROP SCHEMA IF EXISTS finaz CASCADE; DROP SCHEMA IF EXISTS finaz_drill CASCADE")
            .await
    }

    /// Takes the lock that says that this drill lives; `None`: another one does.
    pub async fn live_drill(&self) -> Result<Option<DrillSession>, Error> {
        let session = self.drill_session().await?;
        let row = session.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LIVING]).await;
        let got: bool = row.map_err(|error| self.error(&error))?.get(0);
        Ok(got.then_some(session))
    }

    /// Another session, of somebody else's, which holds what it locks for as long as it lives.
    pub async fn drill_session(&self) -> Result<DrillSession, Error> {
        let (sender, _notices) = tokio::sync::mpsc::channel(1);
        let client = self.connect.session(sender).await?;
        // It holds what it holds for as long as the drill wants.
        client
            .batch_execute("SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s'")
            .await
            .map_err(|error| self.error(&error))?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        let pid = row.map_err(|error| self.error(&error))?.get(0);
        Ok(DrillSession { client, place: self.connect.place.clone(), pid })
    }

    /// Takes note of something that the drill did; gives when it was.
    pub async fn note_drill(
        &self,
        what: &str,
        lease: Option<&str>,
        owner: &str,
        detail: Option<&str>,
    ) -> Result<i64, Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "INSERT INTO finaz_drill.history (what, lease, owner, detail) VALUES ($1, $2, $3, $4)
                 RETURNING (extract(epoch FROM at) * 1000000)::bigint",
                &[&what, &lease, &owner, &detail],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// All that happened so far.
    pub async fn drill_history(&self) -> Result<Vec<Moment>, Error> {
        let client = self.client().await?;
        let rows = client
            .query(
                "SELECT no, (extract(epoch FROM at) * 1000000)::bigint, what, lease, owner, epoch, fence, seq,
                        (extract(epoch FROM until) * 1000000)::bigint, detail
                 FROM finaz_drill.history ORDER BY no",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        let moment = |row: &tokio_postgres::Row| Moment {
            no: row.get(0),
            at_us: row.get(1),
            what: row.get(2),
            lease: row.get(3),
            owner: row.get(4),
            epoch: row.get(5),
            fence: row.get(6),
            seq: row.get(7),
            until_us: row.get(8),
            detail: row.get(9),
        };
        Ok(rows.iter().map(moment).collect())
    }

    /// The server's version and its time, RFC 3339.
    pub async fn drill_server(&self) -> Result<(String, String), Error> {
        let client = self.client().await?;
        let row = client
            .query_one(
                "SELECT current_setting('server_version'),
                        to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
                &[],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok((row.get(0), row.get(1)))
    }

    pub(super) async fn order(&self, statements: &str) -> Result<(), Error> {
        let client = self.client().await?;
        client.batch_execute(statements).await.map_err(|error| self.error(&error))
    }
}
