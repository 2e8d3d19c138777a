//! The layout of our database in ClickHouse, numbered, and how it comes to be.
//!
//! ClickHouse has no transactions: every statement can be repeated, and a version is noted after
//! its statements. Two migrations at once end like one.

use super::{Error, Warehouse};

/// Statements of each version, oldest first. `{db}` is the database.
///
/// `staging`: ordered by run, so that one run is one place; 1024 rows a granule are what reading a
/// small run costs at most (8192, the default, cost as much to write; 256 a third more). One
/// partition a million runs keeps an insert in one part and lets old runs go as a whole. The
/// duplicates of a repeated insert are one row after a merge, the last one staged; readers drop
/// them before that (`LIMIT 1 BY`). No fsync after an insert: the artifact store has the
/// same rows, durable before a publication names them, and the reconciler stages again what a power cut took.
///
/// `result`: a view with parameters, the way to read one published run.
///
/// `stream_rows`: values of streams, ordered by stream and number; what is staged twice is one row after a merge, but never
/// across epochs and fences. `stream_result`: the first so many rows of one stream, of the latest owner each.
const VERSIONS: &[&[&str]] = &[
    &[
        "CREATE TABLE IF NOT EXISTS {db}.staging (
        run_no Int64,
        run_id String,
        epoch Int64,
        fence Int64,
        seq UInt64,
        instrument LowCardinality(String),
        node LowCardinality(String),
        event_time DateTime64(9, 'UTC'),
        value Nullable(Float64),
        staged_at DateTime64(6, 'UTC') DEFAULT now64(6)
    )
    ENGINE = ReplacingMergeTree(staged_at)
    PARTITION BY intDiv(run_no, 1000000)
    PRIMARY KEY (run_no, epoch, fence)
    ORDER BY (run_no, epoch, fence, run_id, seq)
    SETTINGS index_granularity = 1024",
        "CREATE VIEW IF NOT EXISTS {db}.result AS
    SELECT instrument, node, seq, event_time, value
    FROM {db}.staging
    WHERE run_no = {run_no:Int64} AND run_id = {run_id:String}
      AND epoch = {epoch:Int64} AND fence = {fence:Int64}
    ORDER BY seq, staged_at DESC
    LIMIT 1 BY seq",
    ],
    &[
        "CREATE TABLE IF NOT EXISTS {db}.stream_rows (
        stream LowCardinality(String),
        epoch Int64,
        fence Int64,
        row UInt64,
        node LowCardinality(String),
        instrument LowCardinality(String),
        event_time DateTime64(9, 'UTC'),
        value Nullable(Float64),
        staged_at DateTime64(6, 'UTC') DEFAULT now64(6)
    )
    ENGINE = ReplacingMergeTree(staged_at)
    PRIMARY KEY (stream, row)
    ORDER BY (stream, row, node, epoch, fence)",
        "CREATE VIEW IF NOT EXISTS {db}.stream_result AS
    SELECT row, instrument, node, event_time, value
    FROM {db}.stream_rows
    WHERE stream = {stream:String} AND row < {staged:UInt64}
    ORDER BY row, node, epoch DESC, fence DESC, staged_at DESC
    LIMIT 1 BY row, node",
    ],
];

/// The version that this program writes and reads.
pub const SCHEMA: u32 = 2;

/// What a migration found and left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Migrated {
    pub from: u32,
    pub to: u32,
}

/// What a server and its database are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct State {
    /// As the server says it: `26.9.2.1`.
    pub server: String,
    /// Version of the schema; 0 when there is none.
    pub schema: u32,
}

/// Oldest server: the oldest long-term release that was still served when this was written.
const SERVER_NEEDED: (u32, u32) = (24, 3);

impl Warehouse {
    /// Asks the server what it is, and the database what layout it has. The cheapest way to see
    /// whether ClickHouse is there.
    ///
    /// # Errors
    /// [`Error::TooOld`] for a server that lacks what we use; besides what any call may meet.
    pub async fn state(&self) -> Result<State, Error> {
        let server: String = self.one("SELECT version()").await?;
        if release(&server).is_none_or(|seen| seen < SERVER_NEEDED) {
            let (year, month) = SERVER_NEEDED;
            let needed = format!("{year}.{month}");
            return Err(Error::TooOld { place: self.place.clone(), seen: server, needed });
        }
        Ok(State { server, schema: self.schema().await? })
    }

    /// What a worker asks for before it stages anything.
    ///
    /// # Errors
    /// [`Error::Schema`] when the layout is older or newer than [`SCHEMA`].
    pub async fn check(&self) -> Result<(), Error> {
        let found = self.state().await?.schema;
        if found == SCHEMA { Ok(()) } else { Err(self.other_schema(found)) }
    }

    /// Creates the database and brings its layout to [`SCHEMA`].
    ///
    /// # Errors
    /// [`Error::Schema`] when the layout is newer than this program.
    pub async fn migrate(&self) -> Result<Migrated, Error> {
        let from = self.state().await?.schema;
        if from > SCHEMA {
            return Err(self.other_schema(from));
        }
        let db = &self.database;
        // A user may own a database and not be allowed to create one, even if it exists.
        let there = format!("SELECT count() FROM system.databases WHERE name = '{db}'");
        if self.one::<u64>(&there).await? == 0 {
            self.execute(&format!("CREATE DATABASE IF NOT EXISTS {db}")).await?;
        }
        self.execute(&format!(
            "CREATE TABLE IF NOT EXISTS {db}.schema_version (
                version UInt32, applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = MergeTree ORDER BY version"
        ))
        .await?;
        for (version, statements) in (1..).zip(VERSIONS).filter(|(version, _)| *version > from) {
            for statement in *statements {
                self.execute(&statement.replace("{db}", db)).await?;
            }
            self.execute(&format!("INSERT INTO {db}.schema_version (version) VALUES ({version})"))
                .await?;
        }
        Ok(Migrated { from, to: SCHEMA })
    }

    async fn schema(&self) -> Result<u32, Error> {
        let newest = format!("SELECT max(version) FROM {}.schema_version", self.database);
        match self.one::<u32>(&newest).await {
            // UNKNOWN_TABLE, UNKNOWN_DATABASE
            Err(Error::Query { code: 60 | 81, .. }) => Ok(0),
            found => found,
        }
    }

    fn other_schema(&self, found: u32) -> Error {
        Error::Schema {
            place: format!("{}/{}", self.place, self.database),
            found,
            expected: SCHEMA,
        }
    }
}

/// `26.9.2.1` is release (26, 9).
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_last_statements() {
        assert_eq!(VERSIONS.len(), usize::try_from(SCHEMA).unwrap());
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(release("24.10.1.2812"), Some((24, 10)));
        assert!(release("24.10") > release("24.3") && release("24.3") > release("9.99"));
        assert_eq!(release("unknown"), None);
    }
}
