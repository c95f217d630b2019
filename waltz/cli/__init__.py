"""The command line: ``waltz NOUN VERB``, one module for each noun."""
