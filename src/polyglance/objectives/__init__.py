"""One file per loss, pure functions on tensors, and the masking and noise that feed them."""
