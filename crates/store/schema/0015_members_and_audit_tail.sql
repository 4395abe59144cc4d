-- The members of a group are walked through in the order of their ids, some at a time.
DROP INDEX group_members_group;
CREATE INDEX group_members_group ON group_members (group_id, user_id);

-- Where the audit log begins: the last entry that has expired, and since when. One row; without a digest nothing has expired.
CREATE TABLE audit_tail (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    digest BLOB,
    at BIGINT NOT NULL
);
INSERT INTO audit_tail (id, seq, at) VALUES (1, 0, 0);
