-- Mails with an account link that are not sent yet: at most one for each user, and one for each name that somebody typed.
CREATE TABLE mail_queue (
    id TEXT PRIMARY KEY,
    user_id TEXT UNIQUE REFERENCES users (id) ON DELETE CASCADE,
    sealed_login BLOB,
    origin TEXT NOT NULL,
    language TEXT NOT NULL,
    address TEXT,
    tries BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX mail_queue_due ON mail_queue (due_at);
CREATE INDEX mail_queue_expiry ON mail_queue (expires_at);
