"""M3P (Ni et al. 2021): code-switched multitask pre-training, then fine-tuning for retrieval.

Read `train` first; it builds the data (`data`), the model and the tasks (`tasks`) from the
settings (`config`) and runs the stages in order.
"""
