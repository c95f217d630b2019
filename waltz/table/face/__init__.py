"""What applications use of tables: over a client of the log, with a view beside the process."""
