"""The words of dates in the seven languages of the web page.

Alternatives are separated by ``|``; `polyglance.search.signals.dates` compares them without case
and accents, so that "fevrier" is "février".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DateWords:
    """How one language speaks of dates."""

    months: str
    """Twelve months, separated by ``;``."""
    seasons: str
    """Spring, summer, autumn and winter, separated by ``;``."""
    feasts: Mapping[str, str]
    """Names of the feasts of `polyglance.search.signals.calendar`."""
    units: str
    """Day, week, month, year and weekend, separated by ``;``, in all their forms."""
    today: str
    yesterday: str
    before_yesterday: str
    last_year: str
    this_year: str
    last_before: str
    """Words for "last" that precede what they qualify."""
    last_after: str
    this_before: str
    this_after: str
    ago: str
    """A pattern with ``{n}`` for a number and ``{unit}``."""
    lead: str
    """Words that may introduce a date, and that go with it."""
    of: str
    """Words that may join the parts of a date."""
    since: str
    before: str
    until: str
    """Words between two years of a range."""
    spaced: bool = True
    """Whether words are separated by spaces."""


WORDS: dict[str, DateWords] = {
    "en": DateWords(
        months="january|jan;february|feb;march|mar;april|apr;may;june|jun;july|jul;august|aug;"
        "september|sept|sep;october|oct;november|nov;december|dec",
        seasons="spring|springtime;summer|summertime;autumn|fall;winter|wintertime",
        feasts={
            "christmas": "christmas|xmas|christmas day|christmas holidays",
            "christmas_eve": "christmas eve",
            "new_years_eve": "new year's eve|new years eve|silvester",
            "new_year": "new year|new year's day|new year's|new years day",
            "easter": "easter|easter holidays|easter weekend",
            "easter_sunday": "easter sunday",
            "good_friday": "good friday",
            "pentecost": "pentecost|whitsun",
            "carnival": "carnival|mardi gras",
            "halloween": "halloween|hallowe'en",
            "valentine": "valentine's day|valentines day",
            "thanksgiving": "thanksgiving",
            "ramadan": "ramadan",
            "eid_al_fitr": "eid al-fitr|eid al fitr",
            "eid_al_adha": "eid al-adha|eid al adha",
            "chinese_new_year": "chinese new year|lunar new year",
        },
        units="day|days;week|weeks;month|months;year|years;weekend|week-end|weekends",
        today="today",
        yesterday="yesterday",
        before_yesterday="the day before yesterday|day before yesterday",
        last_year="last year",
        this_year="this year",
        last_before="last|the last|the previous|previous|past",
        last_after="",
        this_before="this",
        this_after="",
        ago="{n} {unit} ago",
        lead="in|in the|on|on the|at|during|during the|from|from the|of|over|over the|for|around",
        of="of|in|,|the|of the year",
        since="since|after",
        before="before",
        until="to|until|and|through",
    ),
    "de": DateWords(
        months="januar|jänner|jan;februar|feber|feb;märz|mär;april|apr;mai;juni|jun;juli|jul;"
        "august|aug;september|sept|sep;oktober|okt;november|nov;dezember|dez",
        seasons="frühling|frühjahr|frühlings;sommer|sommers;herbst|herbstes;winter|winters",
        feasts={
            "christmas": "weihnachten|weihnacht|weihnachtsfeiertage|weihnachtsferien",
            "christmas_eve": "heiligabend|heiliger abend|heiligen abend",
            "new_years_eve": "silvester|sylvester",
            "new_year": "neujahr|neujahrstag",
            "easter": "ostern|osterferien|osterfeiertage",
            "easter_sunday": "ostersonntag",
            "good_friday": "karfreitag",
            "pentecost": "pfingsten",
            "carnival": "karneval|fasching|fastnacht",
            "halloween": "halloween",
            "valentine": "valentinstag",
            "ramadan": "ramadan",
            "eid_al_fitr": "zuckerfest",
            "eid_al_adha": "opferfest",
            "chinese_new_year": "chinesisches neujahr|chinesisches neujahrsfest",
        },
        units="tag|tage|tagen;woche|wochen;monat|monate|monaten|monats;jahr|jahre|jahren|jahres;"
        "wochenende|wochenendes|wochenenden",
        today="heute",
        yesterday="gestern",
        before_yesterday="vorgestern",
        last_year="letztes jahr|letzten jahr|letzten jahres|vorigen jahres|vergangenes jahr|"
        "vergangenen jahr|vergangenen jahres|vorjahr|voriges jahr",
        this_year="dieses jahr|diesem jahr|dieses jahres|heuer",
        last_before="letzter|letzte|letztes|letzten|letztem|vergangene|vergangenes|vergangenen|"
        "vergangener|vorige|voriges|vorigen|voriger|den letzten|die letzte|das letzte",
        last_after="",
        this_before="dieser|diese|dieses|diesen|diesem",
        this_after="",
        ago="vor {n} {unit}",
        lead="im|in|in den|an|am|zu|zum|zur|aus|aus dem|vom|von|während|während des|über|um|"
        "im jahr|im jahre|in der",
        of="des|des jahres|im|im jahr|in|von|vom|,",
        since="seit|nach|ab",
        before="vor|bis",
        until="bis|und",
    ),
    "fr": DateWords(
        months="janvier|janv;février|févr|fév;mars;avril|avr;mai;juin;juillet|juil;août;"
        "septembre|sept;octobre|oct;novembre|nov;décembre|déc",
        seasons="printemps;été;automne;hiver",
        feasts={
            "christmas": "noël|fêtes de noël|vacances de noël",
            "christmas_eve": "réveillon de noël|veille de noël",
            "new_years_eve": "saint-sylvestre|saint sylvestre|réveillon du nouvel an",
            "new_year": "nouvel an|jour de l'an",
            "easter": "pâques|vacances de pâques",
            "easter_sunday": "dimanche de pâques",
            "good_friday": "vendredi saint",
            "pentecost": "pentecôte",
            "carnival": "carnaval|mardi gras",
            "halloween": "halloween",
            "valentine": "saint-valentin|saint valentin",
            "ramadan": "ramadan",
            "eid_al_fitr": "aïd el-fitr|aïd el fitr",
            "eid_al_adha": "aïd el-kebir|aïd el-adha|aïd el kebir",
            "chinese_new_year": "nouvel an chinois",
        },
        units="jour|jours;semaine|semaines;mois;an|ans|année|années;week-end|weekend|week-ends",
        today="aujourd'hui|aujourd’hui",
        yesterday="hier",
        before_yesterday="avant-hier|avant hier",
        last_year="l'année dernière|l'an dernier|l'année passée|l'an passé|l’année dernière|"
        "l’an dernier",
        this_year="cette année",
        last_before="le dernier|la dernière|dernier|dernière",
        last_after="dernier|dernière|passé|passée|derniers|dernières",
        this_before="ce|cet|cette",
        this_after="",
        ago="il y a {n} {unit}",
        lead="en|à|à la|au|au mois de|pendant|pendant l'|pendant le|durant|de|de l'|du|l'|le|la|"
        "les|dans|dans l'|lors de|pour|l’|d'|de l’|pendant les|aux",
        of="de|de l'|en|de l’|,|de l'année|du",
        since="depuis|après",
        before="avant",
        until="à|au|et|jusqu'à",
    ),
    "pt": DateWords(
        months="janeiro|jan;fevereiro|fev;março|mar;abril|abr;maio;junho|jun;julho|jul;"
        "agosto|ago;setembro|set;outubro|out;novembro|nov;dezembro|dez",
        seasons="primavera;verão;outono;inverno",
        feasts={
            "christmas": "natal",
            "christmas_eve": "véspera de natal|noite de natal",
            "new_years_eve": "véspera de ano novo|réveillon|passagem de ano",
            "new_year": "ano novo|ano-novo",
            "easter": "páscoa",
            "easter_sunday": "domingo de páscoa",
            "good_friday": "sexta-feira santa|sexta feira santa",
            "pentecost": "pentecostes",
            "carnival": "carnaval",
            "halloween": "halloween|dia das bruxas",
            "valentine": "dia de são valentim",
            "ramadan": "ramadã|ramadão",
            "chinese_new_year": "ano novo chinês",
        },
        units="dia|dias;semana|semanas;mês|meses;ano|anos;fim de semana|fins de semana|"
        "fim-de-semana",
        today="hoje",
        yesterday="ontem",
        before_yesterday="anteontem|antes de ontem",
        last_year="ano passado|último ano|o ano passado",
        this_year="este ano|neste ano",
        last_before="último|última|o último|a última|no último|na última",
        last_after="passado|passada|anterior",
        this_before="este|esta|neste|nesta",
        this_after="",
        ago="há {n} {unit}|{n} {unit} atrás|faz {n} {unit}",
        lead="em|no|na|nos|nas|no mês de|durante|durante o|durante a|de|do|da|pelo|pela|o|a",
        of="de|do|do ano de|em|,|no",
        since="desde|depois de|após",
        before="antes de",
        until="a|até|e",
    ),
    "cs": DateWords(
        months="leden|ledna|lednu;únor|února|únoru;březen|března|březnu;duben|dubna|dubnu;"
        "květen|května|květnu;červen|června|červnu;červenec|července|červenci;"
        "srpen|srpna|srpnu;září;říjen|října|říjnu;listopad|listopadu;prosinec|prosince|prosinci",
        seasons="jaro|jara|jaře|na jaře;léto|léta|létě|létem;podzim|podzimu|na podzim;"
        "zima|zimy|zimě|zimu",
        feasts={
            "christmas": "vánoce|vánoc|vánocích|vánocům",
            "christmas_eve": "štědrý den|štědrý večer|štědrého dne",
            "new_years_eve": "silvestr|silvestra|silvestru",
            "new_year": "nový rok|nového roku",
            "easter": "velikonoce|velikonoc|velikonocích",
            "easter_sunday": "velikonoční neděle|velikonoční neděli",
            "good_friday": "velký pátek",
            "pentecost": "letnice|letnic|letnicích",
            "carnival": "masopust|masopustu|karneval|karnevalu",
            "halloween": "halloween|halloweenu",
            "valentine": "valentýn|valentýna|svatý valentýn",
            "ramadan": "ramadán|ramadánu",
            "chinese_new_year": "čínský nový rok",
        },
        units="den|dny|dnů|dní|dnem;týden|týdny|týdnů|týdnem|týdne|týdnu;"
        "měsíc|měsíce|měsíců|měsíci|měsícem;rok|roky|roků|rokem|roku|let|lety;"
        "víkend|víkendu|víkendy|víkendem",
        today="dnes|dneska",
        yesterday="včera",
        before_yesterday="předevčírem",
        last_year="loni|vloni|minulý rok|minulého roku|minulém roce",
        this_year="letos|tento rok|tohoto roku",
        last_before="minulý|minulé|minulá|minulého|minulém|minulou|poslední|loňský|loňské|loňského|"
        "loňském|loňská",
        last_after="",
        this_before="tento|toto|tuto|letošní|tohoto|tomto",
        this_after="",
        ago="před {n} {unit}",
        lead="v|ve|na|o|z|ze|během|přes|do|za|v roce|z roku",
        of="roku|v roce|v|,|z roku",
        since="od|po",
        before="před|do",
        until="až|do|a",
    ),
    "ar": DateWords(
        months="يناير|كانون الثاني|جانفي;فبراير|شباط|فيفري;مارس|آذار;أبريل|ابريل|نيسان|أفريل;"
        "مايو|أيار|ماي;يونيو|حزيران|جوان;يوليو|تموز|جويلية;أغسطس|آب|أوت;سبتمبر|أيلول;"
        "أكتوبر|تشرين الأول;نوفمبر|تشرين الثاني;ديسمبر|كانون الأول",
        seasons="الربيع|ربيع;الصيف|صيف;الخريف|خريف;الشتاء|شتاء",
        feasts={
            "christmas": "عيد الميلاد|الكريسماس|كريسماس|عيد ميلاد المسيح",
            "new_years_eve": "ليلة رأس السنة",
            "new_year": "رأس السنة|رأس السنة الميلادية",
            "easter": "عيد الفصح|الفصح",
            "halloween": "الهالوين|هالوين",
            "valentine": "عيد الحب",
            "ramadan": "رمضان|شهر رمضان",
            "eid_al_fitr": "عيد الفطر",
            "eid_al_adha": "عيد الأضحى",
            "chinese_new_year": "رأس السنة الصينية",
        },
        units="يوم|أيام|اليوم|يوما|يومين;الأسبوع|أسبوع|أسابيع|أسبوعين;الشهر|شهر|أشهر|شهور|شهرين;"
        "السنة|سنة|العام|عام|سنوات|أعوام|سنتين|عامين;عطلة نهاية الأسبوع|نهاية الأسبوع",
        today="اليوم",
        yesterday="أمس|البارحة|بالأمس",
        before_yesterday="أول أمس|أول من أمس|قبل أمس",
        last_year="العام الماضي|السنة الماضية|العام الفائت",
        this_year="هذا العام|هذه السنة|العام الحالي",
        last_before="",
        last_after="الماضي|الماضية|الفائت|الفائتة|السابق",
        this_before="هذا|هذه",
        this_after="الحالي|الحالية",
        ago="قبل {n} {unit}|منذ {n} {unit}",
        lead="في|خلال|من|أثناء|في شهر|في عيد|عام|في عام|سنة|في سنة|في فصل|فصل",
        of="من|عام|سنة|لعام|لسنة|،|من عام",
        since="منذ|بعد",
        before="قبل",
        until="إلى|حتى|و",
    ),
    "zh": DateWords(
        months="一月|1月|01月;二月|2月|02月;三月|3月|03月;四月|4月|04月;五月|5月|05月;六月|6月|06月;"
        "七月|7月|07月;八月|8月|08月;九月|9月|09月;十月|10月;十一月|11月;十二月|12月",
        seasons="春天|春季;夏天|夏季|夏日;秋天|秋季;冬天|冬季",
        feasts={
            "christmas": "圣诞节|圣诞|聖誕節|聖誕",
            "christmas_eve": "平安夜|圣诞夜|聖誕夜",
            "new_years_eve": "跨年夜|跨年",
            "new_year": "元旦|新年",
            "easter": "复活节|復活節",
            "halloween": "万圣节|萬聖節",
            "valentine": "情人节|情人節",
            "thanksgiving": "感恩节|感恩節",
            "ramadan": "斋月|齋月",
            "eid_al_fitr": "开斋节|開齋節",
            "eid_al_adha": "宰牲节|古尔邦节",
            "chinese_new_year": "春节|春節|农历新年|農曆新年|中国新年",
        },
        units="天|日;周|星期|礼拜|週|禮拜|个星期|個星期;月|个月|個月;年;周末|週末",
        today="今天|今日",
        yesterday="昨天|昨日",
        before_yesterday="前天",
        last_year="去年",
        this_year="今年",
        last_before="上个|上個|上一个|上一個|上|去年的|去年",
        last_after="",
        this_before="这个|這個|这|這|本|今年的|今年",
        this_after="",
        ago="{n} {unit}前|{n} {unit}以前",
        lead="在|于|於|从|摄于|攝於",
        of="的|,|，|年的",
        since="自|从",
        before="",
        until="到|至",
        spaced=False,
    ),
}
