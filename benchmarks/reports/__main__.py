"""Fill every docs page from the files in benchmarks/results.

python -m benchmarks.reports
"""

from __future__ import annotations

from benchmarks import history
from benchmarks.reports import (
    caption_translator_page,
    default_model_page,
    durability_page,
    m3p_page,
    mmp_page,
    reader_page,
    reranking_page,
    scale_page,
    serve_page,
    signals_page,
    smalr_page,
    training_speed_page,
    translation_checks_page,
    uc2_page,
    vqa_page,
    word_aligner_page,
)

PAGES = (
    caption_translator_page, default_model_page, durability_page, m3p_page, mmp_page,
    reader_page, reranking_page, scale_page, serve_page, signals_page, smalr_page,
    training_speed_page, translation_checks_page, uc2_page, vqa_page, word_aligner_page,
)  # fmt: skip


def main() -> None:
    history.add_current()  # results that were copied from another machine
    for page in PAGES:
        page.main()


if __name__ == "__main__":
    main()
