"""Figures, made from saved records alone; `in2r plot` draws them."""
