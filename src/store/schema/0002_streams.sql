-- Streams: how far each has come. What it knows lies in the artifact store, in files that are never overwritten; this
-- row names the newest head among them, and moves under the lease of the same name only.

CREATE TABLE finaz.streams (
    name        text PRIMARY KEY,        -- the lease's
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What it belongs to; never changed.
    run_id      text NOT NULL,
    cluster     text NOT NULL,
    topic_id    text NOT NULL,
    topic       text NOT NULL,
    consumer_group text NOT NULL,
    flow        bytea NOT NULL CHECK (octet_length(flow) = 32),
    flow_name   text NOT NULL,
    partitions  integer[],               -- NULL: all
    -- The pointer: moved by compare-and-set on (fence, seq).
    epoch       bigint NOT NULL DEFAULT 1 CHECK (epoch > 0),
    fence       bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    seq         bigint NOT NULL DEFAULT 0 CHECK (seq >= 0),
    committed_at timestamptz,
    head        bytea CHECK (octet_length(head) = 32),
    blobs       bytea[] NOT NULL DEFAULT '{}',   -- all that the head needs, itself included: `cas gc` keeps them
    -- For people: how it goes.
    state       text NOT NULL,
    reason      text,
    report      text,                    -- a JSON document, as it was written
    CHECK ((head IS NULL) = (seq = 0))
) WITH (fillfactor = 50);
