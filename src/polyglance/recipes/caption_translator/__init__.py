"""A small Transformer that translates captions into many languages, for UC2's training data."""
