//! Where a fault test plays: a database, a ClickHouse database and an artifact folder of its own on real servers, and
//! the real `finaz` as processes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use url::Url;
use uuid::Uuid;

use crate::process::{Process, Run};
use crate::setting;

/// A run of `finaz` that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Databases, folder and processes of one test; gone with the value.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) runtime: Runtime,
    /// Of both databases.
    name: String,
    /// To drop them from; `None` when the servers go with the test.
    servers: Option<(String, Option<String>)>,
    database: String,
    warehouse: Option<String>,
    client: Client,
    environment: Vec<(String, String)>,
}

impl Stage {
    /// On the servers of `make up`, migrated. `None`, with a line, where there are none.
    #[track_caller]
    pub(crate) fn new() -> Option<Self> {
        let (postgres, clickhouse) = (setting("FINAZ_PG_URL")?, setting("FINAZ_CLICKHOUSE_URL")?);
        Some(Self::migrated(&postgres, Some(&clickhouse)))
    }

    /// The same with results in the artifact store alone.
    #[track_caller]
    pub(crate) fn without_warehouse() -> Option<Self> {
        Some(Self::migrated(&setting("FINAZ_PG_URL")?, None))
    }

    #[track_caller]
    fn migrated(postgres: &str, clickhouse: Option<&str>) -> Self {
        let mut stage = Self::on(postgres, clickhouse);
        stage.servers = Some((postgres.to_owned(), clickhouse.map(str::to_owned)));
        stage.finaz(&["db", "migrate"]).exits(0);
        stage
    }

    /// On servers of the test's own, with a database that is still empty.
    #[track_caller]
    pub(crate) fn on(postgres: &str, clickhouse: Option<&str>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let runtime = Runtime::new().expect("a runtime");
        let name = format!("finaz_test_{}", Uuid::new_v4().simple());
        let server = runtime.block_on(connect(postgres));
        runtime.block_on(rows(&server, &format!("CREATE DATABASE {name}")));
        let database = with_path(postgres, &name);
        let client = runtime.block_on(connect(&database));
        let warehouse = clickhouse.map(|url| with_path(url, &name));
        let mut environment = vec![("FINAZ_PG_URL".to_owned(), database.clone())];
        if let Some(url) = &warehouse {
            environment.push(("FINAZ_CLICKHOUSE_URL".to_owned(), url.clone()));
        }
        Self { folder, runtime, name, servers: None, database, warehouse, client, environment }
    }

    /// Sets a variable for every process started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The artifact store that every process is given unless `set` says otherwise.
    pub(crate) fn artifacts(&self) -> PathBuf {
        self.path("artifacts")
    }

    /// Writes a file into the test's folder and returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("a written file");
        path.to_str().expect("a UTF-8 path").to_owned()
    }

    pub(crate) fn pg_url(&self) -> &str {
        &self.database
    }

    pub(crate) fn clickhouse_url(&self) -> &str {
        self.warehouse.as_deref().expect("a stage with a warehouse")
    }

    /// `finaz` with nothing of this process's environment but what the test set.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_finaz"));
        self.furnish(&mut command);
        command.args(args);
        command
    }

    /// The environment, the folder, no stdin.
    pub(crate) fn furnish(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.folder.path())
            .env("FINAZ_ARTIFACTS", self.artifacts())
            .env("FINAZ_JSON", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
    }

    /// Starts `finaz` and goes on.
    #[track_caller]
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        self.start_with(&[], args)
    }

    #[track_caller]
    pub(crate) fn start_with(&self, environment: &[(&str, &str)], args: &[&str]) -> Process {
        let mut command = self.command(args);
        command.envs(environment.iter().copied());
        self.spawn(command)
    }

    /// Runs `finaz` to its end on a terminal of its own, where this is typed and then no more; both streams are one there.
    #[must_use = "check how it ended"]
    #[track_caller]
    pub(crate) fn on_terminal(&self, args: &[&str], typed: &str) -> Run {
        let words = args.iter().map(|arg| format!(" '{arg}'")).collect::<String>();
        let line = format!("{}{words}", env!("CARGO_BIN_EXE_finaz"));
        let mut command = Command::new("sh");
        self.furnish(&mut command);
        command
            .args([
                "-c",
                r#"printf %s "$1" | script --quiet --return --flush --command "$2" /dev/null"#,
            ])
            .args(["sh", typed, &line])
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "dumb");
        self.spawn(command).wait(PATIENCE)
    }

    /// Starts a command whose output goes into files of this folder.
    #[track_caller]
    pub(crate) fn spawn(&self, command: Command) -> Process {
        Process::start(command, self.folder.path())
    }

    /// Runs `finaz` to its end.
    #[must_use = "check how it ended"]
    #[track_caller]
    pub(crate) fn finaz(&self, args: &[&str]) -> Run {
        self.start(args).wait(PATIENCE)
    }

    #[must_use = "check how it ended"]
    #[track_caller]
    pub(crate) fn finaz_with(&self, environment: &[(&str, &str)], args: &[&str]) -> Run {
        self.start_with(environment, args).wait(PATIENCE)
    }

    /// The rows that the last statement answers, as text; an absent value is an empty one.
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> Vec<Vec<String>> {
        self.runtime.block_on(rows(&self.client, statements))
    }

    /// The first column of every row.
    #[track_caller]
    pub(crate) fn column(&self, statement: &str) -> Vec<String> {
        self.sql(statement).into_iter().map(|mut row| row.swap_remove(0)).collect()
    }

    /// The one value of the one row.
    #[track_caller]
    pub(crate) fn value(&self, statement: &str) -> String {
        let [value] = &self.column(statement)[..] else { panic!("not one row: {statement}") };
        value.clone()
    }

    #[track_caller]
    pub(crate) fn count(&self, statement: &str) -> usize {
        self.value(statement).parse().expect("a count")
    }

    /// Another session of the same database: a transaction of somebody else's.
    #[track_caller]
    pub(crate) fn session(&self) -> Session<'_> {
        let client = self.runtime.block_on(connect(&self.database));
        Session { stage: self, client }
    }

    /// Opens the own session again, after its server went away.
    #[track_caller]
    pub(crate) fn reconnect(&mut self) {
        self.client = self.runtime.block_on(connect(&self.database));
    }

    /// What ClickHouse answers, as text. `{db}` is this test's database.
    #[track_caller]
    pub(crate) fn clickhouse(&self, statement: &str) -> String {
        clickhouse(self.clickhouse_url(), &statement.replace("{db}", &self.name))
            .expect("an answer of ClickHouse")
    }

    /// The document that `finaz` prints; it must succeed.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.finaz(args).exits(0).json()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some((postgres, origin)) = &self.servers else { return };
        let name = &self.name;
        let dropped = self.runtime.block_on(async {
            let client = connect(postgres).await;
            client.simple_query(&format!("DROP DATABASE {name} WITH (FORCE)")).await
        });
        assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
        if let Some(origin) = origin {
            let dropped = clickhouse(origin, &format!("DROP DATABASE IF EXISTS {name} SYNC"));
            assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
        }
    }
}

/// A session of its own: somebody else's transaction, ended with the value.
pub(crate) struct Session<'a> {
    stage: &'a Stage,
    client: Client,
}

impl Session<'_> {
    #[track_caller]
    pub(crate) fn sql(&self, statements: &str) -> Vec<Vec<String>> {
        self.stage.runtime.block_on(rows(&self.client, statements))
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The rows of the last statement that has any.
async fn rows(client: &Client, statements: &str) -> Vec<Vec<String>> {
    let answer = client.simple_query(statements).await;
    let answer = answer.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    let text = |row: &tokio_postgres::SimpleQueryRow| -> Vec<String> {
        (0..row.len()).map(|index| row.get(index).unwrap_or_default().to_owned()).collect()
    };
    let row = |message: &SimpleQueryMessage| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        Some(text(row))
    };
    answer.iter().filter_map(row).collect()
}

/// The URL of another database on the same server.
pub(crate) fn with_path(url: &str, database: &str) -> String {
    let mut url = Url::parse(url).expect("a URL");
    url.set_path(database);
    url.into()
}

/// One statement to the ClickHouse at the URL. HTTP/1.0: the answer ends with the connection.
fn clickhouse(origin: &str, statement: &str) -> std::io::Result<String> {
    let url = Url::parse(origin).expect("a URL");
    let address = (url.host_str().expect("a host"), url.port().expect("a port"));
    let mut stream = TcpStream::connect(address)?;
    let length = statement.len();
    write!(stream, "POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{statement}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.trim_end().to_owned()),
        _ => Err(std::io::Error::other(format!("{statement}: {answer}"))),
    }
}
