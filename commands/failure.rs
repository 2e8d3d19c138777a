//! Errors become words, codes and exit codes here and nowhere else.

use std::fmt::Display;

use finaz::config::scrub;
use finaz::control::{
    ArtifactsError, BrokerError, Error, JournalError, StoreError, WarehouseError,
};
use finaz::invalid::Invalid;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use crate::interrupt::Cut;

/// A failed command, ready to be said.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// What the code promises besides: both hashes, both fences.
    pub(crate) more: Map<String, Value>,
}

/// `{"error":{"code","message","hint",...}}`
impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut error = self.more.clone();
        error.insert("code".to_owned(), self.code.into());
        error.insert("message".to_owned(), scrub(&self.message).into());
        error.insert("hint".to_owned(), scrub(&self.hint).into());
        let mut document = serializer.serialize_map(Some(1))?;
        document.serialize_entry("error", &error)?;
        document.end()
    }
}

impl Failure {
    pub(crate) fn new(
        exit: u8,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { exit, code, message: message.into(), hint: hint.into(), more: Map::new() }
    }

    /// The command line does not make sense.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(2, "USAGE", message, hint)
    }

    /// Adds what the code promises besides, an object.
    fn with(mut self, more: Value) -> Self {
        if let Value::Object(more) = more {
            self.more.extend(more);
        }
        self
    }

    /// A signal ended the command.
    pub(crate) fn cut(cut: Cut) -> Self {
        let (exit, name) = match cut {
            Cut::Interrupt => (130, "SIGINT"),
            Cut::Terminate => (143, "SIGTERM"),
        };
        Self::new(exit, "INTERRUPTED", format!("cut short by {name}"), "")
    }

    /// Not the operator's doing and not a service's.
    pub(crate) fn internal(error: &dyn Display) -> Self {
        Self::new(1, "INTERNAL", error.to_string(), "this is a defect of finaz")
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let message = invalid.to_string();
        Self::new(2, invalid.code, message, invalid.hint).with(json!({"place": invalid.place}))
    }
}

impl From<Error> for Failure {
    #[expect(clippy::too_many_lines, reason = "a table: an error, its code and its words")]
    fn from(error: Error) -> Self {
        let said = error.to_string();
        let is_away = error.is_away();
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::Unset { code, hint, .. } => Self::new(2, code, said, hint),
            Error::Store(error) => error.into(),
            Error::Artifacts(error) => error.into(),
            Error::Warehouse(error) => error.into(),
            Error::Io { place, .. } => {
                let hint = "name a readable file";
                Self::new(2, "FILE_UNREADABLE", said, hint).with(json!({"place": place}))
            }
            Error::NotWritten { place, .. } => {
                let (exit, code, hint) = if is_away {
                    (75, "DISK_FULL", "free space, or name a file on another disk; then repeat it")
                } else {
                    (2, "FILE_UNWRITABLE", "name a file in a folder that is there and yours")
                };
                Self::new(exit, code, said, hint).with(json!({"place": place}))
            }
            Error::Broker(error) => error.into(),
            Error::ReplayRunning { topic, pid, age } => {
                let hint = "wait for it, or end that process";
                let more = json!({"topic": topic, "pid": pid, "age_seconds": age.as_secs_f64()});
                Self::new(1, "REPLAY_RUNNING", said, hint).with(more)
            }
            Error::ReadBackDiffers { topic, log_hash, .. } => {
                let hint = "run it again: the whole log is published anew";
                let more = json!({"topic": topic, "log_hash": log_hash});
                Self::new(1, "REPLAY_READ_BACK", said, hint).with(more)
            }
            Error::LaneEnded => Self::internal(&said),
            Error::Panicked { .. } => Self::internal(&said),
            Error::IdempotencyConflict { key, body_hash, other_hash } => {
                let hint = "use another key for another request, or repeat the first one";
                Self::new(1, "IDEMPOTENCY_CONFLICT", said, hint).with(json!({
                    "status": 409, "key": key, "body_hash": body_hash, "other_hash": other_hash
                }))
            }
            Error::LeaseHeld { name, owner, fence, expires_at } => {
                let hint = "wait until it expires or is released";
                Self::new(1, "LEASE_HELD", said, hint).with(json!({
                    "name": name, "owner": owner, "fence": fence, "expires_at": expires_at
                }))
            }
            Error::StaleFence { name, owner, fence, yours } => {
                let hint = "another owner took over: stop, nothing of yours is accepted any more";
                Self::new(1, "STALE_FENCE", said, hint).with(json!({
                    "name": name, "owner": yours, "current_owner": owner, "current_fence": fence
                }))
            }
            Error::LeaseExpired { name, expires_at } => {
                let hint = "acquire it anew; a live lease is renewed before it expires";
                let more = json!({"name": name, "expires_at": expires_at});
                Self::new(1, "LEASE_EXPIRED", said, hint).with(more)
            }
            Error::LeaseMissing { name } => {
                let hint = "see `finaz lease list`";
                Self::new(1, "LEASE_UNKNOWN", said, hint).with(json!({"name": name}))
            }
            Error::FenceRegression { name, epoch, fence, known_epoch, known_fence } => {
                let hint = "the database is older than what was handed out; if a backup was \
                            restored on purpose, run `finaz lease new-epoch NAME --reason TEXT`";
                Self::new(1, "FENCE_REGRESSION", said, hint).with(json!({
                    "name": name, "epoch": epoch, "fence": fence,
                    "known_epoch": known_epoch, "known_fence": known_fence
                }))
            }
            Error::FenceExhausted { name } => {
                let hint = "begin a new epoch: `finaz lease new-epoch NAME --reason TEXT`";
                Self::new(1, "FENCE_EXHAUSTED", said, hint).with(json!({"name": name}))
            }
            Error::StreamHeld { name, owner, fence, expires_at } => {
                let hint = "wait until it expires or is released; one stream has one owner";
                Self::new(1, "STREAM_LEASE_OCUPADO", said, hint).with(json!({
                    "name": name, "owner": owner, "fence": fence, "expires_at": expires_at
                }))
            }
            Error::StreamOverlap { name, other, owner, expires_at } => {
                let hint = "one flow has one owner a partition in a group: stop the other, or use \
                            another --group";
                Self::new(1, "STREAM_OVERLAP", said, hint).with(json!({
                    "name": name, "other": other, "owner": owner, "expires_at": expires_at
                }))
            }
            Error::StreamMixed { run_id, split } => {
                let hint = if split {
                    "go on with --partitions or --auto, or begin another run (--run-id)"
                } else {
                    "go on without --partitions and --auto, or begin another run (--run-id)"
                };
                let more = json!({"run_id": run_id, "split": split});
                Self::new(1, "STREAM_MIXED", said, hint).with(more)
            }
            Error::StreamFenced { name, yours, fence, owner, current_fence } => {
                let hint = "nothing of this process is accepted any more: start it anew, and it \
                            waits for the lease";
                Self::new(1, "STREAM_FENCE_OBSOLETO", said, hint).with(json!({
                    "name": name, "owner": yours, "fence": fence,
                    "current_owner": owner, "current_fence": current_fence
                }))
            }
            Error::JournalForeign { name, field, held, offered } => {
                let hint = "use another run id for another source or flow; a journal keeps to the \
                            one it began with";
                Self::new(1, "JOURNAL_FOREIGN", said, hint).with(json!({
                    "name": name, "field": field, "held": held, "offered": offered
                }))
            }
            Error::CheckpointConflict { id, held, offered } => {
                let hint = "its stream was begun anew under the same name; drop the old one to make a new one";
                Self::new(1, "CHECKPOINT_CONFLICT", said, hint).with(json!({
                    "checkpoint": id, "held": held, "offered": offered
                }))
            }
            Error::CheckpointIncompatible { id, field, held, offered } => {
                let hint = if field == "epoch" {
                    format!(
                        "look at it, then say --epoch {held} to restore it all the same; nothing was changed"
                    )
                } else {
                    "restore one that this finaz and this stream or run made; nothing was changed"
                        .to_owned()
                };
                Self::new(1, "CHECKPOINT_INCOMPATIBLE", said, hint).with(json!({
                    "checkpoint": id, "field": field, "held": held, "offered": offered
                }))
            }
            Error::SnapshotApart { id, held, offered, event } => {
                let hint =
                    "give one that has all its events and more behind them; nothing was changed";
                Self::new(1, "CHECKPOINT_INCOMPATIBLE", said, hint).with(json!({
                    "checkpoint": id, "field": "snapshot", "held": held, "offered": offered, "event": event
                }))
            }
            Error::CheckpointDamaged { id, blob, what } => {
                let hint = "nothing was changed; see `finaz checkpoint list` for another, and bring the blob back";
                Self::new(1, "CHECKPOINT_DAMAGED", said, hint)
                    .with(json!({"checkpoint": id, "blob": blob, "what": what}))
            }
            Error::JournalMoved { name, fence, found } => {
                let hint = "start the stream anew: it goes on from what the journal holds";
                let (current_fence, seq) = found.unzip();
                Self::new(1, "JOURNAL_MOVED", said, hint).with(json!({
                    "name": name, "fence": fence, "current_fence": current_fence, "seq": seq
                }))
            }
            Error::Journal(error) => error.into(),
            // Bad input, where it was given by hand.
            Error::JournalFile(error) => {
                let mut failure = Self::from(error);
                failure.exit = 2;
                failure
            }
            Error::RecoveryBlocked { partition, needed, earliest } => {
                let hint =
                    "nothing is jumped over: begin a new run (--run-id), or restore the records";
                Self::new(1, "RECOVERY_BLOCKED", said, hint).with(json!({
                    "partition": partition, "needed": needed, "earliest": earliest
                }))
            }
            Error::OffsetAhead { partition, needed, end } => {
                let hint = "the log lost records or is another one; begin a new run (--run-id)";
                Self::new(1, "OFFSET_AHEAD", said, hint).with(json!({
                    "partition": partition, "needed": needed, "end": end
                }))
            }
            Error::SourcePaused { .. } => {
                let hint =
                    "make space, or lower --pause-free-disk; it goes on from its last commit";
                Self::new(75, "SOURCE_PAUSED", said, hint)
            }
            Error::HandoffConflict { name, held, offered } => {
                let hint = "a run keeps to what it began with: use another --run-id";
                Self::new(1, "HANDOFF_CONFLICT", said, hint).with(json!({
                    "name": name, "held": held, "offered": offered
                }))
            }
            Error::StoreOfAnother { place, asked, other } => {
                let hint = "ask that one, and give each database a folder of its own by FINAZ_ARTIFACTS; nothing was \
                            removed";
                let more = json!({"place": place, "asked": asked, "other": other});
                Self::new(2, "CAS_STORE_OF_ANOTHER", said, hint).with(more)
            }
            Error::HandoffIncomplete { name, snapshot } => {
                let hint = "run `finaz stream handoff` again with the same words: it goes on \
                            where it was";
                let more = json!({"name": name, "snapshot": snapshot});
                Self::new(1, "HANDOFF_INCOMPLETE", said, hint).with(more)
            }
            Error::HandoffGap { name, late, first, apart } => {
                let hint = "hand over a snapshot that has these records, or take them as they \
                            are, late or gone, with --accept-gap";
                let first = first.map(|(partition, offset)| format!("{partition}:{offset}"));
                Self::new(1, "HANDOFF_GAP", said, hint).with(json!({
                    "name": name, "late": late, "first_missing": first, "apart": apart
                }))
            }
            Error::LedgerBroken { run_id } => {
                let hint = "this is a defect: keep the topic and the journal, and report it";
                Self::new(1, "LEDGER_BROKEN", said, hint).with(json!({"run_id": run_id}))
            }
            Error::RunUnknown { run_id } => {
                let hint = "see `finaz runs list`";
                Self::new(2, "RUN_UNKNOWN", said, hint).with(json!({"run_id": run_id}))
            }
            Error::RunFailed { run_id, error } => {
                let hint = "see `finaz runs trace`";
                let more = json!({"run_id": run_id, "error": error});
                Self::new(1, "RUN_FAILED", said, hint).with(more)
            }
            Error::RunCancelled { run_id } => {
                let hint = "a run that is over keeps its end: give another --key";
                Self::new(1, "RUN_CANCELLED", said, hint).with(json!({"run_id": run_id}))
            }
            Error::TooLate { run_id, state } => {
                let hint = "a run that is over keeps its end";
                let more = json!({"run_id": run_id, "state": state});
                Self::new(1, "CANCEL_TOO_LATE", said, hint).with(more)
            }
            Error::NotPublished { run_id, state } => {
                let hint = match state.as_str() {
                    "CANCELLED" | "FAILED" => "it never will be: admit it again under another key",
                    _ => "wait for it: `finaz runs wait RUN`",
                };
                let more = json!({"run_id": run_id, "state": state});
                Self::new(1, "NOT_PUBLISHED", said, hint).with(more)
            }
            Error::StillRunning { run_id, state } => {
                let hint = "wait longer, and see that a worker runs";
                let more = json!({"run_id": run_id, "state": state});
                Self::new(1, "RUN_NOT_OVER", said, hint).with(more)
            }
            Error::Interrupted { signal: 2 } => Self::cut(Cut::Interrupt),
            Error::Interrupted { .. } => Self::cut(Cut::Terminate),
        }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let said = error.to_string();
        match error {
            JournalError::Damaged { place, .. } => {
                let hint = "restore it from a backup or from `finaz stream export`; see \
                            `finaz cas verify`";
                Self::new(1, "JOURNAL_DAMAGED", said, hint).with(json!({"place": place}))
            }
            JournalError::Version { place, found, known } => {
                let hint = "use the finaz that wrote it, or a newer one";
                Self::new(1, "JOURNAL_VERSION", said, hint).with(json!({
                    "place": place, "found": found, "known": known
                }))
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let said = error.to_string();
        match error {
            StoreError::Away { .. } => {
                Self::new(75, "PG_AWAY", said, "start the server, or correct FINAZ_PG_URL")
            }
            StoreError::Denied { .. } => {
                Self::new(2, "PG_DENIED", said, "correct the user, password or database")
            }
            StoreError::Forbidden { .. } => {
                Self::new(1, "PG_FORBIDDEN", said, "let the database's administrator grant it")
            }
            StoreError::Busy => {
                Self::new(75, "PG_BUSY", said, "try again; end the other session if it hangs")
            }
            StoreError::LeaseBusy { name, blockers } => {
                let hint =
                    "try again; end the other session if it hangs: pg_terminate_backend(pid)";
                let more = json!({"name": name, "blockers": blockers});
                Self::new(75, "LEASE_BUSY", said, hint).with(more)
            }
            StoreError::CommitUnknown { .. } => {
                Self::new(75, "COMMIT_UNKNOWN", said, "repeat the command: it is idempotent")
            }
            StoreError::Schema { found, needed } => {
                let hint = if found < needed {
                    "run `finaz db migrate`"
                } else {
                    "the schema is newer than this binary: install the newer finaz"
                };
                let more = json!({"schema": found, "binary": needed});
                Self::new(1, "SCHEMA_MISMATCH", said, hint).with(more)
            }
            StoreError::Unsafe { check, .. } => {
                Self::new(1, "PG_UNSAFE", said, "see `finaz doctor`").with(json!({"check": check}))
            }
            StoreError::PublicationConflict { run_id, held, offered } => {
                let hint = "two computations of one run differ: find out why before anything else";
                Self::new(1, "PUBLICATION_CONFLICT", said, hint).with(json!({
                    "run_id": run_id, "held": held, "offered": offered
                }))
            }
            StoreError::Statement { sqlstate, .. } => {
                let hint =
                    "see `finaz db status`; if the schema is right, this is a defect of finaz";
                Self::new(1, "PG_STATEMENT", said, hint).with(json!({"sqlstate": sqlstate}))
            }
        }
    }
}

impl From<clap::Error> for Failure {
    /// clap's text, taken apart: `error: what`, `tip: hint`, usage.
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n");
        let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ").trim();
        let tips: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("tip: "))
            .chain(text.lines().filter(|line| line.starts_with("For more information")))
            .map(str::trim)
            .collect();
        Self::usage(message, tips.join("; ").replace("For more information, try", "try"))
    }
}

impl From<ArtifactsError> for Failure {
    fn from(error: ArtifactsError) -> Self {
        let said = error.to_string();
        let damaged = "restore it from a backup, or compute it anew; see `finaz cas verify`";
        match error {
            ArtifactsError::Name(invalid) => invalid.into(),
            ArtifactsError::Missing { hash, .. } => {
                let hint = "is FINAZ_ARTIFACTS the store that it was written to?";
                Self::new(1, "ARTIFACT_MISSING", said, hint).with(json!({"hash": hash}))
            }
            ArtifactsError::Corrupt { hash, place, .. } => {
                let more = json!({"hash": hash, "place": place});
                Self::new(1, "ARTIFACT_CORRUPT", said, damaged).with(more)
            }
            ArtifactsError::PackCorrupt { place, .. }
            | ArtifactsError::RecordCorrupt { place, .. } => {
                Self::new(1, "ARTIFACT_CORRUPT", said, damaged).with(json!({"place": place}))
            }
            ArtifactsError::DiskFull { place, .. } => {
                let hint = "free space, or name another folder by FINAZ_ARTIFACTS; then repeat it";
                Self::new(75, "DISK_FULL", said, hint).with(json!({"place": place}))
            }
            ArtifactsError::FsyncFailed { place, .. } => {
                let hint = "check the disk; what was acknowledged before is safe";
                Self::new(1, "FSYNC_FAILED", said, hint).with(json!({"place": place}))
            }
            ArtifactsError::LabelTaken { name, held, offered } => {
                let hint = "use another name, or --replace";
                Self::new(1, "NAME_TAKEN", said, hint).with(json!({
                    "name": name, "held": held.hash, "offered": offered.hash
                }))
            }
            ArtifactsError::FenceRegression { lease, held, offered } => {
                let hint = "if a backup was restored on purpose, run \
                            `finaz lease new-epoch NAME --reason TEXT`";
                Self::new(1, "FENCE_REGRESSION", said, hint).with(json!({
                    "name": lease, "epoch": offered.0, "fence": offered.1,
                    "known_epoch": held.0, "known_fence": held.1
                }))
            }
            ArtifactsError::Layout { place, .. } => {
                let hint = "name the folder of an artifact store by FINAZ_ARTIFACTS";
                Self::new(2, "ARTIFACTS_LAYOUT", said, hint).with(json!({"place": place}))
            }
            ArtifactsError::Io { place, .. } => {
                let hint = "check that the folder is there and yours";
                Self::new(1, "ARTIFACTS_IO", said, hint).with(json!({"place": place}))
            }
        }
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        let (exit, hint) = match &error {
            BrokerError::Invalid(invalid) => return invalid.clone().into(),
            BrokerError::Away { .. } => (75, "start the broker, or correct FINAZ_BROKERS"),
            BrokerError::Login { .. } => {
                (2, "correct --broker-user, the password file or --broker-sasl")
            }
            BrokerError::Untrusted { .. } => (2, "give its authority by --tls-ca FILE"),
            BrokerError::SpeaksTls { .. } => (2, "set --broker-tls on"),
            BrokerError::SpeaksPlaintext { .. } => {
                (2, "name its TLS port, or set --broker-tls off")
            }
            BrokerError::WantsLogin { .. } => (2, "give --broker-user and --broker-password-file"),
            BrokerError::Denied { .. } => (1, "let the broker's administrator grant it"),
            BrokerError::TooLarge { .. } => (1, "raise max.message.bytes of the topic"),
            BrokerError::Refused { .. } => (1, "see the broker's log"),
        };
        Self::new(exit, error.code(), error.to_string(), hint)
    }
}

impl From<WarehouseError> for Failure {
    fn from(error: WarehouseError) -> Self {
        let (exit, hint) = match &error {
            WarehouseError::Away { .. } => {
                (75, "start the server, or correct FINAZ_CLICKHOUSE_URL")
            }
            WarehouseError::Refused { .. } => (2, "correct the user or the password"),
            WarehouseError::Forbidden { .. } => (1, "let the database's administrator grant it"),
            WarehouseError::Untrusted { .. } => (2, "give its authority by --tls-ca FILE"),
            WarehouseError::TooOld { .. } => (1, "use a newer ClickHouse"),
            WarehouseError::Schema { found, expected, .. } if found < expected => {
                (1, "run `finaz db migrate`")
            }
            WarehouseError::Schema { .. } => {
                (1, "the schema is newer than this binary: install the newer finaz")
            }
            WarehouseError::Query { .. } | WarehouseError::Answer { .. } => {
                (1, "see `finaz doctor`; if all is well there, this is a defect of finaz")
            }
            WarehouseError::Gap { .. } => (1, "stage it again: `finaz reconcile`"),
        };
        Self::new(exit, error.code(), error.to_string(), hint)
    }
}
