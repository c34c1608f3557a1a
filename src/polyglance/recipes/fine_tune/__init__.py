"""Fine-tuning of a dual encoder, such as the default model, on one's own captioned pictures."""
