"""Where views keep their rows. A store knows bytes and their order, and nothing of clients."""
