"""Readers of public data sets: each lists its pictures with what it knows of them."""
