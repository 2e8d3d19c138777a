//! Is everything there that a run needs, and is it safe to entrust results to?

use serde::Serialize;

use super::{Control, Error};
use crate::store;

/// One question and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub id: &'static str,
    pub ok: bool,
    pub expected: String,
    pub seen: String,
    pub hint: String,
}

impl Check {
    pub(super) fn new(
        id: &'static str,
        ok: bool,
        expected: &str,
        seen: String,
        hint: &str,
    ) -> Self {
        let hint = if ok { String::new() } else { hint.to_owned() };
        Self { id, ok, expected: expected.to_owned(), seen, hint }
    }
}

/// Every check, whatever came out.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    pub ok: bool,
    /// A service that this setup names is away: the same command may succeed later.
    pub away: bool,
    pub checks: Vec<Check>,
}

/// Asks everything that a worker would depend on.
pub async fn doctor(control: &Control) -> Result<DoctorReport, Error> {
    let mut checks = Vec::new();
    let mut away = false;
    match database(control).await {
        Ok(found) => checks.extend(found),
        // It may show before we ask: another session's statements, or none of ours.
        Err(Error::Store(store::Error::Unsafe { .. })) => checks.push(sessions(true)),
        Err(Error::Store(error)) => {
            away |= error.is_away();
            let hint = if error.is_away() {
                "start the server, or correct FINAZ_PG_URL"
            } else {
                "correct the user, password or database of FINAZ_PG_URL"
            };
            checks.push(Check::new("postgresql", false, "reachable", error.to_string(), hint));
        }
        Err(Error::Unset { what, hint, .. }) => {
            checks.push(Check::new("postgresql", false, "a URL", what.to_owned(), hint));
        }
        Err(other) => return Err(other),
    }
    checks.push(artifacts(control));
    let (check, warehouse_away) = warehouse(control).await?;
    checks.push(check);
    away |= warehouse_away;
    let ok = checks.iter().all(|check| check.ok);
    Ok(DoctorReport { ok, away, checks })
}

/// The artifact store takes a blob and gives it back.
fn artifacts(control: &Control) -> Check {
    let place = control.settings.artifacts.display().to_string();
    let tried = control.artifacts().and_then(|artifacts| {
        let hash = artifacts.put(b"finaz doctor\n")?;
        artifacts.get(&hash)?;
        Ok(())
    });
    let (ok, seen) = match tried {
        Ok(()) => (true, place),
        Err(error) => (false, error.to_string()),
    };
    let hint = "make the folder writable for this user, or name another with FINAZ_ARTIFACTS";
    Check::new("artifacts", ok, "a blob written and read back", seen, hint)
}

async fn warehouse(control: &Control) -> Result<(Check, bool), Error> {
    let hint = "start ClickHouse, run `finaz db migrate`, or work without it: --warehouse none";
    let Some(warehouse) = control.warehouse()? else {
        // Legal, but whoever reads the rows in ClickHouse should know.
        let seen = "none: results are in the artifact store alone".to_owned();
        return Ok((Check::new("clickhouse", true, "reachable, or none", seen, hint), false));
    };
    Ok(match warehouse.check().await {
        Ok(()) => (
            Check::new("clickhouse", true, "reachable, schema fits", "both".to_owned(), hint),
            false,
        ),
        Err(error) => {
            let away = error.is_away();
            let check =
                Check::new("clickhouse", false, "reachable, schema fits", error.to_string(), hint);
            (check, away)
        }
    })
}

fn sessions(pooled: bool) -> Check {
    let seen = if pooled { "a pooler in transaction mode" } else { "direct" };
    let hint = "connect directly, or through the pooler in session mode";
    Check::new("pg_sessions", !pooled, "sessions of our own", seen.to_owned(), hint)
}

async fn database(control: &Control) -> Result<Vec<Check>, Error> {
    let store = control.store()?;
    let health = tokio::time::timeout(control.settings.service_timeout, store.health())
        .await
        .map_err(|_late| store::Error::Away {
            place: store.place().to_owned(),
            why: "no answer in time".to_owned(),
        })??;
    let schema = store.schema_state().await?;
    let mut checks = vec![
        Check::new(
            "pg_version",
            health.version >= 150_000,
            "15 or newer",
            (health.version / 10_000).to_string(),
            "use PostgreSQL 15 or newer",
        ),
        Check::new(
            "pg_primary",
            !health.replica && !health.read_only,
            "the primary, writable",
            if health.replica {
                "a replica".to_owned()
            } else if health.read_only {
                "read-only".to_owned()
            } else {
                "primary".to_owned()
            },
            "point FINAZ_PG_URL at the primary: a lease read from a replica proves nothing",
        ),
        sessions(health.transaction_pooler),
        Check::new(
            "pg_durability",
            health.fsync && health.full_page_writes,
            "fsync and full_page_writes on",
            format!("fsync {}, full_page_writes {}", health.fsync, health.full_page_writes),
            "set both to on: without them a crash can hand out a fence twice",
        ),
        Check::new(
            "pg_synchronous_commit",
            health.synchronous_commit != "off",
            "not off",
            health.synchronous_commit.clone(),
            "finaz sets it to on for its own sessions; set it for everybody who writes beside it",
        ),
        Check::new(
            "pg_connections",
            health.connections_free >= 10,
            "10 free",
            format!("{} of {} free", health.connections_free, health.connections_max),
            "raise max_connections, or end sessions",
        ),
        Check::new(
            "pg_oldest_snapshot",
            health.oldest_snapshot < 3600.0,
            "younger than 1 h",
            format!("{:.0} s", health.oldest_snapshot),
            "end the transaction: dead rows behind it cannot be removed, and claims get slow",
        ),
    ];
    checks.push(super::db::schema_check(schema.found, schema.needed));
    Ok(checks)
}
