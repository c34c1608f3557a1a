"""Word alignment: which words of a sentence and its translation correspond.

`aligner` finds the links, with the `models`; `links` symmetrises two directions and
reads and writes link files; `parallel` splits parallel sentences into words.
"""

from polyglance.text.alignment.aligner import (
    NULL,
    AlignerSettings,
    Alignment,
    TranslationTable,
    align,
)

__all__ = ["NULL", "AlignerSettings", "Alignment", "TranslationTable", "align"]
