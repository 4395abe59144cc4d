-- Which of the lives of a database it was that last wrote the log: another one may have lost something.
ALTER TABLE invalidation_head ADD COLUMN incarnation TEXT;
