//! Where a drill plays: a database, topics and a folder of its own, each with its mark, on the servers that the settings
//! name. All of it goes when the drill ends; what a drill that died has left goes with the next one.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::crew::{Actor, Crew, Run};
use super::fixture::Files;
use super::wait::unable;
use crate::artifacts::Artifacts;
use crate::broker::Broker;
use crate::config::Secret;
use crate::control::{Control, Error, brokers};
use crate::drill::{Broke, Draw, Environment};
use crate::invalid::Invalid;
use crate::store::{
    self, Connect, DrillMark, DrillSession, DrillState, Limits, Store, drill_database,
};
use crate::warehouse::{Warehouse, drill_warehouse};

/// The file that says that a folder is a drill's.
const MARK: &str = "finaz-drill.json";
/// What the names of topics and folders begin with.
const PREFIX: &str = "finaz-drill-";
/// Times that a server is asked to destroy a database, and the time between.
const DROPS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
/// Whatever should come to pass does so by then, on a busy machine too.
pub(super) const SOON: Duration = Duration::from_secs(45);

/// What a drill is given to play with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<'a> {
    /// The program whose processes play.
    pub(super) binary: &'a Path,
    /// Where the drill's folder is made.
    pub(super) temporary: &'a Path,
    /// A marked database; absent: one is made on the server of the settings.
    pub(super) database: Option<&'a Secret>,
    pub(super) seed: u64,
    /// With a database in ClickHouse too, where the settings have one.
    pub(super) warehouse: bool,
    pub(super) ttl: Duration,
}

/// Everything of one drill.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) store: Store,
    pub(super) broker: Broker,
    pub(super) brokers: String,
    pub(super) crew: Crew,
    pub(super) files: Files,
    pub(super) mark: DrillMark,
    pub(super) ttl: Duration,
    pub(super) seed: u64,
    /// For messages.
    pub(super) place: String,
    /// The URL of the database.
    url: Secret,
    /// Where its processes stage rows, if they do.
    warehouse: Option<Warehouse>,
    /// A database that was given stays, emptied.
    is_given: bool,
    /// The server's own database, from which others are made and destroyed.
    home: Store,
    pub(super) living: DrillSession,
}

impl Stage {
    /// Where it all was, for the evidence.
    pub(super) fn environment(&self, topics: Vec<String>) -> Environment {
        Environment {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            database: self.place.clone(),
            brokers: self.brokers.clone(),
            topics,
            folder: self.mark.folder.clone(),
        }
    }

    /// Makes all of it. On an error nothing is left.
    pub(super) async fn set(control: &Control, means: &Means<'_>) -> Result<Self, Error> {
        let options = brokers::options(control)?;
        options.check()?;
        let broker = brokers::connect(&options).await?;
        let home = control.store()?.clone();
        sweep(control, &home, &broker).await?;
        let nonce = Uuid::new_v4().simple().to_string();
        let given = match means.database {
            Some(url) => {
                let limits = Limits { ttl: control.settings.lease_ttl };
                let connect = Connect::new(url.expose(), limits, control.settings.allow_plaintext)?;
                Some((Store::new(connect)?, url.expose().to_owned()))
            }
            None => None,
        };
        let is_given = given.is_some();
        let (store, url) = match given {
            Some((store, url)) => (store, url),
            None => {
                home.create_drill_database(&nonce).await?;
                database(control, &nonce)?
            }
        };
        let folder = means.temporary.join(format!("{PREFIX}{nonce}"));
        let mark = DrillMark {
            topics: format!("{PREFIX}{nonce}."),
            folder: folder.display().to_string(),
            nonce,
        };
        let rows = warehouse(control, &mark.nonce)?.filter(|_| means.warehouse);
        let (warehouse, rows) = rows.unzip();
        let made = async {
            let living = claim(control, &store, is_given, &broker).await?;
            let (crew, files) = furnish(control, means, &mark, (&url, rows))?;
            store.mark_drill(&mark).await?;
            Ok::<_, Error>((living, crew, files))
        };
        let (living, crew, files) = match made.await {
            Ok(made) => made,
            Err(error) => {
                // Only what is certainly this drill's own.
                let _gone = remove_folder(&folder, &mark.nonce);
                if !is_given {
                    let _gone = home.drop_drill_database(&mark.nonce).await;
                }
                return Err(error);
            }
        };
        let place = store.place().to_owned();
        Ok(Self {
            store,
            broker,
            brokers: options.brokers,
            crew,
            files,
            mark,
            ttl: means.ttl,
            seed: means.seed,
            place,
            url: Secret::new(url),
            warehouse,
            is_given,
            home,
            living,
        })
    }

    /// Removes all of it.
    pub(super) async fn strike(self) -> Result<(), Error> {
        let Self { store, broker, mark, warehouse, is_given, home, living, .. } = self;
        let topics = remove_topics(&broker, &mark.topics).await;
        let rows = match &warehouse {
            Some(warehouse) => warehouse.drop_drill().await,
            None => Ok(()),
        };
        let folder = remove_folder(Path::new(&mark.folder), &mark.nonce);
        let database = if is_given {
            store.clear_drill().await
        } else {
            drop((store, living));
            dropped(&home, &mark.nonce).await
        };
        topics?;
        database?;
        rows.map_err(Error::Warehouse)?;
        folder.map_err(|source| Error::NotWritten { place: mark.folder, source })
    }

    /// Whether its processes stage rows in ClickHouse.
    pub(super) fn has_rows(&self) -> bool {
        self.warehouse.is_some()
    }

    /// Numbers for one scenario, whatever the others drew.
    pub(super) fn draw(&self, scenario: u64) -> Draw {
        Draw::new(self.seed.wrapping_mul(1_000_003).wrapping_add(scenario))
    }

    pub(super) fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.mark.topics)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.crew.folder.join(name)
    }

    /// The URL of the database in ClickHouse, if there is one.
    pub(super) fn warehouse_url(&self) -> Option<&str> {
        let mut all = self.crew.environment.iter();
        let found = all.find(|(name, _)| name == "FINAZ_CLICKHOUSE_URL");
        found.map(|(_, url)| url.as_str())
    }

    /// Text of a path in the drill's folder.
    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The URL of the database, with its password.
    pub(super) fn url(&self) -> &str {
        self.url.expose()
    }

    /// The same with more to its query.
    pub(super) fn url_with(&self, more: &str) -> String {
        let mark = if self.url().contains('?') { '&' } else { '?' };
        format!("{}{mark}{more}", self.url())
    }

    pub(super) fn artifacts(&self) -> Result<Artifacts, Broke> {
        let root = self.path("artifacts");
        Artifacts::open(&root).map_err(|error| unable(&root.display(), &error))
    }

    /// Takes note of what the drill does.
    pub(super) async fn note(&self, what: &str, lease: &str, who: &str) -> Result<(), Broke> {
        self.store.note_drill(what, Some(lease), who, None).await?;
        Ok(())
    }

    /// Starts `finaz` with these words.
    pub(super) fn start(&self, who: &str, args: &[&str]) -> Result<Actor, Broke> {
        self.crew.start(who, args, &[])
    }

    /// Runs it to its end.
    pub(super) async fn run(&self, who: &str, args: &[&str]) -> Result<Run, Broke> {
        self.start(who, args)?.end(SOON).await
    }

    /// Replays the fixture into a topic so many times; gives the last report.
    pub(super) async fn replay(&self, topic: &str, times: u64) -> Result<Value, Broke> {
        let args = ["replay", "--faults", &self.files.faults, "--topic", topic, "--create-topic"];
        let mut last = Value::Null;
        for _ in 0..times {
            last = self.run("replay", &args).await?.done("a replay")?;
        }
        Ok(last)
    }
}

/// Destroys a database; a busy server is asked again.
async fn dropped(home: &Store, nonce: &str) -> Result<(), store::Error> {
    let mut tries = 0;
    loop {
        match home.drop_drill_database(nonce).await {
            Err(error) if error.is_away() && tries < DROPS_MAX => {
                tries += 1;
                tracing::warn!(%error, nonce, "its database is not gone yet");
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

/// The database of a nonce, and the URL of it.
fn database(control: &Control, nonce: &str) -> Result<(Store, String), Error> {
    let settings = &control.settings;
    let base = settings.pg_url.as_ref().map(|url| url.expose()).unwrap_or_default();
    let limits = Limits { ttl: settings.lease_ttl };
    let (connect, url) =
        Connect::to_database(base, &drill_database(nonce), limits, settings.allow_plaintext)?;
    Ok((Store::new(connect)?, url))
}

/// The drill's own database in ClickHouse and its URL, where the settings have a ClickHouse.
fn warehouse(control: &Control, nonce: &str) -> Result<Option<(Warehouse, Secret)>, Error> {
    let settings = &control.settings;
    let Some(url) = settings.clickhouse_url.as_ref().filter(|_| !settings.warehouse_none) else {
        return Ok(None);
    };
    let url = drill_warehouse(url.expose(), nonce)?;
    Ok(Some((control.warehouse_at(&url)?, Secret::new(url))))
}

/// Makes sure that the database is a drill's and that no other drill is in it; one that was given is cleaned of what a
/// dead one left there.
async fn claim(
    control: &Control,
    store: &Store,
    is_given: bool,
    broker: &Broker,
) -> Result<DrillSession, Error> {
    if is_given && store.drill_state().await? == DrillState::Unmarked {
        return Err(unmarked(store).into());
    }
    let Some(living) = store.live_drill().await? else {
        let hint = "wait for it, or leave --database out";
        let message = "another drill is under way there";
        return Err(Invalid::new("DRILL_RUNNING", store.place(), message, hint).into());
    };
    if !is_given {
        // After the lock: whoever finds the mark and not the lock takes it for a dead one's.
        store.mark_database().await?;
    }
    match store.drill_state().await? {
        DrillState::Empty => {}
        DrillState::Unmarked => return Err(unmarked(store).into()),
        DrillState::InUse => {
            let message = "it has tables that no drill made";
            let hint = "name a database of its own, which may be destroyed";
            return Err(Invalid::new("DRILL_NOT_EMPTY", store.place(), message, hint).into());
        }
        DrillState::Of(dead) => {
            bury(control, &dead, broker).await?;
            store.clear_drill().await?;
        }
    }
    Ok(living)
}

fn unmarked(store: &Store) -> Invalid {
    Invalid::new(
        "DRILL_UNMARKED",
        store.place(),
        "nothing says that this database is a drill's, to be destroyed at will",
        "leave --database out, or mark an empty database: COMMENT ON DATABASE name IS 'finaz drill'",
    )
}

/// Removes what drills that died have left on this server; those that live are left alone.
async fn sweep(control: &Control, home: &Store, broker: &Broker) -> Result<(), Error> {
    for nonce in home.drill_databases().await? {
        let (store, _) = database(control, &nonce)?;
        let buried = async {
            // It lives; or it died this moment and is the next one's.
            let Some(_mine) = store.live_drill().await? else { return Ok(false) };
            if let DrillState::Of(dead) = store.drill_state().await? {
                if dead.nonce != nonce {
                    return Ok(false);
                }
                bury(control, &dead, broker).await?;
            }
            Ok::<_, Error>(true)
        };
        match buried.await {
            Ok(true) => {
                home.drop_drill_database(&nonce).await?;
                tracing::info!(nonce, "removed what a drill that died had left");
            }
            Ok(false) => {}
            // Another one removes it just now.
            Err(error) => tracing::warn!(%error, nonce, "left alone"),
        }
    }
    Ok(())
}

/// Removes topics, rows and folder of a drill that died.
async fn bury(control: &Control, dead: &DrillMark, broker: &Broker) -> Result<(), Error> {
    if let Some((warehouse, _)) = warehouse(control, &dead.nonce)? {
        warehouse.drop_drill().await.map_err(Error::Warehouse)?;
    }
    if dead.topics == format!("{PREFIX}{}.", dead.nonce) {
        remove_topics(broker, &dead.topics).await?;
    }
    let folder = Path::new(&dead.folder);
    // On another machine there is no such folder, or one without its mark.
    if folder.ends_with(format!("{PREFIX}{}", dead.nonce)) {
        let place = dead.folder.clone();
        remove_folder(folder, &dead.nonce).map_err(|source| Error::NotWritten { place, source })?;
    }
    Ok(())
}

async fn remove_topics(broker: &Broker, prefix: &str) -> Result<(), Error> {
    for topic in broker.topic_names().await?.iter().filter(|topic| topic.starts_with(prefix)) {
        broker.delete_topic(topic).await?;
    }
    Ok(())
}

/// Removes a folder that has the mark of this nonce; any other is left alone.
fn remove_folder(folder: &Path, nonce: &str) -> std::io::Result<()> {
    let Ok(mark) = fs::read(folder.join(MARK)) else { return Ok(()) };
    let mark: Value = serde_json::from_slice(&mark).unwrap_or(Value::Null);
    if mark["nonce"] == nonce { fs::remove_dir_all(folder) } else { Ok(()) }
}

/// The folder, and how processes are started in it.
fn furnish(
    control: &Control,
    means: &Means<'_>,
    mark: &DrillMark,
    (url, rows): (&str, Option<Secret>),
) -> Result<(Crew, Files), Error> {
    let folder = PathBuf::from(&mark.folder);
    let place = mark.folder.clone();
    let written = |source| Error::NotWritten { place: place.clone(), source };
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(written)?;
    let text = json!({"kind": "FinazDrill", "nonce": mark.nonce, "topics": mark.topics});
    fs::write(folder.join(MARK), text.to_string()).map_err(written)?;
    let settings = &control.settings;
    let mut environment = vec![
        ("FINAZ_JSON".to_owned(), "1".to_owned()),
        ("FINAZ_PG_URL".to_owned(), url.to_owned()),
        ("FINAZ_ARTIFACTS".to_owned(), folder.join("artifacts").display().to_string()),
        ("FINAZ_LEASE_TTL_SEC".to_owned(), means.ttl.as_secs_f64().to_string()),
        ("FINAZ_BROKERS".to_owned(), settings.brokers.clone().unwrap_or_default()),
        ("FINAZ_BROKER_TLS".to_owned(), settings.broker_tls.to_owned()),
        ("FINAZ_BROKER_SASL".to_owned(), settings.broker_sasl.to_owned()),
        ("FINAZ_ALLOW_PLAINTEXT".to_owned(), settings.allow_plaintext.to_string()),
    ];
    environment.push(match rows {
        Some(url) => ("FINAZ_CLICKHOUSE_URL".to_owned(), url.expose().to_owned()),
        None => ("FINAZ_WAREHOUSE".to_owned(), "none".to_owned()),
    });
    if let Some(ca) = &settings.tls_ca {
        environment.push(("FINAZ_TLS_CA".to_owned(), ca.display().to_string()));
    }
    if let (Some(user), Some(password)) = (&settings.broker_user, &settings.broker_password) {
        let file = folder.join("broker-password");
        fs::write(&file, password.expose()).map_err(written)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&file, private).map_err(written)?;
        environment.push(("FINAZ_BROKER_USER".to_owned(), user.clone()));
        let file = file.display().to_string();
        environment.push(("FINAZ_BROKER_PASSWORD_FILE".to_owned(), file));
    }
    let files = Files::write(&folder).map_err(|broke| {
        let (Broke::Failed(why) | Broke::Unable(why)) = broke;
        Error::NotWritten { place: mark.folder.clone(), source: std::io::Error::other(why) }
    })?;
    Ok((Crew { binary: means.binary.to_owned(), folder, environment }, files))
}
