-- Handoffs: who gave a stream away, who took it, and what both had before them. Each part was written under the fence of
-- its owner; what it says is a blob of the artifact store, named here.

CREATE TABLE finaz.handoffs (
    handoff_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL REFERENCES finaz.streams ON DELETE CASCADE,
    part       text NOT NULL CHECK (part IN ('CAPTURED', 'GIVEN', 'TAKEN')),
    owner      text NOT NULL,
    epoch      bigint NOT NULL,
    fence      bigint NOT NULL,
    seq        bigint NOT NULL,          -- the commit that was handed over; 0: none yet
    manifest   bytea NOT NULL CHECK (octet_length(manifest) = 32),
    snapshot   bytea CHECK (octet_length(snapshot) = 32),  -- of a handoff from history
    signed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (name, epoch, fence, part)
);
-- The high-waters of a history are captured once.
CREATE UNIQUE INDEX handoffs_captured ON finaz.handoffs (name) WHERE part = 'CAPTURED';
