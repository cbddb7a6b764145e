"""The face memory: who is known, what is remembered of them, and for how long."""
