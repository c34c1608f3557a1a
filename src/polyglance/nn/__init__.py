"""Shared bricks of the models: packed sequences, attention, the encoder, pooling."""
