"""Damaged values for everything that reads a store's tables."""
