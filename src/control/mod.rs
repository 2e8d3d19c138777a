//! Carries out what the rules decide: one file a verb, each a function that returns a plain report.

pub mod admit;
mod batch;
mod brokers;
pub mod cas;
pub mod checkpoint;
pub mod db;
pub mod doctor;
pub mod drill;
pub mod dry_run;
pub mod evidence;
pub mod export;
pub mod flows;
mod heart;
mod inputs;
mod journal;
pub mod leases;
mod new_file;
pub mod parity;
mod publish;
pub mod reconcile;
mod refusal;
pub mod replay;
pub mod run_once;
pub mod runs;
pub mod snapshots;
pub mod stream;
pub mod worker;

use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use crate::artifacts::Error as ArtifactsError;
pub use crate::broker::Error as BrokerError;
pub use crate::journal::Error as JournalError;
pub use crate::store::Error as StoreError;
pub use crate::warehouse::Error as WarehouseError;
pub use refusal::Error;

use crate::artifacts::Artifacts;
use crate::config::{HoldAt, Settings};
use crate::points;
use crate::store::{Connect, DrillState, Limits, Store};
use crate::warehouse::{self, Warehouse};

/// What every verb works with. Opens a server when a verb first needs it, and none that it does not need.
#[derive(Debug)]
pub struct Control {
    pub settings: Settings,
    artifacts: OnceLock<Arc<Artifacts>>,
    store: OnceLock<Store>,
    /// Whether a drill's wish was looked at.
    armed: OnceLock<()>,
}

impl Control {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            artifacts: OnceLock::new(),
            store: OnceLock::new(),
            armed: OnceLock::new(),
        }
    }

    /// The artifact store, made if it is not there.
    fn artifacts(&self) -> Result<&Arc<Artifacts>, Error> {
        if let Some(artifacts) = self.artifacts.get() {
            return Ok(artifacts);
        }
        let artifacts = Arc::new(Artifacts::open(&self.settings.artifacts)?);
        Ok(self.artifacts.get_or_init(|| artifacts))
    }

    /// The artifact store if it is there: a question makes none.
    fn existing_artifacts(&self) -> Result<Option<&Arc<Artifacts>>, Error> {
        let there = self.artifacts.get().is_some() || self.settings.artifacts.exists();
        if there { self.artifacts().map(Some) } else { Ok(None) }
    }

    /// The database, or a refusal that says which setting is missing.
    fn store(&self) -> Result<&Store, Error> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let url = self.settings.pg_url.as_ref().ok_or(Error::Unset {
            code: "PG_URL_UNSET",
            what: "this needs PostgreSQL, and no URL is set",
            hint: "set FINAZ_PG_URL or pg_url in the config file; `make env` prints that of `make up`",
        })?;
        let limits = Limits { ttl: self.settings.lease_ttl };
        let connect = Connect::new(url.expose(), limits, self.settings.allow_plaintext)?;
        let store = Store::new(connect)?;
        Ok(self.store.get_or_init(|| store))
    }

    /// Sessions of their own to the same database, for what must not wait for the work's.
    fn second_store(&self) -> Result<Store, Error> {
        Ok(self.store()?.with_own_pool()?)
    }

    /// ClickHouse, unless this setup has none; connects to nothing yet.
    fn warehouse(&self) -> Result<Option<Warehouse>, Error> {
        let url = match &self.settings.clickhouse_url {
            Some(url) if !self.settings.warehouse_none => url,
            Some(_) | None => return Ok(None),
        };
        self.warehouse_at(url.expose()).map(Some)
    }

    /// Another ClickHouse, reached in the same way.
    fn warehouse_at(&self, url: &str) -> Result<Warehouse, Error> {
        let options = warehouse::Options {
            ca: self.settings.tls_ca.clone(),
            allow_plaintext: self.settings.allow_plaintext,
            patience: self.settings.service_timeout,
        };
        Ok(Warehouse::connect(url, &options)?)
    }

    /// All that a run passes through, checked: the schemas fit, and the server is one to entrust results to.
    async fn rooms(&self) -> Result<batch::Rooms, Error> {
        let store = self.ready_store().await?;
        if let Some((check, what)) = store.health().await?.unsafe_for_work() {
            return Err(Error::Store(crate::store::Error::Unsafe { check, what }));
        }
        let warehouse = self.warehouse()?;
        if let Some(warehouse) = &warehouse {
            warehouse.check().await?;
        }
        self.pair(store).await?;
        Ok(batch::Rooms::new(store.clone(), Arc::clone(self.artifacts()?), warehouse))
    }

    /// Notes in the artifact store that this database names blobs of it: from now on they belong together.
    async fn pair(&self, store: &Store) -> Result<(), Error> {
        let birth = store.birth().await?;
        Ok(self.artifacts()?.note_database(&birth)?)
    }

    /// The database with the schema that this binary needs.
    async fn ready_store(&self) -> Result<&Store, Error> {
        let store = self.store()?;
        let check = tokio::time::timeout(self.settings.service_timeout, store.require_schema());
        check.await.map_err(|_late| {
            Error::Store(crate::store::Error::Away {
                place: store.place().to_owned(),
                why: "no answer in time".to_owned(),
            })
        })??;
        if let Some(hold) = self.settings.hold.as_ref().filter(|_| self.armed.set(()).is_ok()) {
            arm(store, hold).await?;
        }
        Ok(store)
    }
}

/// Does what a drill asks for, if this database is marked as that drill's. Anywhere else the wish is nothing.
async fn arm(store: &Store, hold: &HoldAt) -> Result<(), Error> {
    match store.drill_state().await? {
        DrillState::Of(mark) if mark.nonce == hold.nonce => {
            points::arm(hold.point, hold.nth, Path::new(&mark.folder));
        }
        DrillState::Of(_) | DrillState::Unmarked | DrillState::InUse | DrillState::Empty => {
            tracing::warn!("this database is not the drill's that wants to hold this process");
        }
    }
    Ok(())
}
