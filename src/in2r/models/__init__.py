"""Backbones: encoders, similarity in blocks, the model folder and what loads it."""
