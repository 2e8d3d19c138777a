//! Staging in a real ClickHouse: what goes in comes out bit for bit, once, and only its own rows are read.

use std::process::Command;
use std::time::Duration;

use clickhouse::Client;
use finaz::warehouse::{
    Error, Migrated, Options, Ref, SCHEMA, Series, StagedRead, StagedRef, StagedRun, StagedSeries,
    Warehouse,
};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;
use url::Url;
use uuid::Uuid;

use super::setting;
use crate::instance::{Instance, kill};

fn warehouse(url: &Url, patience: Duration) -> Warehouse {
    let options = Options { ca: None, allow_plaintext: false, patience };
    Warehouse::connect(url.as_str(), &options).expect("a usable URL")
}

const PATIENCE: Duration = Duration::from_secs(30);

/// A database of this test's own, gone when it ends.
struct Database {
    warehouse: Warehouse,
    /// For what the product does not do itself.
    client: Client,
    url: Url,
    name: String,
}

fn client(url: &Url) -> Client {
    let client = Client::default().with_url(url.origin().ascii_serialization());
    if url.username().is_empty() {
        return client;
    }
    client.with_user(url.username()).with_password(url.password().unwrap_or(""))
}

impl Drop for Database {
    fn drop(&mut self) {
        // A client of its own: connections of the other are driven by the runtime that waits here.
        let client = client(&self.url);
        let sql = format!("DROP DATABASE IF EXISTS {} SYNC", self.name);
        let done = std::thread::spawn(move || {
            let runtime = Runtime::new().expect("a runtime");
            runtime.block_on(client.query_raw(&sql).execute())
        });
        let dropped = done.join().expect("a thread that ends");
        assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
    }
}

impl Database {
    fn new() -> Option<Self> {
        let mut url = Url::parse(&setting("FINAZ_CLICKHOUSE_URL")?).expect("a URL");
        let name = format!("finaz_test_{}", Uuid::new_v4().simple());
        url.set_path(&name);
        let warehouse = warehouse(&url, PATIENCE);
        Some(Self { warehouse, client: client(&url), url, name })
    }

    async fn migrated() -> Option<Self> {
        let database = Self::new()?;
        database.warehouse.migrate().await.expect("a migration");
        Some(database)
    }

    async fn count(&self, condition: &str) -> u64 {
        let sql = format!("SELECT count() FROM {}.staging WHERE {condition}", self.name);
        self.client.query_raw(&sql).fetch_one().await.expect("a count")
    }

    async fn execute(&self, sql: &str) {
        self.client
            .query_raw(&sql.replace("{db}", &self.name))
            .execute()
            .await
            .expect("a statement");
    }
}

fn run<'a>(run_no: i64, run_id: &'a str, fence: i64, series: &[Series<'a>]) -> StagedRun<'a> {
    StagedRun { run_no, run_id, epoch: 1, fence, series: series.to_vec() }
}

const TIMES: [i64; 6] = [1, 2, 3, 4, 5, 6];
const GOLDEN: [f64; 6] = [f64::NAN, f64::NAN, 2.0, 3.0, 4.0, 5.0];
const GOLDEN_SERIES: Series<'_> =
    Series { instrument: "sim.alpha", node: "ema3", event_time: &TIMES, values: &GOLDEN };

/// Runs 1 to `count`, six rows each, in one insert.
async fn stage_many(warehouse: &Warehouse, count: i64, fence: i64) -> Vec<String> {
    let ids: Vec<String> = (1..=count).map(|no| format!("run_{no:064x}")).collect();
    let runs: Vec<_> =
        (1..).zip(&ids).map(|(no, id)| run(no, id, fence, &[GOLDEN_SERIES])).collect();
    warehouse.stage(&runs).await.expect("a staged batch");
    ids
}

fn bits(series: &[StagedSeries]) -> Vec<(String, String, Vec<i64>, Vec<u64>)> {
    series
        .iter()
        .map(|one| {
            let values = one.values.iter().map(|x| x.to_bits()).collect();
            (one.instrument.clone(), one.node.clone(), one.event_time.clone(), values)
        })
        .collect()
}

async fn read(warehouse: &Warehouse, attempt: Ref<'_>) -> StagedRead {
    warehouse.read_runs(&[attempt]).await?.pop().expect("a read for each")
}

#[tokio::test]
async fn a_database_is_made_once_and_knows_its_version() {
    let Some(database) = Database::new() else { return };
    let warehouse = &database.warehouse;
    assert_eq!(warehouse.state().await.unwrap().schema, 0);
    let error = warehouse.check().await.unwrap_err();
    assert!(matches!(error, Error::Schema { found: 0, expected: SCHEMA, .. }), "{error:?}");

    let (one, other) = tokio::join!(warehouse.migrate(), warehouse.migrate());
    for migrated in [one.unwrap(), other.unwrap()] {
        assert_eq!(migrated.to, SCHEMA);
    }
    assert_eq!(warehouse.migrate().await.unwrap(), Migrated { from: SCHEMA, to: SCHEMA });
    warehouse.check().await.unwrap();

    database.execute("INSERT INTO {db}.schema_version (version) VALUES (99)").await;
    let newer = |error: &Error| matches!(error, Error::Schema { found: 99, expected: SCHEMA, .. });
    assert!(newer(&warehouse.check().await.unwrap_err()));
    assert!(newer(&warehouse.migrate().await.unwrap_err()));
}

#[tokio::test]
async fn values_come_back_bit_for_bit_in_their_order() {
    let Some(database) = Database::migrated().await else { return };
    let values = [
        -0.0,
        0.0,
        f64::NAN,
        f64::from_bits(1),
        f64::MIN_POSITIVE / 2.0,
        f64::MAX,
        f64::MIN,
        0.1 + 0.2,
        1.0 / 3.0,
        f64::INFINITY,
    ];
    let times = [i64::MIN, -1, 0, 0, 0, 1, 1_577_836_800_000_000_000, 5, 6, i64::MAX];
    let hostile = "a'b\\c\"d`\n\u{0}é漢\t?";
    let id = "run_'; DROP TABLE staging --";
    let series = [
        Series { instrument: hostile, node: "b", event_time: &times, values: &values },
        Series { instrument: hostile, node: "a", event_time: &times[..1], values: &values[..1] },
        Series { instrument: "", node: "b", event_time: &times, values: &values },
    ];
    database.warehouse.stage(&[run(7, id, 3, &series)]).await.unwrap();
    let staged = read(&database.warehouse, (7, id, 1, 3)).await.unwrap();
    let expected: Vec<_> = series
        .iter()
        .map(|one| StagedSeries {
            instrument: one.instrument.to_owned(),
            node: one.node.to_owned(),
            event_time: one.event_time.to_vec(),
            values: one.values.to_vec(),
        })
        .collect();
    assert_eq!(bits(&staged), bits(&expected));
    assert_eq!(database.count("isNull(value)").await, 2, "a NaN is a null for every reader");
    for (no, id, epoch, fence) in [(8, id, 1, 3), (7, "run", 1, 3), (7, id, 2, 3), (7, id, 1, 2)] {
        assert!(read(&database.warehouse, (no, id, epoch, fence)).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_result_of_several_blocks_and_no_result_at_all() {
    let Some(database) = Database::migrated().await else { return };
    database.warehouse.stage(&[]).await.unwrap();
    database.warehouse.stage(&[run(1, "run_1", 1, &[])]).await.unwrap();
    assert_eq!(database.count("1").await, 0);

    let values: Vec<f64> = (0..200_000_u32).map(|i| f64::from(i) / 7.0).collect();
    let times: Vec<i64> = (0..200_000).collect();
    let one = Series { instrument: "a", node: "x", event_time: &times, values: &values };
    let other = Series { node: "y", ..one };
    database.warehouse.stage(&[run(1, "run_1", 1, &[one, other])]).await.unwrap();
    let staged = read(&database.warehouse, (1, "run_1", 1, 1)).await.unwrap();
    assert_eq!(staged.len(), 2);
    for series in staged {
        assert!(series.values == values && series.event_time == times, "{}", series.node);
    }
}

#[tokio::test]
async fn staged_twice_is_read_once() {
    let Some(database) = Database::migrated().await else { return };
    stage_many(&database.warehouse, 3, 1).await;
    let ids = stage_many(&database.warehouse, 3, 1).await;
    // Not merged yet, or merged already: a reader must not see the difference.
    for _ in 0..2 {
        let staged = read(&database.warehouse, (2, &ids[1], 1, 1)).await.unwrap();
        assert_eq!(staged.len(), 1);
        assert_eq!(staged[0].event_time, TIMES);
        let refs = database.warehouse.refs(None, 10).await.unwrap();
        assert!(refs.len() == 3 && refs.iter().all(|one| one.rows == 6), "{refs:?}");
        database.execute("OPTIMIZE TABLE {db}.staging FINAL").await;
    }
    assert_eq!(database.count("1").await, 18, "a merge leaves each row once");
}

#[tokio::test]
async fn of_a_row_staged_twice_the_last_counts() {
    let Some(database) = Database::migrated().await else { return };
    for x in [1.0, 2.0] {
        let values = [x];
        let series = Series { instrument: "a", node: "n", event_time: &[1], values: &values };
        database.warehouse.stage(&[run(1, "run_1", 1, &[series])]).await.unwrap();
        let staged = read(&database.warehouse, (1, "run_1", 1, 1)).await.unwrap();
        assert_eq!(staged[0].values, [x]);
    }
}

#[tokio::test]
async fn a_missing_row_is_an_error_not_a_shorter_result() {
    let Some(database) = Database::migrated().await else { return };
    let ids = stage_many(&database.warehouse, 1, 1).await;
    database
        .execute("ALTER TABLE {db}.staging DELETE WHERE seq = 3 SETTINGS mutations_sync = 2")
        .await;
    let error = read(&database.warehouse, (1, &ids[0], 1, 1)).await.unwrap_err();
    assert!(matches!(error, Error::Gap { seq: 3, .. }), "{error:?}");
}

#[tokio::test]
async fn attempts_read_together_are_not_mixed_up() {
    let Some(database) = Database::migrated().await else { return };
    let ids = stage_many(&database.warehouse, 4, 1).await;
    stage_many(&database.warehouse, 4, 2).await;
    database
        .execute(
            "ALTER TABLE {db}.staging DELETE WHERE run_no = 3 AND fence = 1 AND seq = 0
             SETTINGS mutations_sync = 2",
        )
        .await;
    // Out of order, twice, of either fence, one that is not there and one with a gap.
    let refs: [Ref<'_>; 6] = [
        (4, &ids[3], 1, 2),
        (1, &ids[0], 1, 1),
        (2, &ids[1], 1, 9),
        (3, &ids[2], 1, 1),
        (3, &ids[2], 1, 2),
        (2, &ids[0], 1, 1),
    ];
    let reads = database.warehouse.read_runs(&refs).await.unwrap();
    let rows = reads.iter().map(|read| match read {
        Ok(series) => series.iter().map(|one| one.values.len()).sum(),
        Err(Error::Gap { seq, .. }) => 100 + usize::try_from(*seq).unwrap(),
        Err(error) => panic!("{error}"),
    });
    assert_eq!(rows.collect::<Vec<usize>>(), [6, 6, 0, 100, 6, 0]);
    assert!(database.warehouse.read_runs(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn refs_are_paged_without_loss_and_orphans_removed_without_harm() {
    let Some(database) = Database::migrated().await else { return };
    let warehouse = &database.warehouse;
    stage_many(warehouse, 700, 1).await;
    let ids = stage_many(warehouse, 600, 2).await;
    let mut all = Vec::new();
    loop {
        let page = warehouse.refs(all.last(), 97).await.unwrap();
        assert!(page.len() <= 97);
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    let mut expected: Vec<(i64, i64)> = (1..=700).map(|no| (no, 1)).collect();
    expected.extend((1..=600).map(|no| (no, 2)));
    expected.sort_unstable();
    let seen: Vec<_> = all.iter().map(|one| (one.run_no, one.fence)).collect();
    assert_eq!(seen, expected);

    let orphans: Vec<StagedRef> = all.into_iter().filter(|one| one.fence == 1).collect();
    warehouse.delete(&orphans).await.unwrap();
    warehouse.delete(&orphans).await.unwrap();
    warehouse.delete(&[]).await.unwrap();
    let left = warehouse.refs(None, 10_000).await.unwrap();
    assert!(left.len() == 600 && left.iter().all(|one| one.fence == 2 && one.rows == 6));
    assert_eq!(read(warehouse, (5, &ids[4], 1, 2)).await.unwrap()[0].event_time, TIMES);

    stage_many(warehouse, 1, 1).await;
    assert_eq!(warehouse.refs(None, 1).await.unwrap()[0].rows, 6, "staged again after removal");
}

/// The query of docs/reading.md, and what it costs.
#[tokio::test]
async fn reading_a_run_touches_its_rows_only() {
    let Some(database) = Database::migrated().await else { return };
    let ids = stage_many(&database.warehouse, 20_000, 1).await;
    database.execute("OPTIMIZE TABLE {db}.staging FINAL").await;
    let sql = format!(
        "SELECT instrument, node, seq, event_time, value
         FROM {}.result(run_no = 7777, run_id = '{}', epoch = 1, fence = 1)",
        database.name, ids[7776]
    );
    let explain = format!("EXPLAIN indexes = 1 {sql}");
    let plan: Vec<String> = database.client.query_raw(&explain).fetch_all().await.unwrap();
    let granules: Vec<&str> =
        plan.iter().filter_map(|line| line.trim().strip_prefix("Granules: ")).collect();
    let last = granules.last().expect("an index was asked");
    let (read, of) = last.split_once('/').expect("some of all");
    let (read, of): (u32, u32) = (read.parse().unwrap(), of.parse().unwrap());
    assert!(read <= 2 && of >= 100, "{}", plan.join("\n"));

    let mut bytes = database.client.query_raw(&sql).fetch_bytes("TSV").unwrap();
    let text = String::from_utf8(bytes.collect().await.unwrap().to_vec()).unwrap();
    assert_eq!(text.lines().count(), 6, "{text}");
}

/// The SQL of docs/reading.md that stands behind its comment to us.
fn documented() -> (String, String) {
    let text = include_str!("../../docs/reading.md");
    let (_, text) = text.split_once("<!-- tests/live/warehouse.rs").expect("the comment");
    let mut blocks = text.split("```sql\n").skip(1);
    let mut next = || blocks.next().and_then(|rest| rest.split("```").next()).expect("a block");
    (next().to_owned(), next().to_owned())
}

#[tokio::test]
async fn only_what_postgresql_publishes_is_read() {
    let Some(pg_url) = setting("FINAZ_PG_URL") else { return };
    let Some(database) = Database::migrated().await else { return };
    let (pg, connection) = tokio_postgres::connect(&pg_url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let schema = format!("reading_{}", Uuid::new_v4().simple());
    let ids = stage_many(&database.warehouse, 3, 1).await;
    stage_many(&database.warehouse, 3, 2).await;
    pg.batch_execute(&format!(
        "CREATE SCHEMA {schema};
         CREATE TABLE {schema}.publications (run_no bigint PRIMARY KEY, run_id text NOT NULL,
             epoch bigint NOT NULL, fence bigint NOT NULL);
         INSERT INTO {schema}.publications VALUES (1, '{}', 1, 2), (2, '{}', 1, 1)",
        ids[0], ids[1]
    ))
    .await
    .expect("publications");

    let at = Url::parse(&pg_url).expect("a URL");
    let login = format!(
        "postgresql('{}:{}', '{}', 'publications', '{}', '{}', '{schema}')",
        at.host_str().unwrap_or("127.0.0.1"),
        at.port().unwrap_or(5432),
        at.path().trim_start_matches('/'),
        at.username(),
        at.password().unwrap_or(""),
    );
    let (one, view) = documented();
    let here = |sql: &str| {
        assert!(sql.contains("postgresql(finaz_pg, table = 'publications')"), "{sql}");
        sql.replace("postgresql(finaz_pg, table = 'publications')", &login)
            .replace("finaz.", &format!("{}.", database.name))
    };
    let count = |sql: String, id: &str| {
        let query = database.client.query_raw(&sql).param("run_id", id);
        async move { query.fetch_one::<u64>().await.expect("a count") }
    };
    let counted = format!("SELECT count() FROM ({})", here(&one));
    assert_eq!(
        count(counted.clone(), &ids[0]).await,
        6,
        "published under fence 2, staged under 1 and 2"
    );
    assert_eq!(count(counted, &ids[2]).await, 0, "staged and not published");

    database.execute(&here(&view)).await;
    let of = |run_no: u32| {
        format!("SELECT count() FROM {}.published WHERE run_no = {run_no}", database.name)
    };
    for (run_no, rows) in [(1, 6), (2, 6), (3, 0)] {
        assert_eq!(count(of(run_no), "").await, rows, "run {run_no}");
    }
    pg.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
}

/// `STOP` and `CONT` are not in reach of the standard library.
fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.expect("kill").success());
}

#[tokio::test]
async fn what_is_acknowledged_survives_the_server_and_a_server_away_is_away() {
    let Some(instance) = Instance::new() else { return };
    instance.run("clickhouse-up");
    let url = Url::parse(&instance.setting("FINAZ_CLICKHOUSE_URL")).expect("a URL");
    let patient = warehouse(&url, PATIENCE);
    patient.migrate().await.unwrap();
    let ids = stage_many(&patient, 3, 1).await;

    kill(instance.pid("clickhouse"));
    let run_4 = run(4, "run_4", 1, &[GOLDEN_SERIES]);
    let error = patient.stage(std::slice::from_ref(&run_4)).await.unwrap_err();
    assert!(error.is_away(), "{error:?}");
    instance.run("clickhouse-up");
    assert_eq!(read(&patient, (3, &ids[2], 1, 1)).await.unwrap()[0].event_time, TIMES);

    // Frozen: it accepts, and answers nothing. What it was sent may yet be staged when it thaws.
    signal("STOP", instance.pid("clickhouse"));
    let hasty = warehouse(&url, Duration::from_millis(500));
    let staged = tokio::time::timeout(PATIENCE, hasty.stage(std::slice::from_ref(&run_4))).await;
    signal("CONT", instance.pid("clickhouse"));
    let error = staged.expect("it hung").unwrap_err();
    assert!(error.is_away(), "{error:?}");

    patient.stage(&[run_4]).await.unwrap();
    assert_eq!(read(&patient, (4, "run_4", 1, 1)).await.unwrap()[0].event_time, TIMES);
    let refs = patient.refs(None, 10).await.unwrap();
    assert!(refs.len() == 4 && refs.iter().all(|one| one.rows == 6), "{refs:?}");
}
