"""The files of a storage node and what is in them; nothing here knows sockets, requests or sessions.

To be read in this order: ``files`` (the border to the operating system, and group sync); ``slot_file`` with
``control_file`` and ``fence``, and ``clean_stop``, for what is known of all partitions; ``segment_format``,
``segment``, ``segment_opening`` and ``segment_recovery`` with ``torn_write`` for one segment; ``log`` with
``group_encoder``, ``descriptors`` and ``log_opening`` for all segments of a partition; ``scan`` and ``damage``,
``salvage`` for what goes wrong; ``directory`` for everything together. ``inspection`` is for the tools that look at
files offline.
"""
