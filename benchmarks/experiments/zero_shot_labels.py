"""Fit and measure zero-shot labels (`polyglance classify`) on COCO's 80 classes.

Pictures of COCO that the default model was not trained on and that show one class. Each is
sorted by 2 to 16 classes, once with its own among them and once without, when "none of these" is
right; labels in English, German, Russian and Chinese.

    python -m benchmarks.experiments.zero_shot_labels --held-out DATA/coco/held-out/labels.jsonl

The pictures are those that `polyglance data hold-out` kept out of the default model's training.
Writes results/zero_shot_labels.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import polyglance
from benchmarks.results_io import write_results
from polyglance.search import classification
from polyglance.search.classification import (
    COMMON_THINGS,
    TEMPLATES,
    label_probabilities,
    label_vectors,
)

NUM_PICTURES = 500
COUNTS = (2, 3, 5, 8, 16)
"""Numbers of labels."""


def _labels(text: str) -> tuple[str, ...]:
    return tuple(text.strip().split(", "))


LABELS = {
    "en": _labels(
        "airplane, apple, backpack, banana, baseball bat, baseball glove, bear, bed, bench, "
        "bicycle, bird, boat, book, bottle, bowl, broccoli, bus, cake, car, carrot, cat, cell "
        "phone, chair, clock, couch, cow, cup, dining table, dog, donut, elephant, fire "
        "hydrant, fork, frisbee, giraffe, hair drier, handbag, horse, hot dog, keyboard, kite, "
        "knife, laptop, microwave, motorcycle, mouse, orange, oven, parking meter, person, "
        "pizza, potted plant, refrigerator, remote, sandwich, scissors, sheep, sink, "
        "skateboard, skis, snowboard, spoon, sports ball, stop sign, suitcase, surfboard, teddy "
        "bear, tennis racket, tie, toaster, toilet, toothbrush, traffic light, train, truck, "
        "tv, umbrella, vase, wine glass, zebra"
    ),
    "de": _labels(
        "Flugzeug, Apfel, Rucksack, Banane, Baseballschläger, Baseballhandschuh, Bär, Bett, "
        "Bank, Fahrrad, Vogel, Boot, Buch, Flasche, Schüssel, Brokkoli, Bus, Kuchen, Auto, "
        "Karotte, Katze, Handy, Stuhl, Uhr, Sofa, Kuh, Tasse, Esstisch, Hund, Donut, Elefant, "
        "Hydrant, Gabel, Frisbee, Giraffe, Föhn, Handtasche, Pferd, Hotdog, Tastatur, Drachen, "
        "Messer, Laptop, Mikrowelle, Motorrad, Maus, Orange, Ofen, Parkuhr, Person, Pizza, "
        "Topfpflanze, Kühlschrank, Fernbedienung, Sandwich, Schere, Schaf, Waschbecken, "
        "Skateboard, Ski, Snowboard, Löffel, Ball, Stoppschild, Koffer, Surfbrett, Teddybär, "
        "Tennisschläger, Krawatte, Toaster, Toilette, Zahnbürste, Ampel, Zug, Lastwagen, "
        "Fernseher, Regenschirm, Vase, Weinglas, Zebra"
    ),
    "ru": _labels(
        "самолёт, яблоко, рюкзак, банан, бейсбольная бита, бейсбольная перчатка, медведь, "
        "кровать, скамейка, велосипед, птица, лодка, книга, бутылка, миска, брокколи, автобус, "
        "торт, машина, морковь, кошка, мобильный телефон, стул, часы, диван, корова, чашка, "
        "обеденный стол, собака, пончик, слон, пожарный гидрант, вилка, фрисби, жираф, фен, "
        "сумка, лошадь, хот-дог, клавиатура, воздушный змей, нож, ноутбук, микроволновка, "
        "мотоцикл, мышь, апельсин, духовка, паркомат, человек, пицца, растение в горшке, "
        "холодильник, пульт, бутерброд, ножницы, овца, раковина, скейтборд, лыжи, сноуборд, "
        "ложка, мяч, знак стоп, чемодан, доска для сёрфинга, плюшевый мишка, теннисная ракетка, "
        "галстук, тостер, унитаз, зубная щётка, светофор, поезд, грузовик, телевизор, зонт, "
        "ваза, бокал, зебра"
    ),
    "zh": _labels(
        "飞机, 苹果, 背包, 香蕉, 棒球棒, 棒球手套, 熊, 床, 长椅, 自行车, "
        "鸟, 船, 书, 瓶子, 碗, 西兰花, 公共汽车, 蛋糕, 汽车, 胡萝卜, 猫, "
        "手机, 椅子, 时钟, 沙发, 牛, 杯子, 餐桌, 狗, 甜甜圈, 大象, "
        "消防栓, 叉子, 飞盘, 长颈鹿, 吹风机, 手提包, 马, 热狗, 键盘, 风筝, "
        "刀, 笔记本电脑, 微波炉, 摩托车, 鼠标, 橙子, 烤箱, 停车收费表, 人, "
        "披萨, 盆栽, 冰箱, 遥控器, 三明治, 剪刀, 羊, 水槽, 滑板, 滑雪板, "
        "单板滑雪, 勺子, 球, 停车标志, 行李箱, 冲浪板, 泰迪熊, 网球拍, 领带, "
        "烤面包机, 马桶, 牙刷, 红绿灯, 火车, 卡车, 电视, 雨伞, 花瓶, 酒杯, "
        "斑马"
    ),
}  # fmt: skip
"""COCO's classes, in the same order in each language."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", type=Path, required=True, help="manifest with labels")
    options = parser.parse_args()
    pictures = dict(labelled_pictures(options.held_out))
    encoder = polyglance.load()
    vectors = encoder.encode_pictures(list(pictures))
    true = np.array([LABELS["en"].index(label) for label in pictures.values()])
    things = vectors @ label_vectors(encoder, COMMON_THINGS, TEMPLATES).T
    report: dict[str, object] = {"pictures": len(pictures), "labels": len(LABELS["en"])}
    for code, labels in LABELS.items():
        cosines = vectors @ label_vectors(encoder, labels, TEMPLATES).T
        report[code] = {
            "of_80": round(float((cosines.argmax(1) == true).mean()), 4),
            **measure(cosines, things, true),
        }
        print(code, report[code])
    write_results("zero_shot_labels", report)


def labelled_pictures(manifest: Path) -> Iterator[tuple[Path, str]]:
    """Yield the first pictures of a manifest that show one class, and it."""
    with manifest.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    single = [record for record in records if len(record["labels"]) == 1]
    for record in single[:NUM_PICTURES]:
        yield manifest.parent / record["image"], record["labels"][0]


def measure(
    cosines: NDArray[np.float32], things: NDArray[np.float32], true: NDArray[np.intp]
) -> dict[str, float]:
    """Return how often the right label, or none of these, is the most probable.

    Args:
        cosines: Of pictures with all labels, ``[pictures, 80]``.
        things: Of pictures with `COMMON_THINGS`.
        true: The label of each picture.
    """
    probabilities, right = _decide(cosines, things, true)
    sure = probabilities >= 0.9
    report = {
        "right": round(float(right.mean()), 4),
        "sure": round(float(sure.mean()), 4),
        "right_if_sure": round(float(right[sure].mean()), 4),
    }
    best, fitted = _fit(cosines, things, true)
    return {**report, "best_sharpness": best[0], "best_none": best[1], "right_if_fitted": fitted}


def _fit(
    cosines: NDArray[np.float32], things: NDArray[np.float32], true: NDArray[np.intp]
) -> tuple[tuple[float, float], float]:
    """Return the constants with the highest likelihood, and how often they are right."""
    chosen = (classification.SHARPNESS, classification.NONE_DEVIATIONS)
    found: list[tuple[float, tuple[float, float], float]] = []
    for sharpness in (1.5, 2.0, 2.5, 3.0):
        for none in (1.6, 1.8, 2.0, 2.2, 2.4, 2.6):
            classification.SHARPNESS, classification.NONE_DEVIATIONS = sharpness, none
            likelihood, right = _likelihood(cosines, things, true)
            found.append((likelihood, (sharpness, none), right))
    classification.SHARPNESS, classification.NONE_DEVIATIONS = chosen
    _, constants, right = max(found)
    return constants, round(right, 4)


def _likelihood(
    cosines: NDArray[np.float32], things: NDArray[np.float32], true: NDArray[np.intp]
) -> tuple[float, float]:
    logs, rights = [], []
    for shares, answer in _sorted(cosines, things, true):
        logs.append(np.log(np.maximum(shares[np.arange(len(shares)), answer], 1e-9)))
        rights.append(shares.argmax(1) == answer)
    return float(np.concatenate(logs).mean()), float(np.concatenate(rights).mean())


def _decide(
    cosines: NDArray[np.float32], things: NDArray[np.float32], true: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    tops, rights = [], []
    for shares, answer in _sorted(cosines, things, true):
        tops.append(shares.max(1))
        rights.append(shares.argmax(1) == answer)
    return np.concatenate(tops), np.concatenate(rights)


def _sorted(
    cosines: NDArray[np.float32], things: NDArray[np.float32], true: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.intp]]]:
    """Yield probabilities, ``[pictures, labels + 1]``, and the place of the right one in each."""
    rng = np.random.default_rng(0)
    rows = np.arange(len(true))[:, None]
    for count in COUNTS:
        draws = rng.random(cosines.shape)
        draws[rows[:, 0], true] = 2.0  # last: not among the first ``count``
        others = np.argsort(draws, axis=1)[:, :count]
        for present in (False, True):
            picked = others.copy()
            if present:
                picked[:, -1] = true
            shares = label_probabilities(np.hstack([cosines[rows, picked], things]), count)
            yield shares, np.full(len(true), count - 1 if present else count)


if __name__ == "__main__":
    main()
