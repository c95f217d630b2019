"""Configuration of every process.

1. ``schemas``: the keys, their types, defaults and checks; ``reader``: the machine that applies a schema.
2. ``yaml_file``: files; ``sources``: files, environment and overrides together.
3. ``command``: the options ``--check`` and ``--print`` of every process.
"""
