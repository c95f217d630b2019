"""What travels between processes: frames, the hello, and one module per family of messages. No I/O."""
