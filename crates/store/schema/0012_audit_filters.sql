-- Whom and which client an entry of the audit log concerns: what the log is searched by.
ALTER TABLE audit_log ADD COLUMN user_id TEXT;
ALTER TABLE audit_log ADD COLUMN client_id TEXT;
CREATE INDEX audit_log_user ON audit_log (user_id, seq) WHERE user_id IS NOT NULL;
CREATE INDEX audit_log_client ON audit_log (client_id, seq) WHERE client_id IS NOT NULL;
CREATE INDEX audit_log_actor ON audit_log (actor, seq);
CREATE INDEX audit_log_action ON audit_log (action, seq);
CREATE INDEX audit_log_at ON audit_log (at, seq);

-- Receivers of the audit log, and the last entry that each has.
CREATE TABLE audit_receivers (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    due_at BIGINT NOT NULL
);
