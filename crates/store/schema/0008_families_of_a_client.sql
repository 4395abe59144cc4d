-- All families of a client are walked through in the order of their ids, some at a time.
DROP INDEX families_client;
CREATE INDEX families_client ON families (client_id, id);
