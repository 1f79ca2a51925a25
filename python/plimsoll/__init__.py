"""Trains neural networks inside a memory limit that you set."""

from plimsoll import _engine as _engine
