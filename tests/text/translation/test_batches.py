"""The cache and what goes through it: real files, several processes, a kill."""

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

from polyglance.errors import PolyglanceError
from polyglance.text.translation import TranslationCache, translate_all
from tiny_translators import Counting

TEXTS = [f"a dog and {'very ' * (number % 5)}number {number}" for number in range(30)]

_SLOWLY = """
import sys, time
from pathlib import Path
from polyglance.text.translation import TranslationCache, translate_all

class Slowly:
    source, target, fingerprint, name, batch = "en", "de", "counting", "slowly", 4
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


def test_batches_hold_texts_of_like_length_once_each(tmp_path: Path) -> None:
    translator = Counting()
    with TranslationCache(tmp_path / "deep" / "cache.sqlite3") as cache:
        done = translate_all(translator, [*TEXTS, *TEXTS, "", "  "], cache)
    assert done.texts == {text: Counting().translate([text])[0] for text in TEXTS}
    asked = [text for block in translator.asked for text in block]
    assert sorted(asked) == sorted(TEXTS)
    assert list(map(len, asked)) == sorted(map(len, TEXTS))
    assert max(map(len, translator.asked)) == 4


def test_what_is_known_is_not_asked_again_unless_something_differs(tmp_path: Path) -> None:
    with TranslationCache(tmp_path / "cache.sqlite3") as cache:
        translate_all(Counting(), TEXTS[:10], cache)
        again = Counting()
        done = translate_all(again, TEXTS[5:15], cache)
        assert (done.cached, sum(map(len, again.asked))) == (5, 5)
        for other in (Counting(fingerprint="x"), Counting(target="fr"), Counting(source="es")):
            assert translate_all(other, TEXTS[:3], cache).cached == 0
            assert sum(map(len, other.asked)) == 3


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    process = _start(path, 0.2)
    limit = time.monotonic() + 60
    while _rows(path) < 8:
        assert time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = _rows(path)
    assert 8 <= before < len(TEXTS)
    assert before % 4 == 0, "a batch is kept whole or not at all"
    translator = Counting()
    with TranslationCache(path) as cache:
        done = translate_all(translator, TEXTS, cache)
    assert done.cached == before
    assert sum(map(len, translator.asked)) == len(TEXTS) - before
    assert done.texts == {text: Counting().translate([text])[0] for text in TEXTS}


def test_two_runs_at_once_do_not_harm_each_other(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    runs = [_start(path, 0.01) for _ in range(2)]
    assert [run.wait(60) for run in runs] == [0, 0]
    assert _rows(path) == len(TEXTS)


def test_a_file_that_another_run_is_just_beginning_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite3"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE something (id INTEGER)")
    timer = threading.Timer(0.2, other.execute, ("COMMIT",))
    timer.start()
    with TranslationCache(path) as cache:
        assert cache.found(Counting(), TEXTS) == {}
    timer.join()
    other.close()


def test_what_cannot_be_translated_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    translator = Counting(hates=frozenset({TEXTS[7]}))
    with TranslationCache(tmp_path / "cache.sqlite3") as cache:
        done = translate_all(translator, TEXTS, cache)
        assert done.failed == {TEXTS[7]: f"cannot say {TEXTS[7]!r}"}
        assert len(done.texts) == len(TEXTS) - 1
        assert translate_all(Counting(), TEXTS, cache).cached == len(TEXTS) - 1
        with pytest.raises(PolyglanceError, match="cannot say"):
            translate_all(Counting(fingerprint="mute", hates=frozenset(TEXTS)), TEXTS, cache)


def test_a_file_that_is_no_cache_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("something else, and long enough to be read" * 50)
    with pytest.raises(PolyglanceError, match=r"does not serve as a cache .* --cache"):
        TranslationCache(tmp_path / "cache")
