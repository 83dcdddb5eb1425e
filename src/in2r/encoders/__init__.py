"""Encoders of others, one file per library: RGB images and texts → vectors, with a record of what made them."""
