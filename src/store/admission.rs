//! Claim or reject by idempotency key, in sets.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::listen::RING;
use super::{Error, Store};
use crate::ids::Hash;
use crate::rules::admission::Request;

/// Writes of one admission that may be retried when the reply to COMMIT is lost.
const TRIES_MAX: u32 = 3;

/// Inserts what is not there: admission, run and event in one statement. What it does not return was
/// there before; the next statement sees it, this one's snapshot may not.
const ADMIT: &str = "
    WITH i AS MATERIALIZED (
        SELECT i.*, nextval('finaz.run_no') AS run_no, nextval('finaz.event_id') AS event_id
        FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bytea[])
             AS i (scope, body_hash, run_id, principal, operation, key, flow, snapshot)
    ), a AS (
        INSERT INTO finaz.admission (scope, run_no, request, body_hash, principal, operation, key)
        SELECT scope, run_no, $1, body_hash, principal, operation, key FROM i
        ON CONFLICT (scope) DO NOTHING
        RETURNING run_no
    ), r AS (
        INSERT INTO finaz.api_runs (run_no, event_id, flow, snapshot, run_id)
        SELECT i.run_no, i.event_id, i.flow, i.snapshot, i.run_id FROM i JOIN a USING (run_no)
        RETURNING run_no
    )
    INSERT INTO finaz.outbox (id, run_no, type, run_id)
    SELECT i.event_id, i.run_no, 'run.requested', i.run_id FROM i JOIN r USING (run_no)";

const READ: &str = "
    SELECT a.scope, a.request = $1, a.body_hash, r.run_no, r.run_id, r.state
    FROM finaz.admission AS a JOIN finaz.api_runs AS r USING (run_no)
    WHERE a.scope = ANY ($2)";

/// What became of one request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// A new run, or the one that the same request made before.
    Admitted(Admitted),
    /// The key was used with another body.
    Conflict { held: Hash },
}

/// The run of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admitted {
    pub run_no: i64,
    pub run_id: String,
    pub created: bool,
    pub state: String,
}

impl Store {
    /// Admits a set in one transaction; a verdict for each request, in their order. With `wake` idle workers
    /// hear of it as soon as it is committed.
    ///
    /// A lost reply to COMMIT is settled by reading back: our own row carries this call's id, so it is
    /// neither admitted twice nor reported as somebody else's.
    pub async fn admit(&self, requests: &[Request], wake: bool) -> Result<Vec<Verdict>, Error> {
        let call = Uuid::new_v4();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.bounded(self.admit_once(call, requests, wake)).await {
                Ok(Some(verdicts)) => return Ok(verdicts),
                // Another session's insert of the same key was rolled back in between.
                Ok(None) if tries < TRIES_MAX => {}
                Ok(None) => return Err(Error::Busy),
                // Whatever happened to the first try, a second insert of the same rows changes nothing.
                Err(error) if error.is_away() && tries < TRIES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Inserts, rings and reads back in one round trip of three transactions: a worker is at the run before the
    /// caller has its answer. `None` when a key of the set is not there at all.
    async fn admit_once(
        &self,
        call: Uuid,
        requests: &[Request],
        wake: bool,
    ) -> Result<Option<Vec<Verdict>>, Error> {
        // Sorted, so that two sets that share keys do not wait for each other crosswise.
        // A set may name a key twice; the first body wins, as it would one by one.
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&index| (requests[index].scope, index));
        order.dedup_by_key(|index| requests[*index].scope);
        let bytes = |get: fn(&Request) -> &Hash| -> Vec<&[u8]> {
            order.iter().map(|&index| get(&requests[index]).as_bytes().as_slice()).collect()
        };
        let texts = |get: fn(&Request) -> &str| -> Vec<&str> {
            order.iter().map(|&index| get(&requests[index])).collect()
        };
        let client = self.client().await?;
        let insert = client.prepare_cached(ADMIT).await.map_err(|error| self.error(&error))?;
        let read = client.prepare_cached(READ).await.map_err(|error| self.error(&error))?;
        let scopes = bytes(|request| &request.scope);
        let set: [&(dyn ToSql + Sync); 9] = [
            &call,
            &scopes,
            &bytes(|request| &request.body_hash),
            &texts(|request| &request.run_id),
            &texts(|request| &request.principal),
            &texts(|request| &request.operation),
            &texts(|request| &request.key),
            &bytes(|request| &request.flow),
            &bytes(|request| &request.snapshot),
        ];
        let ours: [&(dyn ToSql + Sync); 2] = [&call, &scopes];
        // Polled in this order, and so sent and executed.
        let (inserted, rung, rows) = tokio::join!(
            client.execute(&insert, &set),
            async { if wake { client.batch_execute(RING).await } else { Ok(()) } },
            client.query(&read, &ours),
        );
        inserted.map_err(|error| self.commit_error(&error))?;
        if let Err(error) = rung {
            tracing::debug!(%error, "nobody was woken");
        }
        Ok(verdicts(requests, &rows.map_err(|error| self.error(&error))?))
    }
}

fn verdicts(requests: &[Request], rows: &[tokio_postgres::Row]) -> Option<Vec<Verdict>> {
    let held: std::collections::HashMap<&[u8], &tokio_postgres::Row> =
        rows.iter().map(|row| (row.get::<_, &[u8]>(0), row)).collect();
    let mut seen = std::collections::HashSet::new();
    let mut verdicts = Vec::with_capacity(requests.len());
    for request in requests {
        let row = held.get(request.scope.as_bytes().as_slice())?;
        if row.get::<_, &[u8]>(2) == request.body_hash.as_bytes() {
            verdicts.push(Verdict::Admitted(Admitted {
                run_no: row.get(3),
                run_id: row.get(4),
                created: row.get::<_, bool>(1) && seen.insert(request.scope),
                state: row.get(5),
            }));
        } else {
            let held = Hash::from_digest(row.get(2)).expect("the column is checked");
            verdicts.push(Verdict::Conflict { held });
        }
    }
    Some(verdicts)
}
