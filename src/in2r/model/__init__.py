"""The model folder, and retrieval with what is in it."""

from in2r.model.folder import load, restore_encoders, save_model
from in2r.model.retrieval import RetrievalModel

__all__ = ["RetrievalModel", "load", "restore_encoders", "save_model"]
