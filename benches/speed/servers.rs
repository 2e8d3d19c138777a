//! The servers of `make up`, and databases of our own on them: the user's are never touched.

use std::path::PathBuf;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::cpu;

/// What the names of our databases begin with.
const PREFIX: &str = "finaz_bench_";

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Servers {
    postgres: String,
    clickhouse: String,
    /// Folder for artifact stores and files of a measurement.
    pub(crate) folder: PathBuf,
    /// The postmaster.
    postgres_pid: u32,
    clickhouse_pid: Option<u32>,
}

/// A session; what drives it ends with it.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL: make up");
    tokio::spawn(async move {
        let _ended = connection.await;
    });
    client
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: use scripts/bench.sh"))
}

impl Servers {
    /// Reads where they are, and drops the databases that a bench before us left behind.
    pub(crate) async fn find() -> Self {
        let (postgres, clickhouse) = (variable("FINAZ_PG_URL"), variable("FINAZ_CLICKHOUSE_URL"));
        let admin = connect(&postgres).await;
        let row = admin.query_one("SELECT pg_backend_pid()", &[]).await.expect("a backend");
        let backend = u32::try_from(row.get::<_, i32>(0)).expect("a process number");
        let servers = Self {
            postgres,
            clickhouse,
            folder: variable("BENCH_FOLDER").into(),
            postgres_pid: cpu::parent(backend).unwrap_or(0),
            clickhouse_pid: std::env::var("BENCH_CLICKHOUSE_PID")
                .ok()
                .and_then(|pid| pid.parse().ok()),
        };
        // A living bench keeps a session in each of its databases.
        let left = "SELECT datname FROM pg_database AS d WHERE datname LIKE $1
            AND NOT EXISTS (SELECT 1 FROM pg_stat_activity AS a WHERE a.datname = d.datname)";
        for row in admin.query(left, &[&format!("{PREFIX}%")]).await.expect("databases") {
            servers.drop_database(&row.get::<_, String>(0)).await;
        }
        servers
    }

    /// Processor time so far.
    pub(crate) fn used(&self) -> cpu::Used {
        cpu::Used {
            postgres: cpu::tree(self.postgres_pid),
            clickhouse: self.clickhouse_pid.map_or(0.0, cpu::of),
            children: cpu::waited(),
        }
    }

    /// A new database on both servers; the one on ClickHouse is made by who first needs it.
    pub(crate) async fn database(&self, name: &str) -> Database {
        let admin = connect(&self.postgres).await;
        let tail = Uuid::new_v4().simple().to_string();
        let name = format!("{PREFIX}{name}_{}", &tail[..8]);
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a new database");
        let (base, query) = match self.postgres.split_once('?') {
            Some((base, query)) => (base, format!("?{query}")),
            None => (self.postgres.as_str(), String::new()),
        };
        let (server, _) = base.rsplit_once('/').expect("a URL with a database");
        let url = format!("{server}/{name}{query}");
        let client = connect(&url).await;
        Database { client, url, clickhouse: format!("{}/{name}", self.clickhouse), name }
    }

    /// Drops it on both servers.
    pub(crate) async fn drop_database(&self, name: &str) {
        let admin = connect(&self.postgres).await;
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .await
            .expect("a dropped database");
        clickhouse::Client::default()
            .with_url(&self.clickhouse)
            .query(&format!("DROP DATABASE IF EXISTS {name}"))
            .execute()
            .await
            .expect("ClickHouse: make up");
    }
}

/// A database of a measurement, with a session that shows that it is in use.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) client: Client,
    pub(crate) url: String,
    /// A database of the same name on ClickHouse.
    pub(crate) clickhouse: String,
    pub(crate) name: String,
}

/// The place of the log, and how many full pages it has taken since the server started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    at: f64,
    full_pages: f64,
}

impl Log {
    /// Bytes and full pages written since `before`.
    pub(crate) fn since(self, before: Self) -> (f64, f64) {
        (self.at - before.at, self.full_pages - before.full_pages)
    }
}

impl Database {
    /// One row, of one column.
    pub(crate) async fn count(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> i64 {
        self.client.query_one(sql, params).await.expect("a count").get(0)
    }

    /// The same start for everybody: statistics and visibility up to date, every page clean.
    pub(crate) async fn settle(&self) {
        for sql in ["VACUUM ANALYZE", "CHECKPOINT"] {
            self.client.batch_execute(sql).await.expect("a settled database");
        }
    }

    /// How far the log has come. A session reports its full pages when it is idle, at most once a second.
    pub(crate) async fn log(&self) -> Log {
        let sql = "SELECT (pg_current_wal_lsn() - '0/0')::float8, wal_fpi::float8 FROM pg_stat_wal";
        let row = self.client.query_one(sql, &[]).await.expect("the log's place");
        Log { at: row.get(0), full_pages: row.get(1) }
    }
}
