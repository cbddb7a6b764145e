"""Measurements of the whole path, on real pictures; see README.md beside this file."""
