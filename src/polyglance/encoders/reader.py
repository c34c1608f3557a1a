"""A model's reader: re-rank, answer and explain with ONNX Runtime, without torch.

The reader is a small UC2 (`polyglance.models.uc2`) that reads a text's words beside a picture's
cells. Words are states of the dual encoder's lower layers, or rows of its table; cells are of its
feature map, before pooling, where what is seen is still where it was seen.

Explanations are by occlusion (Zeiler and Fergus 2014): windows of the picture are hidden, with
each word and without it, and a window's credit is how much less the word then adds to the
match. Gradients would need a second graph; this reads about a hundred pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.answers import Answer, AnswerVocabulary
from polyglance.encoders.attribution import Attribution
from polyglance.encoders.inputs import as_list
from polyglance.encoders.model_folder import (
    READER,
    REINSTALL_HINT,
    TEXT,
    VOCABULARY,
    ModelFolder,
)
from polyglance.encoders.occlusion import choose_windows, spread_credit
from polyglance.encoders.protocol import PicklableEncoder, Picture, Vectors
from polyglance.encoders.reader_files import read_reader_config, unusable
from polyglance.encoders.reader_network import ReaderNetwork
from polyglance.encoders.reader_pictures import CROPS, EncodedPicture, PictureCells
from polyglance.encoders.sessions import threads_by_environment
from polyglance.encoders.text_states import TextStates
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.encoders.word_table import WordTable
from polyglance.errors import DataError, PolyglanceError
from polyglance.languages import check_language, is_spaceless
from polyglance.text.detection import detect_language
from polyglance.text.lexicon import Lexicon
from polyglance.text.sentence_words import split_words
from polyglance.utils.cores import available_cores

_PAIR_BATCH = 32
"""Pairs read together: larger batches take more memory and no less time."""
_QUESTION_MARKS = ("?", "？", "؟", ";", "՞")

Floats = NDArray[np.float32]


class Reader(PicklableEncoder):
    """Scores, answers and explains pictures; a `PairScorer` of `polyglance.search.reranking`."""

    num_candidates = 20
    """Hits to re-rank: with their decoding a second on two cores."""

    def __init__(self, folder: ModelFolder, threads: int | None = None) -> None:
        """Open the reader of a model.

        Args:
            folder: The model; an error says that it has no reader.
            threads: Number of CPU threads; None for OMP_NUM_THREADS, or all cores.
        """
        self.folder, self.threads = folder, threads
        self.config = read_reader_config(folder)
        if self.config.model != folder.description.fingerprint:
            raise DataError(
                f"the reader in {folder.path} was trained on the words and cells of another model:"
                f" {REINSTALL_HINT}"
            )
        self.vocabulary = AnswerVocabulary(self.config.answers)
        self.crops = CROPS
        """Parts of a picture that a question is asked about, with the weights of the answers."""
        self._is_open = False

    @classmethod
    def open(cls, name_or_folder: str | Path | None = None, threads: int | None = None) -> Reader:
        """Open the reader of a model by its name or folder; None for the default model."""
        return cls(ModelFolder.open(name_or_folder), threads)

    @property
    def dual_weight(self) -> float:
        """The weight of the dual encoder's cosine beside the score."""
        return self.config.dual_weight

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of sub-words of a text."""
        return self.config.max_text_tokens

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of its answers."""
        return tuple(self.vocabulary.by_language)

    @property
    def image_size(self) -> int:
        """Pixels a side of the pictures that it reads."""
        return self._pictures.settings.size

    @property
    def min_side(self) -> int:
        """Pixels a side below which a larger picture must not be decoded."""
        return self._pictures.min_side

    def encode_images(self, images: Sequence[Picture]) -> list[EncodedPicture]:
        """Encode pictures for any number of texts."""
        self._open()
        pictures, encoded = as_list(images), list[EncodedPicture]()
        for start in range(0, len(pictures), _PAIR_BATCH):
            some = pictures[start : start + _PAIR_BATCH]
            found = self._pictures.encode(some, self._num_threads or available_cores())
            rows = self._network.picture_rows(np.stack([cells for cells, _ in found]))
            for own, (_, vector) in zip(rows.astype(np.float16), found, strict=True):
                encoded.append(EncodedPicture(own, vector))
        return encoded

    def dual_scores(
        self,
        query: Vectors,
        encoded: Sequence[EncodedPicture],
        cosines: NDArray[np.floating],
        *,
        models: Collection[str],
    ) -> NDArray[np.floating] | None:
        """Average a library's cosines with those at the size that the reader takes.

        Args:
            query: A unit vector, (width,).
            encoded: What `encode_images` returned.
            cosines: Of the library's vectors, (pictures,).
            models: Fingerprints of the models that have the library's vectors of pictures.

        Returns:
            None if they are other vectors than the reader's, or the size is the library's own.
        """
        own = [picture.vector for picture in encoded if picture.vector is not None]
        if self.folder.description.picture_models.isdisjoint(models) or not own:
            return None
        return np.asarray((cosines + np.stack(own) @ query) / 2)

    def score(
        self, text: str, encoded: Sequence[EncodedPicture], *, language: str | None = None
    ) -> Floats:
        """Return how well a text fits each picture, (pictures,); higher is better.

        Args:
            text: A query or caption.
            encoded: What `encode_images` returned.
            language: Ignored; all languages share the sub-words.
        """
        words = self._word_rows(self._tokenizer.encode(text, self.max_text_tokens))
        scores = [np.zeros(0, np.float32)]
        for start in range(0, len(encoded), _PAIR_BATCH):
            some = [picture.rows for picture in encoded[start : start + _PAIR_BATCH]]
            scores.append(self._network.read(words, np.stack(some).astype(np.float32))[0])
        return np.concatenate(scores)

    def ask(
        self, image: Picture, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """Answer a question about a picture, by the whole of it and its four corners.

        Args:
            image: The picture.
            question: In any language; best in those of the answers.
            language: Of the answers; None for the question's own, or the first there is.
            k: How many answers.

        Returns:
            The ``k`` most probable answers, best first.
        """
        if not question.strip():
            raise PolyglanceError("the question is empty: ask one in " + ", ".join(self.languages))
        self._open()
        code = self.detect_language(question) if language is None else check_language(language)
        ids = self._tokenizer.encode(question, self.max_text_tokens)
        probabilities = self._answer_probabilities(self._crops(image), ids)
        return self.vocabulary.best(probabilities, code, k, as_shares=True)

    def detect_language(self, question: str) -> str | None:
        """Return the language of a question among those of the answers; None if unknown."""
        return None if self.lexicon is None else detect_language(question, self.lexicon)

    def last_word_read(self, text: str) -> str | None:
        """Return the last word that is read of a text that is too long, else None."""
        text, encoding = self._tokenizer.encode_with_spans(text, self.max_text_tokens)
        words = split_words(text, encoding)
        return words[-1][0] if words and self._is_truncated(text, encoding.ids) else None

    def explain(
        self,
        image: Picture,
        sentence: str,
        *,
        language: str | None = None,
        max_words: int | None = None,
        steps: int | None = None,
        quiet: bool = True,
    ) -> Attribution:
        """Attribute each word of a sentence, or the answer to a question, to cells of a picture.

        Args:
            image: The picture.
            sentence: A caption or query; one that ends in a question mark is answered, and the
                answer is attributed.
            language: Its language, for scripts without spaces.
            max_words: Explain the first so many words.
            steps: Ignored: nothing is integrated.
            quiet: Ignored: it takes too little time for a progress bar.
        """
        code = check_language(language) if language else None
        self._open()
        text, encoding = self._tokenizer.encode_with_spans(sentence, self.max_text_tokens)
        words = split_words(text, encoding, spaces=not (code and is_spaceless(code)))
        if not words:
            raise PolyglanceError(f"there is no word in {sentence!r} to explain")
        truncated = words[-1][0] if self._is_truncated(text, encoding.ids) else None
        words = words[:max_words]
        if is_question := sentence.rstrip().endswith(_QUESTION_MARKS):
            crops = self._crops(image)
            hidden, cells = [list[int]()], crops[0]
        else:
            hidden, cells = [[], *(own for _, own in words)], self._pictures.cells(image)
        windows = choose_windows(self.config.grid, len(hidden))
        match, answers = self._occlude(encoding.ids, hidden, cells, windows)
        if is_question:
            probabilities = self._answer_probabilities(crops, encoding.ids)
            answer = self.vocabulary.best(probabilities, self.detect_language(sentence), 1)[0]
            names = [f"→ {answer.text}"]
            logits = answers[:, :, self.vocabulary.class_ids[answer.language, answer.text]]
            credit = logits[:, :1] - logits[:, 1:]
        else:
            names = [name for name, _ in words]
            added = match[:1] - match[1:]  # by each word, with every window
            credit = added[:, :1] - added[:, 1:]
        heatmaps = spread_credit(credit, windows)
        return Attribution(language, names, heatmaps, "occlusion", truncated)

    def _occlude(
        self,
        ids: Sequence[int],
        hidden_words: Sequence[Sequence[int]],
        cells: Floats,
        windows: NDArray[np.bool_],
    ) -> tuple[Floats, Floats]:
        """Read a pair with some words and some cells hidden.

        Args:
            ids: Of the text.
            hidden_words: Positions of the sub-words to hide, for each variant of the text.
            cells: Of the picture.
            windows: (windows, rows, columns), true for cells to hide.

        Returns:
            Match (texts, 1 + windows), the first with all cells, and answers likewise.
        """
        text_masks = np.ones((len(hidden_words), len(ids)), np.float32)
        for mask, own in zip(text_masks, hidden_words, strict=True):
            mask[list(own)] = 0
        cell_masks = np.ones((1 + len(windows), len(cells)), np.float32)
        cell_masks[1:, 1:] -= windows.reshape(len(windows), -1)
        words = self._word_rows(ids, text_masks)
        rows = self._network.picture_rows(cells[None], cell_masks)
        shape = (len(text_masks), len(cell_masks))
        texts, pictures = (place.ravel() for place in np.indices(shape))
        parts = [slice(start, start + _PAIR_BATCH) for start in range(0, len(texts), _PAIR_BATCH)]
        found = [
            self._network.read(
                words[texts[at]],
                rows[pictures[at]],
                text_mask=text_masks[texts[at]],
                cell_mask=cell_masks[pictures[at]],
            )
            for at in parts
        ]
        match, answers = (np.concatenate(part) for part in zip(*found, strict=True))
        return match.reshape(shape), answers.reshape(*shape, -1)

    def _word_rows(self, ids: Sequence[int], masks: Floats | None = None) -> Floats:
        """Return what the graph takes of a text, (1 or masks, ids, width).

        ``masks`` (variants, ids) are 0 for sub-words that the others shall not have seen.
        """
        masks = np.ones((1, len(ids)), np.float32) if masks is None else masks
        if self.config.text_layers:
            return self._text_states(ids, masks)
        return np.repeat(self._table(ids)[None], len(masks), axis=0)

    def _is_truncated(self, text: str, ids: Sequence[int]) -> bool:
        return len(self._tokenizer.encode(text, self.max_text_tokens + 1)) > len(ids)

    def _crops(self, image: Picture) -> Floats:
        """Return the cells of each part of a picture that is asked about, the whole first."""
        return self._pictures.crops(image, self.crops, self._num_threads or available_cores())

    def _answer_probabilities(self, crops: Floats, ids: Sequence[int]) -> Floats:
        """Return the probability of each answer, (answers,), averaged over crops of a picture."""
        rows = self._network.picture_rows(crops)
        logits = self._network.read(self._word_rows(ids), rows)[1]
        if self.config.loss == "binary":
            probabilities = 1 / (1 + np.exp(-logits))
        else:
            shifted = np.exp(logits - logits.max(1, keepdims=True))
            probabilities = shifted / shifted.sum(1, keepdims=True)
        return np.asarray([*self.crops.values()] @ probabilities, np.float32)

    def _open(self) -> None:
        """Open all parts side by side, once: what each does is outside of Python for the most."""
        if self._is_open:
            return
        parts: list[Callable[[], object]] = [
            lambda: self._tokenizer,
            lambda: self._text_states if self.config.text_layers else self._table,
            lambda: self._pictures.session,
            lambda: self._network,
        ]
        threads = min(2, self._num_threads or available_cores())
        with ThreadPoolExecutor(threads, thread_name_prefix="open") as pool:
            for opened in [pool.submit(part) for part in parts]:
                opened.result()
        self._is_open = True

    @property
    def _num_threads(self) -> int | None:
        return self.threads or threads_by_environment()

    @property
    def lexicon(self) -> Lexicon | None:
        """Words of the training questions; None if the reader has none."""
        return self._lexicon

    @cached_property
    def _lexicon(self) -> Lexicon | None:
        return Lexicon(self.config.lexicon) if self.config.lexicon else None

    @cached_property
    def _tokenizer(self) -> UnigramTokenizer:
        source, content = str(self.folder.path / VOCABULARY), self.folder.read_file(VOCABULARY)
        return UnigramTokenizer(Vocabulary.from_bytes(content, source))

    @cached_property
    def _table(self) -> WordTable:
        try:
            return WordTable.from_graph(self.folder.read_file(TEXT))
        except ValueError as error:
            raise unusable(self.folder.path / TEXT, error) from error

    @cached_property
    def _text_states(self) -> TextStates:
        content, layers = self.folder.read_file(TEXT), self.config.text_layers
        try:
            return TextStates(content, self.folder.path / TEXT, layers, self._num_threads)
        except ValueError as error:
            raise unusable(self.folder.path / TEXT, error) from error

    @cached_property
    def _network(self) -> ReaderNetwork:
        content, path = self.folder.read_file(READER), self.folder.path / READER
        return ReaderNetwork(content, path, self._num_threads)

    @cached_property
    def _pictures(self) -> PictureCells:
        return PictureCells(self.folder, self.config)
