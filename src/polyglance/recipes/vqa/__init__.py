"""Visual question answering: UC2 with a classifier over answers, in several languages at once.

Read `train` first; it builds the data (`data`), the model and the task (`tasks`) from the
settings (`config`) and trains in one stage.
"""
