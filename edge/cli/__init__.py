"""The commands of ``lethe``.

A module here turns flags into values, calls the same functions the Python API offers, and prints. Heavy
imports happen inside of the commands, so that ``lethe --help`` is there at once.
"""
