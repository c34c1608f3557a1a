"""Polyglance's models in other packages.

| module | package | extra |
|---|---|---|
| `sentence_transformers` | a module of texts and pictures | sentence-transformers |
| `mteb` | MTEB: an encoder, its `ModelMeta`, and your own captions as tasks | mteb |
| `clip_benchmark` | CLIP_benchmark: model, transform and tokenizer | clip-benchmark |
| `langchain` | LangChain: `Embeddings` | langchain |
| `chroma` | Chroma: an embedding function and a loader of pictures | chroma |
| `lancedb` | LanceDB: an embedding function of its registry | lancedb |

A module imports its package; importing `polyglance.integrations` imports none. Layouts of Hugging
Face's ``datasets`` (imagefolder, Parquet, WebDataset) are formats of `polyglance data import`, and
need no package of theirs: see `polyglance.data.readers`.
"""
