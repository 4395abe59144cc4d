-- Names and addresses as they are compared (RFC 8265). Absent in a row of before, where it is what `name_key` or `email_key` says unless
-- whoever opens the database finds otherwise. Two rows of before may be one name by it: nothing is changed of them.
ALTER TABLE users ADD COLUMN name_fold TEXT;
ALTER TABLE users ADD COLUMN email_fold TEXT;
CREATE INDEX users_name_fold ON users (name_fold) WHERE name_fold IS NOT NULL;
CREATE INDEX users_email_fold ON users (email_fold) WHERE email_fold IS NOT NULL;
-- Rows that have to be filled in, so that nobody looks for them among all.
CREATE INDEX users_unfolded ON users (id) WHERE name_fold IS NULL AND (octet_length(name_key) <> length(name_key) OR name_key LIKE '%  %' OR octet_length(email_key) <> length(email_key));

-- One row: its lock lets one name or address at a time be given, so that no two nodes give the same one.
CREATE TABLE names_given (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    times BIGINT NOT NULL
);
INSERT INTO names_given (id, times) VALUES (1, 0);
