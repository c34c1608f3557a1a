"""Published question-answering heads, with the names of UC2's and VOLTA's code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from helpers.published.uc2_checkpoint import uc2_vqa_parameters
from polyglance.errors import DataError
from polyglance.models.vqa_checkpoints import convert_vqa, load_vqa, vqa_head
from polyglance.nn.packed_pairs import Regions, Text
from polyglance.nn.packing import Packing

VISUAL_WIDTH, ANSWERS = 6, 5


@pytest.mark.parametrize(
    ("head", "head_width"),
    # VOLTA's copy of UC2 has an inner layer of the hidden size, all others of twice that.
    [("vqa_output", 128), ("clfs_dict.TASK1.logit_fc", 64)],
)
def test_logits_equal_a_slow_published_head(head: str, head_width: int) -> None:
    published = uc2_vqa_parameters(head, width=64, head_width=head_width)
    model = convert_vqa(published)
    question = Text(torch.tensor([0, 5, 6, 2]), Packing.of([4]))
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.6], [0.2, 0.0, 0.9, 1.0]])
    regions = Regions(torch.randn(2, VISUAL_WIDTH), boxes, Packing.of([2]))
    with torch.no_grad():
        logits = model(question, regions)
        first = model.cross_encoder(question, regions).pooled
        pooled = first @ published["roberta.pooler.dense.weight"].T
        pooled += published["roberta.pooler.dense.bias"]
        # VOLTA fine-tunes with relu, UC2's code with tanh.
        pooled = pooled.tanh() if head == "vqa_output" else pooled.relu()
        hidden = F.gelu(pooled @ published[f"{head}.0.weight"].T + published[f"{head}.0.bias"])
        mean = hidden.mean(1, keepdim=True)
        spread = ((hidden - mean) ** 2).mean(1, keepdim=True)
        hidden = (hidden - mean) / (spread + 1e-5).sqrt()
        hidden = hidden * published[f"{head}.2.weight"] + published[f"{head}.2.bias"]
        expected = hidden @ published[f"{head}.3.weight"].T + published[f"{head}.3.bias"]
    assert logits.shape == (1, ANSWERS)
    assert torch.allclose(logits, expected, atol=1e-5)


def test_one_of_several_tasks_must_be_chosen(tmp_path: Path) -> None:
    published = uc2_vqa_parameters("clfs_dict.TASK1.logit_fc")
    other = {
        name.replace("TASK1", "TASK15"): value + 1
        for name, value in published.items()
        if "TASK1" in name
    }
    torch.save(published | other, tmp_path / "volta.bin")
    with pytest.raises(DataError, match=r"volta.bin: .* choose one of TASK1, TASK15"):
        load_vqa(tmp_path / "volta.bin")
    model = load_vqa(tmp_path / "volta.bin", task="TASK15")
    bias = model.head[-1].bias
    assert torch.equal(bias, other["clfs_dict.TASK15.logit_fc.3.bias"])


def test_a_checkpoint_without_a_head_is_named(tmp_path: Path) -> None:
    published = uc2_vqa_parameters()
    body = {name: value for name, value in published.items() if not name.startswith("vqa")}
    assert vqa_head(body) == {}
    with pytest.raises(DataError, match="no head that answers questions"):
        convert_vqa(body)
    del published["vqa_output.2.bias"]
    with pytest.raises(DataError, match="incomplete"):
        convert_vqa(published)


def test_a_head_without_its_pooler_is_refused_and_never_reads_a_random_one() -> None:
    published = uc2_vqa_parameters()
    body = {name: value for name, value in published.items() if "pooler" not in name}
    with pytest.raises(DataError, match="no pooler, which that head reads"):
        convert_vqa(body)
