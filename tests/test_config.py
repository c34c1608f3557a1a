"""Settings: round trips, defaults, overrides, YAML 1.1 pitfalls, and errors with their location."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from polyglance.config import as_plain, dump, load
from polyglance.errors import PolyglanceError


@dataclass(frozen=True)
class Constant:
    kind: Literal["constant"] = "constant"
    rate: float = 1e-3


@dataclass(frozen=True)
class Warmup:
    kind: Literal["warmup"] = "warmup"
    rate: float = 1e-3
    steps: int = 100


@dataclass(frozen=True)
class Training:
    steps: int = 1000
    rate: float = 1e-4
    clip: float | None = None
    languages: tuple[str, ...] = ("en",)
    betas: tuple[float, float] = (0.9, 0.98)
    precision: Literal["fp32", "bf16"] | int = "fp32"
    schedule: Constant | Warmup = Constant()
    shuffle: bool = True


@dataclass(frozen=True)
class Recipe:
    name: str
    out: Path = Path("runs")
    start_from: Path | None = None
    training: Training = Training(steps=5)
    weights: Mapping[str, float] = field(default_factory=lambda: {"itm": 9.0})
    splits: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    notes: str | None = None

    def __post_init__(self) -> None:
        if self.training.steps < 0:
            raise ValueError("steps must not be negative")


def written(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


names = st.text(min_size=1, max_size=12) | st.sampled_from(
    [
        "no",
        "on",
        "Yes",
        "null",
        "~",
        "1e-4",
        "010",
        "1_000",
        "1:30",
        "2024-01-01",
        "0x1f",
        ".nan",
        "\x85",
    ]
)
numbers = st.floats(allow_nan=False)
paths = st.text("abc/ .-é", min_size=1, max_size=10).map(Path)
schedules = st.builds(Constant, rate=numbers) | st.builds(Warmup, rate=numbers, steps=st.integers())
trainings = st.builds(
    Training,
    steps=st.integers(0, 10**9),
    rate=numbers,
    clip=st.none() | numbers,
    languages=st.lists(names, max_size=4).map(tuple),
    betas=st.tuples(numbers, numbers),
    precision=st.sampled_from(["fp32", "bf16"]) | st.integers(),
    schedule=schedules,
    shuffle=st.booleans(),
)
recipes = st.builds(
    Recipe,
    name=names,
    out=paths,
    start_from=st.none() | paths,
    training=trainings,
    weights=st.dictionaries(names, numbers, max_size=3),
    splits=st.dictionaries(names, st.lists(paths, max_size=2).map(tuple), max_size=2),
    notes=st.none() | st.text(),
)


@dataclass(frozen=True)
class Choice:
    value: int | float | str | None
    folder: Path | Literal[False] = False


class TestUnions:
    @pytest.mark.parametrize("value", [1, 1.0, 1e300, "1", "1e-4", "x", None])
    def test_keep_a_value_that_fits_exactly(self, value):
        for source in ({"value": value}, yaml.safe_load(dump(Choice(value)))):
            found = load(Choice, source).value
            assert (type(found), found) == (type(value), value)

    def test_convert_text_to_a_path(self):
        assert load(Choice, {"value": 1, "folder": "x"}).folder == Path("x")
        assert load(Choice, {"value": 1, "folder": False}).folder is False

    def test_take_the_dataclass_that_fits(self):
        found = load(Training, {"schedule": {"kind": "warmup", "rate": 1}}).schedule
        assert found == Warmup(rate=1.0)


class TestRoundTrip:
    @settings(max_examples=150, deadline=None)
    @given(recipes)
    def test_through_yaml(self, tmp_path_factory, recipe):
        path = tmp_path_factory.getbasetemp() / "round-trip.yaml"
        path.write_text(dump(recipe), encoding="utf-8", newline="")
        assert load(Recipe, path) == recipe

    @settings(max_examples=50, deadline=None)
    @given(recipes)
    def test_through_plain_values_and_json(self, tmp_path_factory, recipe):
        assert load(Recipe, as_plain(recipe)) == recipe
        path = tmp_path_factory.getbasetemp() / "round-trip.json"
        path.write_text(json.dumps(as_plain(recipe)), encoding="utf-8")
        assert load(Recipe, path) == recipe

    @settings(max_examples=50, deadline=None)
    @given(recipes)
    def test_yaml_1_1_readers_agree(self, recipe):
        assert yaml.safe_load(dump(recipe)) == as_plain(recipe)

    def test_not_a_number_survives(self):
        again = load(Training, yaml.safe_load(dump(Training(rate=math.nan, clip=-math.inf))))
        assert math.isnan(again.rate)
        assert again.clip == -math.inf

    def test_output_is_readable(self):
        text = dump(Training(languages=("de", "no"), schedule=Warmup(rate=1e-5)))
        assert text.splitlines() == [
            "steps: 1000",
            "rate: 0.0001",
            "clip: null",
            "languages: [de, 'no']",
            "betas: [0.9, 0.98]",
            "precision: fp32",
            "schedule:",
            "  kind: warmup",
            "  rate: 1.0e-05",
            "  steps: 100",
            "shuffle: true",
        ]


class TestDefaults:
    def test_omitted_keys_keep_their_defaults(self, tmp_path):
        recipe = load(Recipe, written(tmp_path, "name: toy\ntraining:\n  rate: 0.5\n"))
        assert recipe == Recipe("toy", training=Training(steps=5, rate=0.5))

    def test_an_empty_file_is_all_defaults(self, tmp_path):
        assert load(Training, written(tmp_path, "# nothing\n")) == Training()

    def test_values_already_typed_are_accepted(self):
        given = {"name": "toy", "out": Path("x"), "training": Training(steps=3)}
        assert load(Recipe, given) == Recipe("toy", Path("x"), training=Training(steps=3))

    def test_the_given_mapping_is_not_modified(self):
        given = {"name": "toy", "training": {"steps": 3}}
        load(Recipe, given, ["training.steps=4", "name=x"])
        assert given == {"name": "toy", "training": {"steps": 3}}


class TestYamlPitfalls:
    def test_exponents_are_numbers(self, tmp_path):
        path = written(tmp_path, "rate: 1e-4\nsteps: 1e5\nclip: 5E3\n")
        assert load(Training, path) == Training(rate=1e-4, steps=100_000, clip=5000.0)

    def test_an_exponent_left_as_text_by_another_reader_is_a_number(self):
        assert load(Training, yaml.safe_load("rate: 1e-4")).rate == 1e-4

    def test_norwegian_is_a_language(self, tmp_path):
        path = written(tmp_path, "name: x\ntraining: {languages: [no, on, y]}\nweights: {no: 1}\n")
        recipe = load(Recipe, path)
        assert recipe.training.languages == ("no", "on", "y")
        assert recipe.weights == {"no": 1.0}

    def test_yes_is_not_true(self, tmp_path):
        with pytest.raises(
            PolyglanceError, match="shuffle: expected true or false, found the text"
        ):
            load(Training, written(tmp_path, "shuffle: yes\n"))

    def test_times_and_dates_stay_text(self, tmp_path):
        path = written(tmp_path, "languages: [1:30, 2024-01-01, =, <<]\n")
        assert load(Training, path).languages == ("1:30", "2024-01-01", "=", "<<")

    def test_whole_numbers(self, tmp_path):
        for text, value in {"010": 10, "0o10": 8, "0x10": 16, "1_000": 1000, "+7": 7}.items():
            assert load(Training, written(tmp_path, f"steps: {text}")).steps == value

    def test_norwegian_lost_by_another_reader_is_explained(self):
        with pytest.raises(PolyglanceError, match="found false; for text, add quotes"):
            load(Training, yaml.safe_load("languages: [no]"))

    def test_a_key_given_twice_is_an_error(self, tmp_path):
        with pytest.raises(PolyglanceError, match=r"recipe.yaml:1: .*given twice"):
            load(Training, written(tmp_path, "steps: 1\nsteps: 2\n"))


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("steps=10", Training(steps=10)),
            (" steps = 10 ", Training(steps=10)),
            ("rate=1e-4", Training(rate=1e-4)),
            ("clip=null", Training()),
            ("languages=[no, de]", Training(languages=("no", "de"))),
            ("betas=[1, 0.5]", Training(betas=(1.0, 0.5))),
            ("precision=16", Training(precision=16)),
            ("precision=bf16", Training(precision="bf16")),
            ("schedule.rate=2", Training(schedule=Constant(rate=2.0))),
            ("schedule={kind: warmup, steps: 7}", Training(schedule=Warmup(steps=7))),
        ],
    )
    def test_take_the_type_of_their_field(self, text, expected):
        assert load(Training, {}, [text]) == expected

    @pytest.mark.parametrize("text", ["123", "1e-4", "null", "true", "a: b: c", "[x", "a=b", ""])
    def test_text_needs_no_quotes(self, text):
        assert load(Recipe, {}, [f"name={text}"]).name == text

    def test_later_overrides_win_over_earlier_ones_and_files(self, tmp_path):
        path = written(tmp_path, "name: a\ntraining: {steps: 1, rate: 2}\n")
        recipe = load(Recipe, path, ["training.steps=3", "training.steps=4", "weights.vtlm=1"])
        assert recipe.training == Training(steps=4, rate=2.0)
        assert recipe.weights == {"itm": 9.0, "vtlm": 1.0}

    def test_keep_the_defaults_around_them(self):
        recipe = load(Recipe, {"name": "a"}, ["training.rate=1"])
        assert recipe.training == Training(steps=5, rate=1.0)

    def test_reach_entries_of_a_list_by_their_number(self):
        plain = {"name": "a", "splits": {"train": ["a", "b"]}}
        recipe = load(Recipe, plain, ["splits.train.1=c", "training.languages.0=no"])
        assert recipe.splits == {"train": (Path("a"), Path("c"))}
        assert recipe.training.languages == ("no",)
        assert plain["splits"] == {"train": ["a", "b"]}

    def test_supply_what_is_required(self):
        assert load(Recipe, {}, ["name=toy"]).name == "toy"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "training.setps=1",
                "override 'training.setps=1': training.setps: is not a known setting; "
                "did you mean training.steps?",
            ),
            (
                "training.steps=many",
                "override 'training.steps=many': training.steps: expected a whole number, "
                "found the text 'many'",
            ),
            ("training.steps", "expected key=value"),
            ("=3", "expected key=value"),
            ("training..steps=3", "expected key=value"),
            ("training.steps.x=3", "training.steps is a whole number, with no settings inside"),
            (
                "training.languages.2=de",
                "languages.2: is not a number of an entry; the list has 0 to 0",
            ),
            ("splits.train.0=a", "splits.train.0: is not a number of an entry; the list has none"),
        ],
    )
    def test_mistakes_name_the_override(self, text, message):
        with pytest.raises(PolyglanceError) as error:
            load(Recipe, {"name": "a"}, [text])
        assert message in str(error.value)


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "training: {setps: 1}",
                "training.setps: is not a known setting; did you mean training.steps?",
            ),
            ("zzz: 1", "zzz: is not a known setting; known here: name, out, start_from, training"),
            ("training: {schedule: {kind: warmup, sreps: 2}}", "did you mean training.schedule.st"),
            (
                "training: {steps: ten}",
                "training.steps: expected a whole number, found the text 't",
            ),
            (
                "training: {steps: 1.5}",
                "training.steps: expected a whole number, found the number 1",
            ),
            ("training: {steps: true}", "training.steps: expected a whole number, found true"),
            ("training: {rate: [1]}", "training.rate: expected a number, found a list"),
            ("training: {clip: x}", "training.clip: expected a number or null, found the text 'x'"),
            ("training: {languages: de}", "expected a list (each text), found the text 'de'"),
            (
                "training: {languages: [de, 3]}",
                "training.languages.1: expected text, found the num",
            ),
            ("training: {betas: [1]}", "expected a list of 2 (a number, a number), found 1 values"),
            ("training: {precision: fp8}", "expected the text 'fp32' or 'bf16' or a whole number,"),
            ("training: 3", "training: expected a mapping with some of steps, rate"),
            (
                "name: 3",
                "name: expected text, found the number 3; for text, add quot",
            ),
            ("name: ", "name: expected text, found null"),
            ("weights: {a: b}", "weights.a: expected a number, found the text 'b'"),
            ("weights: {3: 1}", "weights.3: expected text, found the number 3"),
            ("out: x", "name: is missing; it must be text"),
            ("name: x\ntraining: {steps: -1}", "steps must not be negative"),
            ("- name", "expected a mapping with some of name"),
            ("name: [", "not valid YAML"),
            ("name: !!python/object:os.system x", "not valid YAML"),
            ("name: !!int x", "not valid YAML"),
            ("name: !!timestamp x", "not valid YAML"),
            ("name: !!float ''", "not valid YAML"),
            ("? [a]\n: 3", "not valid YAML"),
            ("name: " + "[" * 400, "not valid YAML"),
        ],
    )
    def test_are_one_sentence_with_file_and_location(self, tmp_path, text, message):
        path = written(tmp_path, text)
        with pytest.raises(PolyglanceError) as error:
            load(Recipe, path)
        assert str(error.value).startswith(str(path))
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    def test_a_mapping_has_a_location_too(self):
        with pytest.raises(PolyglanceError, match=r"^training\.setps: is not a known setting"):
            load(Recipe, {"training": {"setps": 1}})

    def test_files_that_cannot_be_read(self, tmp_path):
        with pytest.raises(PolyglanceError, match="No such file"):
            load(Recipe, tmp_path / "missing.yaml")
        (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
        with pytest.raises(PolyglanceError, match="not UTF-8"):
            load(Recipe, tmp_path / "latin.yaml")
        with pytest.raises(PolyglanceError, match="not valid JSON"):
            load(Recipe, written(tmp_path, "{", "broken.json"))

    @settings(max_examples=150, deadline=None)
    @given(
        st.text(alphabet="name:steps traig[]{}-!&*#|>'\"%@,?\n\t\\0123.e~é\x00", max_size=60),
        st.lists(st.text(alphabet="name.steps=[]{}:!&* 1e-", max_size=12), max_size=2),
    )
    def test_mangled_input_raises_nothing_else(self, tmp_path_factory, text, overrides):
        path = tmp_path_factory.getbasetemp() / "mangled.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            loaded = load(Recipe, path, overrides)
        except PolyglanceError:
            return
        assert load(Recipe, as_plain(loaded)) == loaded


def test_importing_settings_does_not_import_yaml():
    script = "import sys, polyglance.config; assert 'yaml' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
