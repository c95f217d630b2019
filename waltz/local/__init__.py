"""A whole cluster on this machine, for development, tests and the demo.

``cluster`` starts and stops it, as ``layout`` describes it; ``zookeeper`` is a real one. ``processes`` (with
``reaper``) sees that nothing outlives its owner, ``keeper`` keeps a cluster in the background for the command line.
"""
