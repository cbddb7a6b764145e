"""What both machines agree on: values, geometry, engines, models, settings and errors."""

__version__ = "0.1.0"
