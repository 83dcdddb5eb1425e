"""What encoders and refiners are built of; CPU replacements of PyTorch's layers stand in recurrence and dropout."""
