"""A run on disk: its settings, its folder, its identity, its checkpoints."""
