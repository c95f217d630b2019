"""Bugs to plant, by what they are planted in. ``mutants`` lists them, and how each of them is found."""
