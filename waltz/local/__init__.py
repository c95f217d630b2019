"""A whole cluster on this machine, for development, tests and the demo."""
