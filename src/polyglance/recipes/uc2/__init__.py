"""UC2 (Zhou et al. 2021): early adaptation, pre-training with four objectives, fine-tuning.

Read `train` first; it builds the data (`data`), the model and the tasks (`tasks`) from the
settings (`config`) and runs the stages in order.
"""
