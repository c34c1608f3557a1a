"""What of Polyglance is public, as the site's Python API shows it; `RULE` is the one definition."""

from __future__ import annotations

import ast
from pathlib import Path

RULE = """A module is public, and has a page here, if

- it is `polyglance` itself or a package that lists its names in `__all__`;
- an example on these pages, in a notebook or in a guide of [Contributing](../contributing.md)
  imports from it;
- it is a model, an objective, an integration or the settings of a recipe: a module of
  `polyglance.models`, `polyglance.objectives`, `polyglance.integrations` or
  `polyglance.recipes.*.config`;
- or it defines a class that something public takes, returns or holds.

Of a public module all names are public that do not begin with an underscore, or those of its
`__all__`. They are documented and tested, and a change that breaks one is named in the
[changes](../changelog.md). Everything else may change without a word."""
"""Shown above the list of modules; `tests/docs/test_public_names.py` checks each line of it."""

MODULES = {
    "Everyday use": {
        "polyglance": "load models, open libraries",
        "polyglance.search.library": "libraries of pictures and clips",
        "polyglance.search.results": "what a search returns",
        "polyglance.search.query": "hits, references to pictures, and how a query is made",
        "polyglance.search.indexing": "the report of adding folders",
        "polyglance.search.query_syntax": "weights in queries",
        "polyglance.search.classification": "sorting by labels",
        "polyglance.search.reranking": "your own re-ranker",
        "polyglance.cross_encoders": "score, explain and answer with a trained UC2 or M3P",
        "polyglance.encoders": "dual encoders, and the protocol of your own",
        "polyglance.encoders.torch_encoder": "wrap a torch model",
        "polyglance.encoders.reader": "re-rank, answer and explain with a model's reader",
        "polyglance.encoders.stored_features": "clips by features of a video network",
        "polyglance.encoders.translated_queries": "queries together with their translations",
        "polyglance.vision.limited_decoding": "limits on files from others",
        "polyglance.demo.photographs": "the included photographs",
        "polyglance.errors": "what is raised for a mistake that a user can make",
    },
    "Data": {
        "polyglance.records": "records and manifests",
        "polyglance.languages": "language codes and names",
        "polyglance.data.readers": "datasets in their published formats",
        "polyglance.data.import_dataset": "converting datasets to manifests",
        "polyglance.data.machine_captions": "telling translations from captions by people",
        "polyglance.data.translate": "translating manifests",
        "polyglance.data.toy": "a toy dataset in eight languages",
        "polyglance.text": "tokenizers",
        "polyglance.text.alignment": "word alignment",
        "polyglance.text.translation": "translators",
        "polyglance.text.translation.translators": "the protocol of your own translator",
        "polyglance.text.spelling": "correction of typing mistakes",
        "polyglance.weights": "pretrained weights by name",
    },
    "Evaluation": {
        "polyglance.evaluation.retrieval": "ranks and recalls",
        "polyglance.evaluation.encoders": "an encoder on a manifest",
        "polyglance.evaluation.embeddings": "embeddings on disk",
        "polyglance.evaluation.results": "results files",
        "polyglance.evaluation.report": "tables in documents",
        "polyglance.evaluation.statistics": "paired comparisons",
        "polyglance.evaluation.answers": "answers to questions",
        "polyglance.evaluation.comparison": "models side by side",
        "polyglance.evaluation.comparison_data": "captioned pictures to compare on",
        "polyglance.evaluation.comparison_models": "models to compare",
        "polyglance.reproduce.queries": "ranks of a reproduced table",
    },
    "Models and training": {
        "polyglance.models.smalr": "SMALR",
        "polyglance.models.consistency": "SMALR's cross-lingual consistency",
        "polyglance.models.m3p": "M3P",
        "polyglance.models.uc2": "UC2",
        "polyglance.models.mmp": "MMP",
        "polyglance.models.vqa": "question answering",
        "polyglance.models.m3p_checkpoints": "published checkpoints of M3P",
        "polyglance.models.uc2_checkpoints": "published checkpoints of UC2",
        "polyglance.objectives.nce": "noise-contrastive estimation",
        "polyglance.objectives.triplet": "triplets",
        "polyglance.objectives.masked_language": "masked language modelling",
        "polyglance.objectives.masked_regions": "masked regions",
        "polyglance.objectives.matching": "image-text matching",
        "polyglance.objectives.co_masking": "masking of aligned words",
        "polyglance.recipes": "recipes",
        "polyglance.recipes.smalr.config": "settings of SMALR",
        "polyglance.recipes.m3p.config": "settings of M3P",
        "polyglance.recipes.uc2.config": "settings of UC2",
        "polyglance.recipes.mmp.config": "settings of MMP",
        "polyglance.recipes.fine_tune.config": "settings of fine-tuning",
        "polyglance.training.loop": "the training loop",
        "polyglance.export.to_torch": "exported models back in torch",
    },
}
"""Modules that most people need, with a word on each."""

DETAILS = {
    "Libraries in detail": (
        "polyglance.search.browsing",
        "polyglance.search.exact",
        "polyglance.search.export",
        "polyglance.search.library_contents",
        "polyglance.search.open_library",
        "polyglance.search.serialization",
        "polyglance.search.signals.dates",
        "polyglance.search.signals.understanding",
        "polyglance.search.store",
    ),
    "Texts, pictures and data in detail": (
        "polyglance.config",
        "polyglance.data.captions",
        "polyglance.data.readers.base",
        "polyglance.data.readers.validation",
        "polyglance.data.tar_index",
        "polyglance.data.tars",
        "polyglance.data.toy.scenes",
        "polyglance.encoders.consistency",
        "polyglance.encoders.model_folder",
        "polyglance.text.code_switching",
        "polyglance.text.dictionaries",
        "polyglance.text.lexicon",
        "polyglance.text.scripts",
        "polyglance.text.translation.checks",
        "polyglance.text.translation.network",
        "polyglance.vision.decoding",
        "polyglance.vision.detection",
        "polyglance.vision.exif",
        "polyglance.vision.feature_sources",
        "polyglance.vision.pictures",
        "polyglance.vision.shard_files",
        "polyglance.vision.store",
        "polyglance.vision.store_reader",
        "polyglance.vision.tokens",
        "polyglance.vision.torch_backbone",
    ),
    "Models in detail": (
        "polyglance.cross_encoders.model_folder",
        "polyglance.cross_encoders.object_tags",
        "polyglance.encoders.answers",
        "polyglance.encoders.attribution",
        "polyglance.encoders.reader_files",
        "polyglance.encoders.reader_pictures",
        "polyglance.cross_encoders.regions",
        "polyglance.export.split_model",
        "polyglance.models.attribution",
        "polyglance.models.cross_encoder",
        "polyglance.models.mmp_folder",
        "polyglance.models.projection_heads",
        "polyglance.models.published_checkpoints",
        "polyglance.models.smalr_baselines",
        "polyglance.models.smalr_folder",
        "polyglance.models.vqa_checkpoints",
        "polyglance.nn.character_embedding",
        "polyglance.nn.encoder",
        "polyglance.nn.hybrid_embedding",
        "polyglance.nn.latent_vocabulary",
        "polyglance.nn.packed_pairs",
        "polyglance.nn.packing",
        "polyglance.nn.pretrained",
        "polyglance.objectives.draws",
        "polyglance.objectives.early_adaptation",
        "polyglance.objectives.language_adversary",
        "polyglance.objectives.linear_cross_entropy",
        "polyglance.objectives.masked_cross_language",
        "polyglance.objectives.noise",
        "polyglance.objectives.similarity",
        "polyglance.objectives.top_triplets",
        "polyglance.objectives.vqa",
    ),
    "Recipes in detail": (
        "polyglance.batches.batch",
        "polyglance.batches.inputs",
        "polyglance.batches.order",
        "polyglance.batches.regions",
        "polyglance.batches.streamed_regions",
        "polyglance.recipes.caption_translator.config",
        "polyglance.recipes.compact_reader.config",
        "polyglance.recipes.cross_encoder.batches",
        "polyglance.recipes.cross_encoder.build",
        "polyglance.recipes.cross_encoder.captions",
        "polyglance.recipes.cross_encoder.config",
        "polyglance.recipes.cross_encoder.data",
        "polyglance.recipes.cross_encoder.evaluation",
        "polyglance.recipes.cross_encoder.streaming",
        "polyglance.recipes.image_sources",
        "polyglance.recipes.run_folder",
        "polyglance.recipes.stages",
        "polyglance.recipes.uc2.aligned_captions",
        "polyglance.recipes.uc2.labels",
        "polyglance.recipes.uc2.tasks",
        "polyglance.recipes.vqa.config",
        "polyglance.training.mixture",
    ),
}
"""The other public modules; the first line of each says what it is."""


def public_modules(root: Path) -> dict[str, dict[str, str]]:
    """Return the public modules by heading, with a word on each.

    Args:
        root: The repository.
    """
    integrations = sorted((root / "src/polyglance/integrations").glob("[a-z]*.py"))
    names = {f"polyglance.integrations.{path.stem}": path.stem for path in integrations}
    details = {
        heading: {name: first_line(root, name) for name in modules}
        for heading, modules in DETAILS.items()
    }
    return {**MODULES, "Integrations": names, **details}


def module_file(root: Path, name: str) -> Path:
    """Return the file of a module or package."""
    path = root / "src" / Path(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def first_line(root: Path, name: str) -> str:
    """Return the first line of a module's docstring, as text of a page."""
    text = ast.get_docstring(ast.parse(module_file(root, name).read_text(encoding="utf-8"))) or ""
    line = text.partition("\n\n")[0].replace("\n", " ").replace("``", "`").rstrip(".")
    return line[:1].lower() + line[1:] if line[1:2].islower() else line
