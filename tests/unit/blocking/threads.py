"""What runs beside a test."""

import threading


def background_threads() -> int:
    return sum(thread.name == "waltz" for thread in threading.enumerate())
