"""Export a trained model as a folder that searches without torch.

    model.json        description: settings, files and their checksums
    text.onnx         token rows -> unit vectors
    picture.onnx      pixels -> unit vectors
    vocabulary.xz     the tokenizer, or the words of each language

`from_run` exports the model of a training run: `mmp` a compressed MMP model, `smalr` a SMALR
model. `to_torch` loads an MMP model back into torch and `split_model` splits it into
pretrained parts. `polyglance.encoders` runs either. The graphs hold the weights in 4, 8 and
16 bits; ONNX Runtime converts them to its computing precision at load.
"""
