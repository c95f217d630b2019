"""The bank: a small application that shows what the log is for, from submitted transfers to a Spark DataFrame."""
