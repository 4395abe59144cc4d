-- The time of the log: what "everything so far" ends at. It grows with each event, whatever the clocks of the nodes say, and whoever reads
-- something reads it along: so what was read before an event is told from what was read after it.
ALTER TABLE invalidation_head ADD COLUMN at BIGINT NOT NULL DEFAULT 0;

-- When what they rest on was read, in that time.
ALTER TABLE families ADD COLUMN read_at BIGINT;
ALTER TABLE access_tokens ADD COLUMN read_at BIGINT;

-- What ends them besides: the tags of their client, and of what their user allowed it.
ALTER TABLE access_tokens ADD COLUMN client_tag BLOB;
ALTER TABLE access_tokens ADD COLUMN consent_tag BLOB;
