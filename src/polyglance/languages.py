"""Language codes and names: one code per language, however a dataset writes it.

The code is ISO 639-1 where there is one ("de"), else ISO 639-3 ("yue"). Regions and
scripts are dropped: "pt-BR" is "pt" and "zh-Hant" is "zh".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from polyglance.errors import PolyglanceError


@dataclass(frozen=True, slots=True)
class Language:
    """A language: its code, its names, and how it is written."""

    code: str
    english_name: str
    native_name: str
    right_to_left: bool
    spaceless: bool
    """Written without spaces between words."""


def normalise_language(code: str) -> str:
    """Return Polyglance's code of a language.

    Accepts ISO 639-1, 639-2 and 639-3 codes, common mistakes ("cz", "jp"), tags with a
    region or script, and names of languages. A well-formed code that is not in the table
    is returned in lower case; anything else raises a `ValueError` that says what was
    expected.
    """
    tag = code.strip().replace("_", "-").lower()
    if (known := _CODES.get(tag)) is not None:
        return known
    if not _WELL_FORMED.fullmatch(tag):
        raise ValueError(f"a language code such as 'de' or 'yue', not {code[:20]!r}")
    language = tag.split("-", 1)[0]
    return _CODES.get(language, language)


def check_language(code: str) -> str:
    """Return `normalise_language` of a user's code; a wrong one is a `PolyglanceError`."""
    try:
        return normalise_language(code)
    except ValueError as error:
        raise PolyglanceError(
            f"{code[:20]!r} is no language: give its name or a code such as de"
        ) from error


def is_language_code(code: str) -> bool:
    """Return whether this exact text is a code in the table."""
    return len(code) <= 3 and code.isascii() and code in _CODES


def get_language(code: str) -> Language:
    """Return a language's names and properties; the code replaces unknown names."""
    code = normalise_language(code)
    english, native = _NAMES.get(code, (code, code))
    return Language(code, english, native, code in _RIGHT_TO_LEFT, code in _SPACELESS)


def is_right_to_left(code: str) -> bool:
    """Return whether the language is written from right to left."""
    return normalise_language(code) in _RIGHT_TO_LEFT


def is_spaceless(code: str) -> bool:
    """Return whether the language is written without spaces between words."""
    return normalise_language(code) in _SPACELESS


def known_languages() -> list[Language]:
    """Return the languages that have a name here, by code; other well-formed codes work too."""
    return [get_language(code) for code in _NAMES]


_WELL_FORMED = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")

# Code, other codes, English name, native name of common languages. A macrolanguage includes
# its main member (cmn for zh, pes for fa); other members keep their own codes.
_TABLE = """
aa aar | Afar
ab abk | Abkhazian
ae ave | Avestan
af afr | Afrikaans | Afrikaans
ak aka | Akan
am amh | Amharic | አማርኛ
an arg | Aragonese
ang | Old English
ar ara arb | Arabic | العربية
arq | Algerian Arabic
ary | Moroccan Arabic
arz | Egyptian Arabic
as asm | Assamese | অসমীয়া
ast | Asturian | asturianu
av ava | Avaric
awa | Awadhi
ay aym ayr | Aymara
az aze azj | Azerbaijani | azərbaycanca
azb | South Azerbaijani
ba bak | Bashkir
be bel | Belarusian | беларуская
ber | Berber
bg bul | Bulgarian | български
bi bis | Bislama
bm bam | Bambara
bn ben | Bengali | বাংলা
bo bod tib | Tibetan | བོད་སྐད
br bre | Breton | brezhoneg
bs bos | Bosnian | bosanski
ca cat | Catalan | català
cbk | Chavacano
ce che | Chechen
ceb | Cebuano
ch cha | Chamorro
ckb | Central Kurdish | کوردیی ناوەندی
co cos | Corsican
cr cre | Cree
cs ces cze cz | Czech | čeština
csb | Kashubian
cu chu | Church Slavonic
cv chv | Chuvash
cy cym wel | Welsh | Cymraeg
da dan dk | Danish | dansk
de deu ger | German | Deutsch
dsb | Lower Sorbian
dtp kzj | Kadazan Dusun
dv div | Divehi | ދިވެހި
dz dzo | Dzongkha | རྫོང་ཁ
ee ewe | Ewe
el ell gre gr | Greek | ελληνικά
en eng | English | English
eo epo | Esperanto | esperanto
es spa | Spanish | español
et est ekk | Estonian | eesti
eu eus baq | Basque | euskara
fa fas per pes | Persian | فارسی
ff ful fuv | Fula
fi fin | Finnish | suomi
fj fij | Fijian
fo fao | Faroese | føroyskt
fr fra fre | French | français
fy fry | Western Frisian | Frysk
ga gle | Irish | Gaeilge
gan | Gan Chinese
gd gla | Scottish Gaelic | Gàidhlig
gl glg | Galician | galego
gn grn gug | Guarani
gsw | Swiss German | Schwiizertüütsch
gu guj | Gujarati | ગુજરાતી
gv glv | Manx
ha hau | Hausa | Hausa
hak | Hakka Chinese
he heb iw | Hebrew | עברית
hi hin | Hindi | हिन्दी
ho hmo | Hiri Motu
hr hrv scr | Croatian | hrvatski
hsb | Upper Sorbian
ht hat | Haitian Creole
hu hun | Hungarian | magyar
hy hye arm | Armenian | հայերեն
hz her | Herero
ia ina | Interlingua
id ind in | Indonesian | Bahasa Indonesia
ie ile | Interlingue
ig ibo | Igbo | Igbo
ii iii | Nuosu
ik ipk | Inupiaq
io ido | Ido
is isl ice | Icelandic | íslenska
it ita | Italian | italiano
iu iku | Inuktitut
ja jpn jp | Japanese | 日本語
jv jav jw | Javanese | Basa Jawa
ka kat geo | Georgian | ქართული
kab | Kabyle
kau knc | Kanuri
kg kon | Kongo
ki kik | Kikuyu
kj kua | Kwanyama
kk kaz | Kazakh | қазақ тілі
kl kal | Greenlandic
km khm | Khmer | ខ្មែរ
kn kan | Kannada | ಕನ್ನಡ
ko kor kr | Korean | 한국어
ks kas | Kashmiri
ku kur kmr | Kurdish | Kurdî
kv kom kpv | Komi
kw cor | Cornish
ky kir | Kyrgyz | кыргызча
la lat | Latin | Latina
lb ltz | Luxembourgish
lfn | Lingua Franca Nova
lg lug | Ganda
li lim | Limburgish
ln lin | Lingala
lo lao | Lao | ລາວ
lt lit | Lithuanian | lietuvių
lu lub | Luba-Katanga
lv lav lvs | Latvian | latviešu
lzh | Classical Chinese
max | North Moluccan Malay
mg mlg plt | Malagasy | Malagasy
mh mah | Marshallese
mhr | Meadow Mari
mi mri mao | Maori | te reo Māori
mk mkd mac | Macedonian | македонски
ml mal | Malayalam | മലയാളം
mn mon khk | Mongolian | монгол
mr mar | Marathi | मराठी
ms msa may zsm | Malay | Bahasa Melayu
mt mlt | Maltese | Malti
my mya bur | Burmese | မြန်မာ
mzn | Mazanderani
na nau | Nauru
nan | Min Nan Chinese
nb nob | Norwegian Bokmål | norsk bokmål
nd nde | North Ndebele
nds | Low German | Plattdüütsch
ne nep npi | Nepali | नेपाली
ng ndo | Ndonga
nl nld dut | Dutch | Nederlands
nn nno | Norwegian Nynorsk | norsk nynorsk
no nor | Norwegian | norsk
nov | Novial
nr nbl | South Ndebele
nv nav | Navajo
ny nya | Chichewa
oc oci | Occitan | occitan
oj oji | Ojibwa
om orm gaz | Oromo
or ori ory | Odia | ଓଡ଼ିଆ
orv | Old East Slavic
os oss | Ossetian
pa pan | Punjabi | ਪੰਜਾਬੀ
pam | Kapampangan
pi pli | Pali
pl pol | Polish | polski
pms | Piedmontese
pnb | Western Punjabi
prs | Dari
ps pus pbt | Pashto | پښتو
pt por | Portuguese | português
qu que quy | Quechua | Runasimi
rm roh | Romansh
rn run | Rundi
ro ron rum mo mol | Romanian | română
ru rus | Russian | русский
rw kin | Kinyarwanda
sa san | Sanskrit
sc srd | Sardinian
sd snd | Sindhi | سنڌي
se sme | Northern Sami
sg sag | Sango
sh hbs | Serbo-Croatian
shn | Shan
si sin | Sinhala | සිංහල
sk slk slo | Slovak | slovenčina
sl slv | Slovenian | slovenščina
sm smo | Samoan
sn sna | Shona
so som | Somali | Soomaali
sq sqi alb als | Albanian | shqip
sr srp scc | Serbian | српски
ss ssw | Swati
st sot | Southern Sotho
su sun | Sundanese
sv swe | Swedish | svenska
sw swa swh | Swahili | Kiswahili
swg | Swabian
ta tam | Tamil | தமிழ்
te tel | Telugu | తెలుగు
tg tgk | Tajik
th tha | Thai | ไทย
ti tir | Tigrinya
tk tuk | Turkmen
tl tgl fil | Tagalog | Tagalog
tn tsn | Tswana
to ton | Tongan
tr tur | Turkish | Türkçe
ts tso | Tsonga
tt tat | Tatar | татарча
tw twi | Twi
ty tah | Tahitian
tzl | Talossan
ug uig | Uyghur | ئۇيغۇرچە
uk ukr ua | Ukrainian | українська
ur urd | Urdu | اردو
uz uzb uzn | Uzbek | oʻzbekcha
ve ven | Venda
vi vie vn | Vietnamese | Tiếng Việt
vo vol | Volapük
wa wln | Walloon
war | Waray
wo wol | Wolof
wuu | Wu Chinese | 吴语
xh xho | Xhosa | isiXhosa
yi yid ydd ji | Yiddish | ייִדיש
yo yor | Yoruba | Yorùbá
yue | Cantonese | 粵語
za zha | Zhuang
zh zho chi cmn cn | Chinese | 中文
zu zul | Zulu | isiZulu
"""

# fmt: off
_RIGHT_TO_LEFT = frozenset((
    "ar", "arq", "ary", "arz", "azb", "ckb", "dv", "fa", "he", "ks",
    "mzn", "pnb", "prs", "ps", "sd", "ug", "ur", "yi",
))
_SPACELESS = frozenset((
    "bo", "dz", "gan", "hak", "ja", "km", "lo", "lzh", "my", "shn", "th", "wuu", "yue", "zh",
))
# fmt: on

# Tags whose first part is another language, and further names.
_CODES = {
    "zh-yue": "yue",
    "zh-min-nan": "nan",
    "zh-classical": "lzh",
    "simple": "en",
    "mandarin": "zh",
    "farsi": "fa",
    "filipino": "tl",
    "castilian": "es",
}
_NAMES: dict[str, tuple[str, str]] = {}
for _line in _TABLE.strip().splitlines():
    _codes, _english, *_native = (part.strip() for part in _line.split("|"))
    _code = _codes.split()[0]
    _NAMES[_code] = (_english, _native[0] if _native else _english)
    for _other in (*_codes.split(), *(name.lower() for name in _NAMES[_code])):
        _CODES[_other] = _code
