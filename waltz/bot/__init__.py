"""The bots that prove tables and sessions beside production, in a partition of their own, and what checks them."""
