"""A reader: one small cross-encoder that re-ranks, answers and explains for a dual encoder."""
