"""Captions as words: tokens, vocabulary, initial word vectors."""
