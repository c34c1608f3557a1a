"""Which words of a sentence and its translation mean the same.

`aligner` finds links between words, by the `models`; `links` makes one of two
directions and reads and writes files of links; `parallel` cuts sentences into words.
"""

from polyglance.text.alignment.aligner import (
    NULL,
    AlignerSettings,
    Alignment,
    TranslationTable,
    align,
)

__all__ = ["NULL", "AlignerSettings", "Alignment", "TranslationTable", "align"]
