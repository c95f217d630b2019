"""Metrics of every process.

1. ``registry``: counters, gauges, timers and histograms, and the original's JSON.
2. ``exposition``: the text format of Prometheus.
3. ``process_metrics``: memory, processor time and descriptors of the process.
"""
