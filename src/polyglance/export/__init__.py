"""A compressed MMP model as a folder that searches without torch.

    model.json        what it is, its settings, its files with their checksums
    text.onnx         places of sub-words -> unit vectors
    picture.onnx      pixels -> unit vectors
    vocabulary.xz     the tokenizer

`writing` makes the folder, `polyglance.encoders` searches with it, and `reading`
brings it back into torch. The weights lie in the graphs as they are stored, in 4
and 8 bits under the names they have in the model; ONNX Runtime makes of them what
it computes with when it loads a graph.
"""
