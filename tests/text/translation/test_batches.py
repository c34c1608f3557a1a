"""Batched translation through the cache: real files, several processes, a killed run."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from helpers.translators import CountingTranslator
from polyglance.errors import PolyglanceError
from polyglance.text.translation import TranslationCache, translate_all

TEXTS = [f"a dog and {'very ' * (number % 5)}number {number}" for number in range(30)]

_SLOWLY = """
import sys, time
from pathlib import Path
from polyglance.text.translation import TranslationCache, translate_all

class Slowly:
    source, target, fingerprint, name, batch_size = "en", "de", "counting", "slowly", 4
    def translate(self, texts):
        time.sleep(float(sys.argv[2]))
        return [" ".join(f"{word}de" for word in text.split()) for text in texts]

texts = sys.stdin.read().split("\\n")
with TranslationCache(Path(sys.argv[1])) as cache:
    translate_all(Slowly(), texts, cache)
"""


def _start(path: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _SLOWLY, str(path), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
    assert process.stdin
    process.stdin.write("\n".join(TEXTS))
    process.stdin.close()
    return process


def _rows(path: Path) -> int:
    try:
        with sqlite3.connect(path) as file:
            return int(file.execute("SELECT count(*) FROM translations").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_texts_are_batched_by_length_without_duplicates(tmp_path: Path) -> None:
    translator = CountingTranslator()
    with TranslationCache(tmp_path / "deep" / "cache.sqlite3") as cache:
        done = translate_all(translator, [*TEXTS, *TEXTS, "", "  "], cache)
    assert done.texts == {text: CountingTranslator().translate([text])[0] for text in TEXTS}
    requests = [text for block in translator.requests for text in block]
    assert sorted(requests) == sorted(TEXTS)
    assert list(map(len, requests)) == sorted(map(len, TEXTS))
    assert max(map(len, translator.requests)) == 4


def test_cached_texts_are_not_translated_again_by_the_same_translator(tmp_path: Path) -> None:
    with TranslationCache(tmp_path / "cache.sqlite3") as cache:
        translate_all(CountingTranslator(), TEXTS[:10], cache)
        again = CountingTranslator()
        done = translate_all(again, TEXTS[5:15], cache)
        assert (done.num_cached, sum(map(len, again.requests))) == (5, 5)
        for other in (
            CountingTranslator(fingerprint="x"),
            CountingTranslator(target="fr"),
            CountingTranslator(source="es"),
        ):
            assert translate_all(other, TEXTS[:3], cache).num_cached == 0
            assert sum(map(len, other.requests)) == 3


def test_a_killed_run_resumes_after_its_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    process = _start(path, 0.2)
    while _rows(path) < 8:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = _rows(path)
    assert 8 <= before < len(TEXTS)
    assert before % 4 == 0, "a batch is stored whole or not at all"
    translator = CountingTranslator()
    with TranslationCache(path) as cache:
        done = translate_all(translator, TEXTS, cache)
    assert done.num_cached == before
    assert sum(map(len, translator.requests)) == len(TEXTS) - before
    assert done.texts == {text: CountingTranslator().translate([text])[0] for text in TEXTS}


def test_two_runs_can_share_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    runs = [_start(path, 0.01) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert _rows(path) == len(TEXTS)


def test_a_cache_locked_by_another_run_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE something (id INTEGER)")
    timer = threading.Timer(0.2, other.execute, ("COMMIT",))
    timer.start()
    with TranslationCache(path) as cache:
        assert cache.lookup(CountingTranslator(), TEXTS) == {}
    timer.join()
    other.close()


def test_failed_texts_are_reported_and_the_rest_is_translated(tmp_path: Path) -> None:
    translator = CountingTranslator(untranslatable=frozenset({TEXTS[7]}))
    with TranslationCache(tmp_path / "cache.sqlite3") as cache:
        done = translate_all(translator, TEXTS, cache)
        assert done.failed == {TEXTS[7]: f"cannot translate {TEXTS[7]!r}"}
        assert len(done.texts) == len(TEXTS) - 1
        assert translate_all(CountingTranslator(), TEXTS, cache).num_cached == len(TEXTS) - 1
        with pytest.raises(PolyglanceError, match="cannot translate"):
            translate_all(
                CountingTranslator(fingerprint="mute", untranslatable=frozenset(TEXTS)),
                TEXTS,
                cache,
            )


def test_a_file_that_is_not_a_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("something else, and long enough to be read" * 50)
    with pytest.raises(PolyglanceError, match=r"cannot be used as a translation cache .* --cache"):
        TranslationCache(tmp_path / "cache")
