"""Japanese words in kana, as children and hurried people type them, in their usual characters.

ねこ and ネコ are 猫. The table has words for what pictures show. A run of kana is converted only if
it is made of such words and particles and nothing else: い and ぬ are also parts of other words.
"""

from __future__ import annotations

import re
from functools import cache

_TABLE = """
ひと 人 ひとびと 人々 こども 子供 おとこ 男 おんな 女 おとこのこ 男の子 おんなのこ 女の子
あかちゃん 赤ちゃん かぞく 家族 ともだち 友達 おとうさん お父さん おかあさん お母さん
おじいさん お爺さん おばあさん お婆さん いぬ 犬 こいぬ 子犬 ねこ 猫 こねこ 子猫 うま 馬 うし 牛
ひつじ 羊 やぎ 山羊 ぶた 豚 とり 鳥 ことり 小鳥 さかな 魚 ぞう 象 くま 熊 きりん キリン
しまうま シマウマ うさぎ 兎 さる 猿 きつね 狐 しか 鹿 とら 虎 らいおん ライオン へび 蛇 かめ 亀
かえる 蛙 むし 虫 ちょう 蝶 はち 蜂 にわとり 鶏 あひる アヒル かも 鴨 ねずみ 鼠 りす リス
くるま 車 じどうしゃ 自動車 じてんしゃ 自転車 でんしゃ 電車 れっしゃ 列車 ひこうき 飛行機 ふね 船
ばす バス しんごう 信号 しんごうき 信号機 しょうかせん 消火栓 みち 道 はし 橋 えき 駅 まち 町
いえ 家 へや 部屋 まど 窓 かさ 傘 かばん 鞄 ぼうし 帽子 くつ 靴 ふく 服 きもの 着物 めがね 眼鏡
とけい 時計 でんわ 電話 けいたいでんわ 携帯電話 ほん 本 しんぶん 新聞 いす 椅子 つくえ 机
しょくたく 食卓 れいぞうこ 冷蔵庫 ながしだい 流し台 かびん 花瓶 びん 瓶 はぶらし 歯ブラシ たこ 凧
やきゅう 野球 たま 球 さら 皿 ほうちょう 包丁 かがみ 鏡 ごはん ご飯 りょうり 料理 やさい 野菜
くだもの 果物 たまご 卵 にく 肉 すし 寿司 ぱん パン けーき ケーキ おちゃ お茶 さけ 酒 みず 水
ぎゅうにゅう 牛乳 うみ 海 うみべ 海辺 すなはま 砂浜 はまべ 浜辺 なみ 波 かわ 川 みずうみ 湖
いけ 池 たき 滝 しま 島 やま 山 もり 森 き 木 はな 花 くさ 草 しばふ 芝生 は 葉 さくら 桜
もみじ 紅葉 そら 空 くも 雲 あめ 雨 ゆき 雪 たいよう 太陽 つき 月 ほし 星 ゆうひ 夕日
ゆうやけ 夕焼け にじ 虹 よる 夜 あさ 朝 はる 春 なつ 夏 あき 秋 ふゆ 冬 はなび 花火 こうえん 公園
がっこう 学校 てら 寺 じんじゃ 神社 しろ 城 いわ 岩 いし 石 すな 砂 ひ 火 はた 旗 あか 赤 あお 青
くろ 黒 きいろ 黄色 みどり 緑 ちゃいろ 茶色 あかい 赤い あおい 青い しろい 白い くろい 黒い
おおきい 大きい ちいさい 小さい ふるい 古い あたらしい 新しい はしる 走る はしっている 走っている
あるく 歩く あるいている 歩いている およぐ 泳ぐ およいでいる 泳いでいる とぶ 飛ぶ
とんでいる 飛んでいる すわっている 座っている たっている 立っている ねている 寝ている
たべる 食べる たべている 食べている あそぶ 遊ぶ あそんでいる 遊んでいる のっている 乗っている
よむ 読む
"""
_PARTICLES = ("の", "と", "が", "を", "に", "で", "は", "も", "や", "へ", "から", "まで", "な")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc]+")
_MIN_ALONE = 2
"""Kana of the shortest word that is converted beside others: き may be a part of a word."""


def to_kanji(text: str) -> str:
    """Return a text with words in kana written in their usual characters."""
    return _KANA.sub(lambda run: _convert(run[0]), text)


@cache
def readings() -> dict[str, str]:
    """Return the usual characters of words by their hiragana."""
    parts = _TABLE.split()
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _convert(run: str) -> str:
    """Convert a run of kana that is made of known words and particles; else return it as it is."""
    hiragana = "".join(chr(ord(c) - 0x60) if "\u30a1" <= c <= "\u30f6" else c for c in run)
    words = readings()
    if hiragana in words:
        return words[hiragana]
    # The fewest parts that make up the whole run; after a word a particle may follow.
    best: list[tuple[int, str] | None] = [(0, ""), *[None] * len(run)]
    for end in range(1, len(run) + 1):
        for start in range(end):
            before, part = best[start], hiragana[start:end]
            if before is None:
                continue
            if len(part) >= _MIN_ALONE and part in words:
                found = (before[0] + 1, before[1] + words[part])
            elif part in _PARTICLES and start:
                found = (before[0] + 1, before[1] + part)
            else:
                continue
            known = best[end]
            if known is None or found[0] < known[0]:
                best[end] = found
    whole = best[-1]
    return run if whole is None else whole[1]
