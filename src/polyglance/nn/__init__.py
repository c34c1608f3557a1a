"""Building blocks of the models: packed sequences, attention, the text encoder, pooling."""
