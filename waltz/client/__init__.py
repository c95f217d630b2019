"""The client library: append transactions, receive every committed transaction in order, read their data."""
