"""The built-in fusion: a 3-D face mesh carries the source's skin and shape onto the target, on a CPU."""
