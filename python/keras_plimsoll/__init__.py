"""Keras 3 on Plimsoll."""
