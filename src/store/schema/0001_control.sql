-- Admission, runs, leases, outbox, publications: what the batch path needs.
-- Three rules keep the hot path cheap and are worth more than they look:
--   1. no index and no predicate names a column that a claim or a completion changes, outbox.claimed excepted,
--      so every update of api_runs, and the delivery of an outbox row, stays on its page (HOT);
--   2. a third of a page is filled at first: the versions that a claim and a completion leave fit beside the first one,
--      also while a snapshot held open somewhere keeps the page from being cleaned;
--   3. columns that never change come first, so that the log of an update holds only its tail.

-- A run's number: the internal key, in order of admission. Its name is the hash in run_id.
CREATE SEQUENCE finaz.run_no;
CREATE SEQUENCE finaz.event_id;
CREATE SEQUENCE finaz.lease_no;

-- Claim or reject by idempotency key: scope is the SHA-256 of principal \0 operation \0 key.
CREATE TABLE finaz.admission (
    scope       bytea PRIMARY KEY CHECK (octet_length(scope) = 32),
    run_no      bigint NOT NULL,
    request     uuid NOT NULL,           -- whose insert it was: settles a lost reply to COMMIT
    body_hash   bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    principal   text NOT NULL,
    operation   text NOT NULL,
    key         text NOT NULL,
    admitted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE finaz.api_runs (
    run_no      bigint PRIMARY KEY,
    event_id    bigint NOT NULL,         -- its run.requested in the outbox
    admitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    flow        bytea NOT NULL CHECK (octet_length(flow) = 32),
    snapshot    bytea NOT NULL CHECK (octet_length(snapshot) = 32),
    run_id      text NOT NULL UNIQUE,
    fence        bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    lease_no     bigint NOT NULL DEFAULT 0,  -- the lease it runs or ran under; 0: none yet
    run_revision bigint NOT NULL DEFAULT 0,
    attempts     integer NOT NULL DEFAULT 0, -- owners that died with it
    state        text NOT NULL DEFAULT 'QUEUED'
                 CHECK (state IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    cancel_requested_at timestamptz,
    finished_at  timestamptz,
    error        text
) WITH (fillfactor = 33);

-- The queue. An event is claimed by state, never by `id > last`: ids do not commit in order.
CREATE TABLE finaz.outbox (
    id          bigint PRIMARY KEY,
    run_no      bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    type        text NOT NULL,
    run_id      text NOT NULL,
    suspect     integer NOT NULL DEFAULT 0,  -- api_runs.attempts: such a run is claimed alone
    claimed     boolean NOT NULL DEFAULT false,
    lease_no    bigint NOT NULL DEFAULT 0,
    delivered_at timestamptz
) WITH (fillfactor = 33);
CREATE INDEX outbox_pending ON finaz.outbox (id) WHERE NOT claimed AND suspect = 0;
CREATE INDEX outbox_suspect ON finaz.outbox (suspect, id) WHERE NOT claimed AND suspect > 0;

-- One row a lease. A batch lease covers the runs it was made for (run_nos); a stream's covers itself.
CREATE TABLE finaz.leases (
    lease_no    bigint PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_nos     bigint[] NOT NULL DEFAULT '{}',
    owner       text NOT NULL,
    epoch       bigint NOT NULL DEFAULT 1 CHECK (epoch > 0),
    fence       bigint NOT NULL CHECK (fence > 0),
    expires_at  timestamptz NOT NULL CHECK (isfinite(expires_at)),
    staged_at   timestamptz,             -- results durable in the artifact store and the warehouse
    closed      boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE INDEX leases_open ON finaz.leases (lease_no) WHERE NOT closed;

-- The gate of visibility: what is not here does not exist for a reader. One row a run, never changed.
CREATE TABLE finaz.publications (
    run_no      bigint PRIMARY KEY,
    epoch       bigint NOT NULL,
    fence       bigint NOT NULL,
    rows        bigint NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ref         bytea NOT NULL CHECK (octet_length(ref) = 32),         -- the FeatureBatch in the artifact store
    values_hash bytea NOT NULL CHECK (octet_length(values_hash) = 32),
    run_id      text NOT NULL
);

-- Effects that a fence refused: who, with which fence, against which.
CREATE TABLE finaz.refused_effects (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    effect      text NOT NULL,
    run_id      text,
    lease       text NOT NULL,
    owner       text NOT NULL,
    fence       bigint NOT NULL,
    current_owner text,
    current_fence bigint
);
CREATE INDEX refused_effects_run ON finaz.refused_effects (run_id);

-- What happened to a run beside the straight way, which its own row, lease and publication already tell.
CREATE TABLE finaz.run_history (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_no  bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    what    text NOT NULL,
    fence   bigint NOT NULL,
    owner   text
);
CREATE INDEX run_history_run ON finaz.run_history (run_no);

-- Epochs begun by an operator after a restored backup, with the reason.
CREATE TABLE finaz.epochs (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease   text NOT NULL,               -- '' for all batch and run leases
    epoch   bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    who     text NOT NULL,
    reason  text NOT NULL
);
CREATE INDEX epochs_lease ON finaz.epochs (lease, epoch);

ALTER TABLE finaz.api_runs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 1000);
ALTER TABLE finaz.outbox SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 1000);
