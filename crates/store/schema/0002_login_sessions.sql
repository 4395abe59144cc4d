-- Sessions of a gateway that logs people in, at whatever provider. Not those of the provider, which are in `sessions`.
CREATE TABLE login_sessions (
    id BLOB PRIMARY KEY,
    subject BLOB NOT NULL,
    sid BLOB,
    began BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    version BIGINT NOT NULL,
    claimed_until BIGINT,
    content BLOB NOT NULL
);
CREATE INDEX login_sessions_subject ON login_sessions (subject);
CREATE INDEX login_sessions_sid ON login_sessions (sid);
CREATE INDEX login_sessions_end ON login_sessions (ends);
