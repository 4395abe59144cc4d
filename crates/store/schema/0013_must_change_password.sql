-- Since when a user must choose a new password before the next session or token; absent: the password is theirs to keep.
ALTER TABLE users ADD COLUMN must_change_password_at BIGINT;
