"""``polyglance demo``: learn to see and read a small world in under a minute, then search it.

The toy world's pictures are described in eight languages. A small MMP model is
trained from nothing on them, on the processor, and then asked for scenes it has
never seen described together.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from polyglance.data.captions import CaptionTable
from polyglance.data.toy import LANGUAGES, Picture, ToyWorld
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.search.results import Answer, Hit
from polyglance.search.sheet import write_sheet
from polyglance.search.terminal import answers_table
from polyglance.text.sentencepiece_file import open_file
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.loop import LoopConfig, train
from polyglance.training.mixture import Mixture
from polyglance.training.pairing import CaptionedVisuals
from polyglance.training.visuals import PixelTable
from polyglance.vision.convnet import SmallConvNet

TRAINING, GALLERY, HITS = 2000, 200, 5
SIZE, WIDTH = 32, 64


def run(out: Path, *, steps: int, console: Console) -> None:
    """Train, measure, search, and show what was found; a contact sheet goes to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    world = ToyWorld(seed=0)
    console.print(f"Drawing {TRAINING:,} pictures with captions in {len(LANGUAGES)} languages ...")
    pictures = list(world.pictures(TRAINING, "train"))
    toy = make_toy_model(pictures)
    console.print(f"Learning to read and to see from nothing: {steps} steps ...")
    seconds = train_toy_model(toy, pictures, steps=steps)
    gallery = list(world.pictures(GALLERY, "test"))
    recalls = {language: toy_recall(toy, gallery, language, at=HITS) for language in LANGUAGES}
    answers = search(toy, gallery)
    console.print(answers_table(answers))
    found = ", ".join(f"{language} {recall:.0f} %" for language, recall in recalls.items())
    console.print(
        f"Trained for {seconds:.0f} s. Of {GALLERY} scenes whose combinations were never seen in"
        f" training, the right one is among the first {HITS} for: {found}"
        f" (by chance: {100 * HITS / GALLERY:.1f} %)."
    )
    sheet = out / "sheet.html"
    write_sheet(
        sheet,
        answers,
        title="Polyglance: one small world, eight languages",
        note=f"Learned from nothing in {seconds:.0f} seconds. A green frame is what was meant;"
        f" it is among the first {HITS} for {np.mean(list(recalls.values())):.0f} % of {GALLERY}"
        f" scenes like these, by chance for {100 * HITS / GALLERY:.1f} %.",
    )
    console.print(f"The same as a page: {sheet}")


def search(toy: ToyModel, gallery: Sequence[Picture], hits: int = HITS) -> list[Answer]:
    """One query a language, each for another picture of the gallery, with its best hits."""
    vectors = toy.encode_pictures(gallery)
    answers = []
    for number, language in enumerate(LANGUAGES):
        query = gallery[number].captions[language][0].text
        scores = vectors @ toy.encode_texts([query])[0]
        best = np.argsort(-scores)[:hits]
        answers.append(
            Answer(
                query,
                language,
                [
                    Hit(
                        Image.fromarray(gallery[i].pixels(128)),
                        float(scores[i]),
                        gallery[i].captions["en"][0].text,
                        right=gallery[i].scene.fact == gallery[number].scene.fact,
                    )
                    for i in best
                ],
            )
        )
    return answers


@dataclass(frozen=True)
class ToyModel:
    """A model of the toy world with what it needs to read and to see."""

    model: MMP
    eyes: SmallConvNet
    tokenizer: Tokenizer

    def table(self, pictures: Sequence[Picture]) -> PixelTable:
        """Pictures as the model takes them; never mirrored, since left is not right."""
        pixels = torch.from_numpy(np.stack([picture.pixels(SIZE) for picture in pictures]))
        half = torch.full((3,), 127.5)
        return PixelTable(pixels, self.eyes, half, half, smallest_crop=1.0, mirror=False)

    @torch.no_grad()
    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """A unit vector for each picture."""
        self.model.eval()
        table = self.table(pictures)
        blocks = np.array_split(np.arange(len(pictures)), 1 + len(pictures) // 256)
        vectors = [self.model.encode_visual(*table.rows(block, None)) for block in blocks]
        return torch.cat(vectors).numpy()

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A unit vector for each sentence, whatever its language."""
        self.model.eval()
        ids = self.tokenizer.encode_batch(texts)
        flat = torch.tensor([number for sentence in ids for number in sentence])
        return self.model.encode_text(flat, Packing.of([len(s) for s in ids])).numpy()


def make_toy_model(pictures: Sequence[Picture], seed: int = 0) -> ToyModel:
    """An untrained model whose vocabulary is that of the pictures' captions."""
    tokenizer = _vocabulary(
        [text for p in pictures for texts in p.record().captions.values() for text in texts]
    )
    torch.manual_seed(seed)
    encoder = EncoderConfig(
        vocabulary=tokenizer.vocab_size,
        width=WIDTH,
        layers=1,
        heads=4,
        inner=2 * WIDTH,
        positions=66,
        activation="relu",
        dropout=0.0,
    )
    config = MMPConfig(
        encoder=encoder,
        text_layer=None,
        frozen_layers=0,
        visual_width=WIDTH,
        width=WIDTH,
        pooling_layers=1,
        dropout=0.0,
    )
    model, eyes = MMP(config), SmallConvNet(WIDTH)
    model.add_module("eyes", eyes)
    return ToyModel(model, eyes, tokenizer)


def train_toy_model(
    toy: ToyModel,
    pictures: Sequence[Picture],
    *,
    steps: int,
    batch: int = 128,
    quiet: bool = False,
) -> float:
    """Train on pictures and their captions; returns the seconds it took."""
    captions = CaptionTable.build((p.record() for p in pictures), toy.tokenizer)
    objective = MMPObjective(negatives="symmetric", temperature=0.05, intra=False)
    task = CaptionedVisuals(
        toy.model, toy.table(pictures), captions, objective, batch=batch, captions_each=1
    )
    config = LoopConfig(
        steps=steps, learning_rate=3e-3, schedule="cosine", warmup=steps // 10, clip=1.0
    )
    # One thread: layers this small gain little from a second, and lose much where cores are shared.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train(toy.model, Mixture({"captions": task}), config, Path(folder), quiet=quiet)
    finally:
        torch.set_num_threads(threads)
    return run.seconds


def toy_recall(toy: ToyModel, pictures: Sequence[Picture], language: str, *, at: int) -> float:
    """Text-to-image recall at ``at`` of the pictures' complete captions, in percent."""
    texts = [picture.captions[language][0].text for picture in pictures]
    vectors, owners = toy.encode_pictures(pictures), np.arange(len(texts))
    result = evaluate_retrieval(vectors, toy.encode_texts(texts), owners, ks=[at])
    return result.text_to_image.recalls[at]


def _vocabulary(texts: Sequence[str]) -> Tokenizer:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=700,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.model"
        path.write_bytes(model.getvalue())
        return open_file(path)
