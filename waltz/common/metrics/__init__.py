"""Metrics of every process.

1. ``registry``: counters, gauges, timers and histograms, and the original's JSON.
2. ``durations``: durations counted by size, for timers and histograms.
3. ``exposition``: the text format of Prometheus.
4. ``process_metrics``: memory, processor time and descriptors of the process.
"""
