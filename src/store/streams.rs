//! How far each stream has come: one row a stream, moved under its lease by compare-and-set on (fence, seq).

use std::time::{Duration, Instant};

use tokio_postgres::types::ToSql;

use super::one_trip::Steps;
use super::{Error, Store};
use crate::ids::{Hash, Owner, StreamIdentity};
use crate::points::Point;
use crate::rules::settle::{self, Next, Told};

/// No new try after this long: what a commit names must still be young when it is named (`Store::named_blobs`).
const TRY_TIME_MAX: Duration = Duration::from_secs(20);

/// Locks the lease. What it returns is judged by the statement behind it, whose clock is read after the lock was
/// granted.
pub(super) const LOCK_LEASE: &str = "SELECT 1 FROM finaz.leases WHERE name = $1 FOR UPDATE";

/// The lease of `$1` if it is the asker's (`$2` owner, `$3` epoch, `$4` fence) and its time is not over; and the note of
/// a refusal where it is not. Runs behind LOCK_LEASE in the same transaction. `{effect}` says what was refused.
const UNDER_LEASE: &str = "
    WITH v AS MATERIALIZED (
        SELECT name FROM finaz.leases
        WHERE name = $1 AND owner = $2 AND epoch = $3 AND fence = $4
          AND NOT closed AND expires_at > clock_timestamp()
    ), r AS (
        INSERT INTO finaz.refused_effects (effect, run_id, lease, owner, fence, current_owner, current_fence)
        SELECT '{effect}', $5::text, $1, $2, $4, l.owner, l.fence
        FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1
        WHERE NOT EXISTS (SELECT FROM v)
    ),";

/// Two streams of one run, or of one flow, topic and group, that open at once meet here: `$1` names the run, then the
/// three. Locked before any lease.
const LOCK_SOURCE: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 8))";

/// Then no lease of the others is renewed while we look: a renewal under way is waited for, one that comes later finds the
/// lease expired if we did.
const LOCK_OTHERS: &str = "
    SELECT 1 FROM finaz.streams AS s JOIN finaz.leases AS l USING (name)
    WHERE s.name <> $1
      AND (s.run_id = $6 OR (s.cluster, s.topic_id, s.consumer_group, s.flow) = ($2, $3, $4, $5))
    ORDER BY s.name FOR SHARE OF l";

/// Behind UNDER_LEASE and these locks: inserts the row where there is none, unless another stream is in its way: one of
/// the same run, begun, that belongs to something else, or is whole where this one is a partition (and the other way
/// round); or a live one of the same flow, topic and group that has a partition in common.
const OPEN: &str = "
    o AS MATERIALIZED (
        SELECT s.name FROM finaz.streams AS s LEFT JOIN finaz.leases AS l USING (name)
        WHERE s.name <> $1 AND (
            s.run_id = $5 AND (s.seq > 0 OR NOT l.closed AND l.expires_at > clock_timestamp())
                AND ((s.partitions IS NULL) <> ($12::integer[] IS NULL) OR (s.cluster, s.topic_id, s.consumer_group, s.flow)
                   IS DISTINCT FROM ($6::text, $7::text, $9::text, $10::bytea))
            OR (s.cluster, s.topic_id, s.consumer_group, s.flow) = ($6::text, $7::text, $9::text, $10::bytea)
                AND NOT l.closed AND l.expires_at > clock_timestamp()
                AND (s.partitions IS NULL OR $12::integer[] IS NULL OR s.partitions && $12::integer[]))
        ORDER BY s.run_id <> $5, s.name LIMIT 1
    ), u AS (
        INSERT INTO finaz.streams (name, run_id, cluster, topic_id, topic, consumer_group, flow, flow_name,
                                   partitions, state)
        SELECT $1, $5, $6::text, $7::text, $8::text, $9::text, $10::bytea, $11::text, $12::integer[], $13::text FROM v
        WHERE NOT EXISTS (SELECT FROM o)
        ON CONFLICT (name) DO NOTHING
    )
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence, (SELECT name FROM o)
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

/// Behind UNDER_LEASE: moves the pointer from (`$6` fence, `$7` seq). The fence of a row never goes down.
const MOVE: &str = "
    u AS (
        UPDATE finaz.streams AS s SET epoch = $3, fence = $4, seq = $8, head = $9, blobs = $10, state = $11,
               reason = $12, report = $13, committed_at = clock_timestamp()
        FROM v WHERE s.name = v.name AND s.fence = $6 AND s.seq = $7 AND (s.epoch, s.fence) <= ($3, $4)
        RETURNING s.seq
    ){noted}
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence, EXISTS (SELECT FROM u)
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

/// Where a drill can hold a process that commits.
const STEPS: Steps = Steps {
    begun: Point::CommitBegun,
    locked: Some(Point::CommitLocked),
    made: Point::CommitMade,
    sent: Point::CommitSent,
    acked: Point::CommitAcked,
};

/// In [`MOVE`], where it goes back: who did that, and why.
const NOTE_RESTORE: &str = ",
    n AS (
        INSERT INTO finaz.restores (name, run_id, checkpoint, manifest_hash, from_seq, seq, epoch, fence, who, reason)
        SELECT $1, $5, $14::text, $15::bytea, $7, $8, $3, $4, $16::text, $17::text FROM u
    )";

/// Behind UNDER_LEASE: asks, and changes nothing.
const ASK: &str = "
    u AS (SELECT)
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

/// What a refused effect is on record as: the mark of a fence in the artifact store, a commit or another word about a
/// stream, or the file of its values.
const LEASE: &str = "lease";
const JOURNAL: &str = "journal";
const EMIT: &str = "emit";

/// A statement that runs under a lease.
pub(super) fn under_lease(effect: &str, then: &str) -> String {
    UNDER_LEASE.replace("{effect}", effect) + then
}

/// Behind UNDER_LEASE: says how it goes, and moves nothing.
const MARK: &str = "
    u AS (
        UPDATE finaz.streams AS s SET state = $6, reason = $7, report = $8 FROM v WHERE s.name = v.name
        RETURNING s.seq
    )
    SELECT EXISTS (SELECT FROM v), l.owner, l.fence, EXISTS (SELECT FROM u)
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = $1";

const COLUMNS: &str = "
    s.name, s.run_id, s.cluster, s.topic_id, s.topic, s.consumer_group, s.flow, s.flow_name, s.partitions,
    s.epoch, s.fence, s.seq, s.head, s.state, s.reason, s.report,
    to_char(s.committed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

/// A lease that a stream works under, as it was granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamLease {
    /// `stream/<run id>` or `stream/<run id>/<partition>`; the row's name as well.
    pub name: String,
    pub owner: Owner,
    pub epoch: i64,
    pub fence: i64,
}

/// How a stream goes, for people and monitors.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamStatus {
    /// `FLOWING`, `RECOVERY_BLOCKED` and others.
    pub state: String,
    pub reason: Option<String>,
    /// A JSON document.
    pub report: Option<String>,
}

/// A stream as its row has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamRow {
    pub name: String,
    pub identity: StreamIdentity,
    /// Of the owner that committed last; fence 0: nobody has.
    pub epoch: i64,
    pub fence: i64,
    /// Commits so far.
    pub seq: i64,
    /// The blob that the next one continues from; there is one after the first commit.
    pub head: Option<Hash>,
    pub status: StreamStatus,
    /// RFC 3339, UTC, by the database.
    pub committed_at: Option<String>,
}

/// A stream, and who has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamView {
    pub row: StreamRow,
    pub owner: Option<Owner>,
    /// The lease's, which is above the row's before the first commit of a new owner.
    pub lease_epoch: Option<i64>,
    pub lease_fence: Option<i64>,
    pub expires_at: Option<String>,
    pub live: bool,
    /// When this was read, by the database, in microseconds since 1970.
    pub read_at_us: i64,
}

/// A commit: where the pointer stands and where it shall stand.
#[derive(Clone, Debug)]
pub struct StreamMove {
    pub from_fence: i64,
    pub from_seq: i64,
    pub seq: i64,
    pub head: Hash,
    /// Everything that the head needs, itself included.
    pub blobs: Vec<Hash>,
    pub status: StreamStatus,
    /// It goes back to a checkpoint.
    pub restored: Option<Restored>,
}

/// Why a stream goes back, for the record.
#[derive(Clone, Debug)]
pub struct Restored {
    pub checkpoint: String,
    pub manifest_hash: Hash,
    pub who: String,
    pub reason: String,
}

/// Who has the lease instead; nobody, where there is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamRefusal {
    pub owner: Option<Owner>,
    pub fence: Option<i64>,
}

/// Why a stream cannot be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StreamBarred {
    /// The lease is another's, is gone, or its time is over. It is on record.
    Lease(StreamRefusal),
    /// Another stream is in the way: of the same run, or a live one that reads the same.
    By(Box<StreamView>),
}

/// What became of a commit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StreamVerdict {
    Committed,
    /// The lease is another's, is gone, or its time is over. It is on record.
    Refused(StreamRefusal),
    /// The lease is ours, the pointer is not where we left it; `None`: there is no row.
    Moved(Option<Box<StreamRow>>),
}

impl Store {
    /// The row of a stream under its lease, made where there is none; `state` is for a new one. Of two streams that
    /// read the same at once, one at most is let in: each is asked while it has its lease, one after the other.
    pub async fn open_stream(
        &self,
        lease: &StreamLease,
        identity: &StreamIdentity,
        state: &str,
    ) -> Result<Result<StreamView, StreamBarred>, Error> {
        let row = self.open_once(lease, identity, state).await?;
        if let Err(refusal) = judged(&row) {
            return Ok(Err(StreamBarred::Lease(refusal)));
        }
        let other: Option<&str> = row.get(3);
        if let Some(other) = other {
            let view = self.stream(other).await?.ok_or_else(|| gone(other))?;
            return Ok(Err(StreamBarred::By(Box::new(view))));
        }
        let view = self.stream(&lease.name).await?;
        Ok(Ok(view.ok_or_else(|| gone(&lease.name))?))
    }

    async fn open_once(
        &self,
        lease: &StreamLease,
        identity: &StreamIdentity,
        state: &str,
    ) -> Result<tokio_postgres::Row, Error> {
        let flow: &[u8] = identity.flow.as_bytes();
        let StreamIdentity { cluster, topic_id, group, .. } = identity;
        let source = [cluster, topic_id, &identity.flow.to_string(), group];
        let source = source.map(String::as_str).join("/");
        let owner = lease.owner.token();
        let statement = under_lease(JOURNAL, OPEN);
        self.on_row(&lease.name, async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let others: [&(dyn ToSql + Sync); 6] =
                [&lease.name, cluster, topic_id, group, &flow, &identity.run_id];
            for (lock, named) in [
                (LOCK_SOURCE, &[&identity.run_id as &(dyn ToSql + Sync)][..]),
                (LOCK_SOURCE, &[&source]),
                (LOCK_LEASE, &[&lease.name]),
                (LOCK_OTHERS, &others),
            ] {
                transaction.execute(lock, named).await.map_err(|error| self.error(&error))?;
            }
            let all: [&(dyn ToSql + Sync); 13] = [
                &lease.name,
                &owner,
                &lease.epoch,
                &lease.fence,
                &identity.run_id,
                cluster,
                topic_id,
                &identity.topic,
                group,
                &flow,
                &identity.flow_name,
                &identity.partitions,
                &state,
            ];
            let row = transaction.query_one(&statement, &all).await;
            let row = row.map_err(|error| self.error(&error))?;
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            Ok(row)
        })
        .await
    }

    /// Moves the pointer of a stream, under its lease, if it stands where the caller left it.
    ///
    /// A lost reply to COMMIT is settled by reading back: our head under our fence is success, the pointer where it was
    /// is tried again, anything else was somebody else.
    pub async fn commit_stream(
        &self,
        lease: &StreamLease,
        run_id: &str,
        next: &StreamMove,
    ) -> Result<StreamVerdict, Error> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let tried = self.move_once(lease, run_id, next).await;
            let told = match &tried {
                Ok(StreamVerdict::Moved(None)) => {
                    let row = self.stream(&lease.name).await?.map(|view| view.row);
                    return Ok(next.placed(lease, row));
                }
                Ok(_verdict) => Told::Answered,
                Err(error) if error.is_away() => Told::Unknown,
                Err(_) => Told::Impossible,
            };
            match settle::after(tries, told, began.elapsed() < TRY_TIME_MAX) {
                Next::Take | Next::Compare => return tried,
                Next::ReadBack => {}
            }
            tracing::warn!(tries, "a commit of the journal is settled by reading back");
            match self.stream(&lease.name).await {
                Ok(view) => {
                    if let Some(verdict) = next.read_back(lease, view.map(|view| view.row)) {
                        return Ok(verdict);
                    }
                }
                Err(_away) => tokio::time::sleep(super::backoff(tries)).await,
            }
        }
    }

    async fn move_once(
        &self,
        lease: &StreamLease,
        run_id: &str,
        next: &StreamMove,
    ) -> Result<StreamVerdict, Error> {
        let noted = if next.restored.is_some() { NOTE_RESTORE } else { "" };
        let statement = under_lease(JOURNAL, &MOVE.replace("{noted}", noted));
        let head: &[u8] = next.head.as_bytes();
        let blobs: Vec<&[u8]> = next.blobs.iter().map(|hash| &hash.as_bytes()[..]).collect();
        let mut more: Vec<&(dyn ToSql + Sync)> = vec![
            &run_id,
            &next.from_fence,
            &next.from_seq,
            &next.seq,
            &head,
            &blobs,
            &next.status.state,
            &next.status.reason,
            &next.status.report,
        ];
        let restored = next.restored.as_ref();
        let manifest_hash = restored.map(|restored| restored.manifest_hash.as_bytes().as_slice());
        if let Some(restored) = restored {
            more.extend::<[&(dyn ToSql + Sync); 4]>([
                &restored.checkpoint,
                &manifest_hash,
                &restored.who,
                &restored.reason,
            ]);
        }
        let row = self.under_lease_by(lease, &statement, &more, Some(&STEPS)).await?;
        Ok(match judged(&row) {
            Err(refusal) => StreamVerdict::Refused(refusal),
            Ok(()) if row.get(3) => StreamVerdict::Committed,
            Ok(()) => StreamVerdict::Moved(None),
        })
    }

    /// Says how a stream goes, under its lease, without moving its pointer. It stays said until the next commit.
    pub async fn mark_stream(
        &self,
        lease: &StreamLease,
        run_id: &str,
        status: &StreamStatus,
    ) -> Result<Result<(), StreamRefusal>, Error> {
        let statement = under_lease(JOURNAL, MARK);
        let row = self
            .under_lease(
                lease,
                &statement,
                &[&run_id, &status.state, &status.reason, &status.report],
            )
            .await?;
        Ok(judged(&row))
    }

    /// Whether a lease is still the asker's; that it is not is on record.
    pub async fn ask_stream(
        &self,
        lease: &StreamLease,
        run_id: &str,
    ) -> Result<Result<(), StreamRefusal>, Error> {
        let row = self.under_lease(lease, &under_lease(LEASE, ASK), &[&run_id]).await?;
        Ok(judged(&row))
    }

    /// Puts the values of a stream in their place, by `emit`, while the rows of all these leases are locked and the leases
    /// are the asker's: no successor begins meanwhile. A refusal names the lease; it is on record, and nothing was done.
    ///
    /// # Errors
    /// Also when the session was lost behind the effect: an owner that was stopped in the middle of it knows so.
    pub async fn emit_under<T>(
        &self,
        leases: &[StreamLease],
        run_id: &str,
        emit: impl FnOnce() -> T,
    ) -> Result<Result<T, (StreamLease, StreamRefusal)>, Error> {
        let statement = under_lease(EMIT, ASK);
        let name = leases.first().map_or("", |lease| lease.name.as_str());
        self.on_row(name, async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
            let mut refused = None;
            for lease in leases {
                let lock = transaction.execute(LOCK_LEASE, &[&lease.name]).await;
                lock.map_err(|error| self.error(&error))?;
                let owner = lease.owner.token();
                let all: [&(dyn ToSql + Sync); 5] =
                    [&lease.name, &owner, &lease.epoch, &lease.fence, &run_id];
                let row = transaction.query_one(&statement, &all).await;
                let row = row.map_err(|error| self.error(&error))?;
                if let Err(refusal) = judged(&row) {
                    refused = Some((lease.clone(), refusal));
                    break;
                }
            }
            let done = match refused {
                None => Ok(emit()),
                Some(refused) => Err(refused),
            };
            transaction.commit().await.map_err(|error| self.commit_error(&error))?;
            Ok(done)
        })
        .await
    }

    /// Locks the lease, runs the statement, commits: one round trip. `more` begins with the run id, `$5`.
    pub(super) async fn under_lease(
        &self,
        lease: &StreamLease,
        statement: &str,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<tokio_postgres::Row, Error> {
        self.under_lease_by(lease, statement, more, None).await
    }

    /// The same, with places at which a drill can hold the process.
    async fn under_lease_by(
        &self,
        lease: &StreamLease,
        statement: &str,
        more: &[&(dyn ToSql + Sync)],
        steps: Option<&Steps>,
    ) -> Result<tokio_postgres::Row, Error> {
        self.on_row(&lease.name, async {
            let client = self.client().await?;
            let statement =
                client.prepare_cached(statement).await.map_err(|error| self.error(&error))?;
            let lock =
                client.prepare_cached(LOCK_LEASE).await.map_err(|error| self.error(&error))?;
            let owner = lease.owner.token();
            let name: [&(dyn ToSql + Sync); 1] = [&lease.name];
            let mut all: Vec<&(dyn ToSql + Sync)> =
                vec![&lease.name, &owner, &lease.epoch, &lease.fence];
            all.extend(more);
            let (lock, asked) = ((&lock, &name[..]), (&statement, &all[..]));
            let mut rows = self.one_trip(&client, Some(lock), asked, steps).await?;
            Ok(rows.pop().expect("the statement gives one row"))
        })
        .await
    }

    /// The stream of this name, and who has it.
    pub async fn stream(&self, name: &str) -> Result<Option<StreamView>, Error> {
        Ok(self.streams_where("s.name = $1", name).await?.pop())
    }

    /// Removes those of these rows of which nothing was ever committed and that nobody owns.
    pub async fn forget_unused(&self, names: &[String]) -> Result<(), Error> {
        let client = self.client().await?;
        client
            .execute(
                "DELETE FROM finaz.streams AS s WHERE s.name = ANY ($1) AND s.seq = 0 AND NOT EXISTS (
                     SELECT FROM finaz.leases AS l
                     WHERE l.name = s.name AND NOT l.closed AND l.expires_at > clock_timestamp())",
                &[&names],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// Removes the row of a stream that nobody owns; its lease stays, so that fences go on rising.
    pub async fn forget_stream(&self, name: &str) -> Result<(), Error> {
        let client = self.client().await?;
        client
            .execute(
                "DELETE FROM finaz.streams AS s WHERE s.name = $1 AND NOT EXISTS (
                     SELECT FROM finaz.leases AS l
                     WHERE l.name = s.name AND NOT l.closed AND l.expires_at > clock_timestamp())",
                &[&name],
            )
            .await
            .map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// The streams of this run, of this group, or all; by name.
    pub async fn streams(
        &self,
        run_id: Option<&str>,
        group: Option<&str>,
    ) -> Result<Vec<StreamView>, Error> {
        match (run_id, group) {
            (Some(run_id), _) => self.streams_where("s.run_id = $1", run_id).await,
            (None, Some(group)) => self.streams_where("s.consumer_group = $1", group).await,
            (None, None) => self.streams_where("$1::text = ''", "").await,
        }
    }

    async fn streams_where(&self, which: &str, value: &str) -> Result<Vec<StreamView>, Error> {
        self.bounded(async {
            let client = self.client().await?;
            let rows = client
                .query(
                    &format!(
                        "SELECT {COLUMNS}, l.owner, l.epoch, l.fence,
                                to_char(l.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                                coalesce(NOT l.closed AND l.expires_at > clock_timestamp(), false),
                                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                         FROM finaz.streams AS s LEFT JOIN finaz.leases AS l USING (name)
                         WHERE {which} ORDER BY s.name"
                    ),
                    &[&value],
                )
                .await
                .map_err(|error| self.error(&error))?;
            Ok(rows.iter().map(stream_view).collect())
        })
        .await
    }
}

fn gone(name: &str) -> Error {
    Error::Statement { sqlstate: "02000".to_owned(), why: format!("the row of {name} is gone") }
}

/// Whether the lease was the asker's.
pub(super) fn judged(row: &tokio_postgres::Row) -> Result<(), StreamRefusal> {
    if row.get(0) {
        return Ok(());
    }
    let owner: Option<&str> = row.get(1);
    Err(StreamRefusal { owner: owner.map(Owner::from_token), fence: row.get(2) })
}

impl StreamMove {
    /// What a row says of this commit, which may have been made.
    #[must_use]
    pub fn placed(&self, lease: &StreamLease, row: Option<StreamRow>) -> StreamVerdict {
        let ours = row.as_ref().is_some_and(|row| {
            let seen = (row.epoch, row.fence, row.seq, row.head);
            seen == (lease.epoch, lease.fence, self.seq, Some(self.head))
        });
        if ours { StreamVerdict::Committed } else { StreamVerdict::Moved(row.map(Box::new)) }
    }

    /// The same when the answer to this commit was lost. `None`: it is tried again. The pointer is where it was; or somebody
    /// else has moved it, and by whom, and whether the lease is still ours, is asked under its lock and put on record.
    #[must_use]
    pub fn read_back(&self, lease: &StreamLease, row: Option<StreamRow>) -> Option<StreamVerdict> {
        match self.placed(lease, row) {
            StreamVerdict::Moved(_) => None,
            verdict @ (StreamVerdict::Committed | StreamVerdict::Refused(_)) => Some(verdict),
        }
    }
}

fn stream_row(row: &tokio_postgres::Row) -> StreamRow {
    let head: Option<&[u8]> = row.get(12);
    StreamRow {
        name: row.get(0),
        identity: StreamIdentity {
            run_id: row.get(1),
            cluster: row.get(2),
            topic_id: row.get(3),
            topic: row.get(4),
            group: row.get(5),
            flow: Hash::from_digest(row.get(6)).expect("the column is checked"),
            flow_name: row.get(7),
            partitions: row.get(8),
        },
        epoch: row.get(9),
        fence: row.get(10),
        seq: row.get(11),
        head: head.map(|head| Hash::from_digest(head).expect("the column is checked")),
        status: StreamStatus { state: row.get(13), reason: row.get(14), report: row.get(15) },
        committed_at: row.get(16),
    }
}

fn stream_view(row: &tokio_postgres::Row) -> StreamView {
    let owner: Option<&str> = row.get(17);
    StreamView {
        row: stream_row(row),
        owner: owner.map(Owner::from_token),
        lease_epoch: row.get(18),
        lease_fence: row.get(19),
        expires_at: row.get(20),
        live: row.get(21),
        read_at_us: row.get(22),
    }
}
