"""The encrypted store of the face memory."""
