"""What is read of a journal after a crash, or after its files were damaged."""
