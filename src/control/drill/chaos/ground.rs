//! Where a campaign plays: besides the stage a PostgreSQL of its own where that can be had, and a proxy between each group
//! of processes and each server.

use std::time::Duration;

use tokio::sync::Mutex;

use crate::config::Secret;
use crate::control::Control;
use crate::control::drill::fixture;
use crate::control::drill::proxy::{Protocol, Proxy};
use crate::control::drill::server::Server;
use crate::control::drill::stage::Stage;
use crate::control::drill::wait::unable;
use crate::drill::Broke;
use crate::store::{Connect, DrillMark, Limits, Store, by_way_of, drill_database};
use crate::warehouse::warehouse_by_way_of;

/// Who is behind one proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Group {
    Workers,
    Streams,
    Clients,
}

impl Group {
    pub(super) const ALL: [Self; 3] = [Self::Workers, Self::Streams, Self::Clients];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Streams => "streams",
            Self::Clients => "clients",
        }
    }
}

/// A server as one group reaches it.
#[derive(Debug)]
pub(super) struct Road {
    pub(super) group: Group,
    pub(super) proxy: Proxy,
    /// The URL or address of the way through the proxy.
    pub(super) address: String,
}

#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub(super) stage: &'a Stage,
    /// The drill's own, which may be restarted.
    pub(super) server: Option<Mutex<Server>>,
    /// The database that the processes work in, straight.
    pub(super) store: Store,
    url: Secret,
    pub(super) postgres: Vec<Road>,
    pub(super) broker: Vec<Road>,
    pub(super) warehouse: Option<Road>,
    /// What is not as it should be, and why: in the evidence.
    pub(super) lacks: Vec<String>,
    /// What must be in no output.
    secrets: Vec<Secret>,
}

impl<'a> Ground<'a> {
    pub(super) async fn set(
        control: &Control,
        stage: &'a Stage,
        is_given: bool,
    ) -> Result<Ground<'a>, Broke> {
        let mut lacks = Vec::new();
        let server = if is_given {
            lacks.push("PostgreSQL is not restarted: the database was given".to_owned());
            None
        } else {
            match Server::start(&stage.crew.binary, &stage.crew.folder).await {
                Ok(server) => Some(server),
                Err(Broke::Unable(why) | Broke::Failed(why)) => {
                    lacks.push(format!(
                        "PostgreSQL is not restarted, there is none of its own: {why}"
                    ));
                    None
                }
            }
        };
        let (store, url) = match &server {
            Some(server) => own_database(server, &stage.mark).await?,
            None => (stage.store.clone(), Secret::new(stage.url())),
        };
        let mut secrets = secrets(control);
        secrets.extend(server.as_ref().map(|server| server.password.clone()));
        let postgres = postgres_roads(url.expose(), &mut lacks).await?;
        let broker = broker_roads(&stage.brokers, &mut lacks).await?;
        let warehouse = warehouse_road(stage.warehouse_url(), &mut lacks).await?;
        let server = server.map(Mutex::new);
        Ok(Ground { stage, server, store, url, postgres, broker, warehouse, lacks, secrets })
    }

    /// Schema, notes, snapshot: what all need before they begin.
    pub(super) async fn furnish(&self) -> Result<(), Broke> {
        self.run("migrate", &["db", "migrate"]).await?;
        self.store.watch_drill().await?;
        self.store.watch_chaos().await?;
        let snapshot = self.stage.files.snapshot.display().to_string();
        self.run("import", &["snapshot", "import", &snapshot, "--name", fixture::NAME]).await
    }

    async fn run(&self, what: &str, args: &[&str]) -> Result<(), Broke> {
        let more = self.straight();
        let more: Vec<(&str, &str)> =
            more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut actor = self.stage.crew.start(what, args, &more)?;
        actor.end(Duration::from_secs(60)).await?.done(what)?;
        Ok(())
    }

    /// The settings of a process that goes straight to the servers.
    pub(super) fn straight(&self) -> Vec<(&'static str, String)> {
        vec![("FINAZ_PG_URL", self.url.expose().to_owned())]
    }

    /// The settings of a process of this group.
    pub(super) fn by_way(&self, group: Group) -> Vec<(&'static str, String)> {
        let mut more = self.straight();
        let mut set = |name, roads: &[Road]| {
            let road = roads.iter().find(|road| road.group == group);
            if let Some(road) = road {
                more.retain(|(known, _)| *known != name);
                more.push((name, road.address.clone()));
            }
        };
        set("FINAZ_PG_URL", &self.postgres);
        set("FINAZ_BROKERS", &self.broker);
        let road = self.warehouse.as_ref();
        more.extend(road.map(|road| ("FINAZ_CLICKHOUSE_URL", road.address.clone())));
        more
    }

    /// Whether a password of any server is in it.
    pub(super) fn has_secret(&self, bytes: &[u8]) -> bool {
        let is_in = |secret: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
        self.secrets.iter().any(|secret| is_in(secret.expose().as_bytes()))
    }

    /// A session that must not be ended: the one by which the drill lives.
    pub(super) fn kept_session(&self) -> i32 {
        if self.server.is_some() { 0 } else { self.stage.living.pid }
    }
}

/// The passwords of the settings.
fn secrets(control: &Control) -> Vec<Secret> {
    let settings = &control.settings;
    let of_url = |url: &Secret| url.password().map(Secret::new);
    let urls = [settings.pg_url.as_ref(), settings.clickhouse_url.as_ref()];
    let mut secrets: Vec<Secret> = urls.into_iter().flatten().filter_map(of_url).collect();
    secrets.extend(settings.broker_password.clone());
    secrets.retain(|secret| secret.expose().len() >= 8);
    secrets
}

async fn own_database(server: &Server, mark: &DrillMark) -> Result<(Store, Secret), Broke> {
    let invalid = |error| unable(&"the drill's PostgreSQL", &error);
    let limits = Limits { ttl: super::TTL };
    let home = Connect::new(server.url.expose(), limits, false).map_err(invalid)?;
    Store::new(home)?.create_drill_database(&mark.nonce).await?;
    let (connect, url) =
        Connect::to_database(server.url.expose(), &drill_database(&mark.nonce), limits, false)
            .map_err(invalid)?;
    let store = Store::new(connect)?;
    store.mark_database().await?;
    store.mark_drill(mark).await?;
    Ok((store, Secret::new(url)))
}

async fn postgres_roads(url: &str, lacks: &mut Vec<String>) -> Result<Vec<Road>, Broke> {
    if url.contains("sslmode=") && !url.contains("sslmode=disable") {
        lacks.push("nothing stands between processes and PostgreSQL: it speaks TLS".to_owned());
        return Ok(Vec::new());
    }
    let (_, target) = by_way_of(url, 0);
    let mut roads = Vec::new();
    for group in Group::ALL {
        let proxy = Proxy::to(&target, Protocol::Postgres).await?;
        let (address, _) = by_way_of(url, proxy.port);
        roads.push(Road { group, proxy, address });
    }
    Ok(roads)
}

async fn broker_roads(brokers: &str, lacks: &mut Vec<String>) -> Result<Vec<Road>, Broke> {
    let target = brokers.split(',').next().unwrap_or_default().trim();
    let is_near = target.starts_with("127.0.0.1:") || target.starts_with("localhost:");
    if !is_near {
        let why = "nothing stands between processes and the broker: it is on another machine";
        lacks.push(why.to_owned());
        return Ok(Vec::new());
    }
    lacks.push("the broker is not restarted but cut off: it is not the drill's own".to_owned());
    let mut roads = Vec::new();
    for group in [Group::Streams, Group::Clients] {
        let proxy = Proxy::to(target, Protocol::Kafka).await?;
        let address = format!("127.0.0.1:{}", proxy.port);
        roads.push(Road { group, proxy, address });
    }
    Ok(roads)
}

async fn warehouse_road(url: Option<&str>, lacks: &mut Vec<String>) -> Result<Option<Road>, Broke> {
    let Some(url) = url else {
        lacks.push("there is no ClickHouse in the settings".to_owned());
        return Ok(None);
    };
    let Some((_, target)) = warehouse_by_way_of(url, 0) else {
        lacks.push("nothing stands between processes and ClickHouse: it speaks TLS".to_owned());
        return Ok(None);
    };
    lacks.push("ClickHouse is not stopped but cut off: it is not the drill's own".to_owned());
    let proxy = Proxy::to(&target, Protocol::Other).await?;
    let way = warehouse_by_way_of(url, proxy.port);
    Ok(way.map(|(address, _)| Road { group: Group::Workers, proxy, address }))
}
