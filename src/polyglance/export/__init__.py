"""A trained model as a folder that searches without torch.

    model.json        what it is, its settings, its files with their checksums
    text.onnx         places of sub-words, or rows of words -> unit vectors
    picture.onnx      pixels -> unit vectors
    vocabulary.xz     the tokenizer, or the words of each language

`from_run` sees which kind of model a run has trained. `writing` makes the folder of a
compressed MMP model, and `reading` brings it back into torch; `words` makes that of
a model that reads words, such as SMALR. `polyglance.encoders` searches with either. The
weights lie in the graphs as they are stored, in 4, 8 and 16 bits; ONNX Runtime makes
of them what it computes with when it loads a graph.
"""
