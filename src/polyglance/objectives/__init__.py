"""One file a loss, pure functions on tensors, and the noise that feeds them."""
