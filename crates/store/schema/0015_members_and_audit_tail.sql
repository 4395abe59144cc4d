-- The members of a group are walked through in the order of their ids, some at a time.
DROP INDEX group_members_group;
CREATE INDEX group_members_group ON group_members (group_id, user_id);
