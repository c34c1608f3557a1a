from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from polyglance.errors import DataError, PolyglanceError
from polyglance.models.smalr import SMALR, SMALRConfig
from polyglance.models.smalr_folder import FeatureInfo, load_smalr, save_smalr
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.latent_vocabulary import TokenChooser
from polyglance.nn.packing import Packing
from polyglance.text.lexicon import Lexicon

LEXICON = Lexicon({"en": {"dog": 3, "cat": 2}, "de": {"hund": 4, "katze": 1}})
CONFIG = SMALRConfig(
    own_words=1, own_width=3, latent_tokens=4, universal_width=6, gru_width=5,
    visual_width=7, visual_hidden=8, width=4,
)  # fmt: skip
FEATURE_INFO = FeatureInfo("resnet-50", 224, "squash", "ten", "ab12")
PACKING = Packing.of([2, 3])
IDS = torch.tensor([2, 5, 3, 4, 4])


def make(branches: str = "one") -> SMALR:
    torch.manual_seed(0)
    slots = torch.tensor([0, 1, 3, 2, 4, 2])
    chooser = TokenChooser(torch.randn(1, 5), torch.randn(1))
    own = [torch.randn(1, 3), torch.randn(1, 3)]
    words = HybridEmbedding(slots, own, torch.randn(1, 6), chooser=chooser)
    config = SMALRConfig(**{**vars(CONFIG), "branches": branches})
    model = SMALR(config, words, num_languages=2)
    model.image_branch(torch.randn(16, 7))  # moves the running means from their initial values
    return model.eval()


@pytest.mark.parametrize("branches", ["one", "language"])
def test_a_saved_model_loads_unchanged(branches: str, tmp_path: Path) -> None:
    model = make(branches)
    save_smalr(model, LEXICON, tmp_path, feature_info=FEATURE_INFO)
    loaded = load_smalr(tmp_path)
    languages = torch.tensor([0, 1])
    torch.testing.assert_close(
        loaded.text.encode_text(IDS, PACKING, languages),
        model.encode_text(IDS, PACKING, languages),
        atol=2e-3, rtol=0,  # the table is in half precision
    )  # fmt: skip
    features = torch.randn(3, 7)
    torch.testing.assert_close(loaded.image_branch(features), model.image_branch(features))
    assert loaded.lexicon.words == LEXICON.words
    assert loaded.languages == ("en", "de")
    assert (loaded.config, loaded.feature_info) == (model.config, FEATURE_INFO)
    assert not any(p.requires_grad for p in loaded.text.parameters())


def test_a_language_can_be_added_to_a_saved_model(tmp_path: Path) -> None:
    save_smalr(make(), LEXICON, tmp_path / "two", feature_info=FEATURE_INFO)
    loaded = load_smalr(tmp_path / "two")
    model = loaded.to_trainable()
    before = loaded.text.encode_text(IDS, PACKING)
    assert torch.equal(model.eval().encode_text(IDS, PACKING), before)
    assert torch.equal(model.words(torch.tensor([1])), loaded.text.table[1:2])
    torch.manual_seed(1)
    model.add_language(torch.randn(3, 5))  # one own vector, two words with the one token
    assert model.num_trainable_parameters() == 3 + 3 * 6 + 6
    assert torch.equal(model.encode_text(IDS, PACKING), before)
    more = LEXICON.with_language("fr", ["chien chien chien chat chat loup"])
    save_smalr(model, more, tmp_path / "three", feature_info=loaded.feature_info)
    again = load_smalr(tmp_path / "three")
    assert again.languages == ("en", "de", "fr")
    assert torch.equal(again.text.encode_text(IDS, PACKING), before)
    new, alone = torch.tensor([6, 7, 8, 3]), Packing.of([1, 1, 1, 1])
    vectors = again.text.encode_text(new, alone)
    torch.testing.assert_close(vectors, model.encode_text(new, alone), atol=2e-3, rtol=0)
    assert torch.equal(vectors[1], vectors[3])  # "chat" and "cat" share one token
    assert torch.equal(vectors[2], vectors[3])
    assert not torch.equal(vectors[0], vectors[3])
    again.to_trainable().add_language(torch.randn(3, 5))


def test_a_model_without_latent_tokens_saves_no_chooser(tmp_path: Path) -> None:
    model = make()
    assert isinstance(model.words, HybridEmbedding)
    model.words.chooser = None
    save_smalr(model, LEXICON, tmp_path, feature_info=FEATURE_INFO)
    assert load_smalr(tmp_path).chooser is None


def test_feature_info_comes_from_the_store(tmp_path: Path) -> None:
    made_by = {"backbone": "efficientnet-lite2", "size": 260, "resize": "centre", "grid": 7}
    assert FeatureInfo.from_store(made_by) == FeatureInfo("efficientnet-lite2", 260, "centre")
    assert FeatureInfo.from_store({"regions": "regions.tsv"}).backbone is None


def test_another_lexicon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="the model has 6 words and the lexicon 3"):
        save_smalr(make(), Lexicon({"en": {"dog": 1}}), tmp_path, feature_info=FEATURE_INFO)


def test_a_broken_folder_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train one with a recipe whose system is smalr"):
        load_smalr(tmp_path)
    save_smalr(make(), LEXICON, tmp_path, feature_info=FEATURE_INFO)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["gru_width"] = 9
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="train one with a recipe whose system is smalr"):
        load_smalr(tmp_path)
