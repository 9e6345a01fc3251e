"""Rules for reading symbols, amounts and measures aloud, per language, as data: a new language is a new entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class NormalizationRules(Struct, frozen=True, kw_only=True):
    """One language's names. The names of numbers are num2words', under the same primary subtag."""

    groups: str
    """Thousands separators, as a set for a regular expression."""

    decimal: str
    """The decimal separator."""

    dot: str
    at: str
    slash: str
    percent: str
    degrees: tuple[str, str]
    """Singular, plural."""

    minus: str
    to: str
    """The word between the ends of a range."""

    one: str
    """The number before a noun."""

    nth: str
    """The word for `#` before a number."""

    signs: Mapping[str, str]
    """A symbol between two words, and its name."""

    money: Mapping[str, tuple[str, str]]
    """A currency's symbol, and its singular and plural names."""

    cents: Mapping[str, tuple[str, str]]
    """A currency's symbol, and the singular and plural names of its hundredth: read when there are no whole units."""

    money_and: str
    """The word between whole units and cents."""

    hour: tuple[str, str]
    """The word after a full hour's number: singular, plural."""

    past: tuple[str, str]
    """The word between an hour and its minutes: for one o'clock, and later."""

    units: Mapping[str, tuple[str, str]]
    """A unit of measure, and its singular and plural names."""


EN: Final = NormalizationRules(
    groups=",",
    decimal=".",
    dot="dot",
    at="at",
    slash="slash",
    percent="percent",
    degrees=("degree", "degrees"),
    minus="minus",
    to="to",
    one="one",
    nth="number",
    signs={"&": "and", "=": "equals", "+": "plus", "\u00d7": "times", "÷": "divided by", "≈": "about", "→": "to"},
    money={
        "$": ("dollar", "dollars"),
        "€": ("euro", "euros"),
        "£": ("pound", "pounds"),
        "¥": ("yen", "yen"),
        "₹": ("rupee", "rupees"),
    },
    cents={"$": ("cent", "cents"), "€": ("cent", "cents"), "£": ("penny", "pence")},
    money_and="",
    hour=("o'clock", "o'clock"),
    past=("", ""),
    units={
        "km/h": ("kilometer per hour", "kilometers per hour"),
        "mph": ("mile per hour", "miles per hour"),
        "km": ("kilometer", "kilometers"),
        "cm": ("centimeter", "centimeters"),
        "mm": ("millimeter", "millimeters"),
        "m": ("meter", "meters"),
        "mi": ("mile", "miles"),
        "ft": ("foot", "feet"),
        "kg": ("kilogram", "kilograms"),
        "mg": ("milligram", "milligrams"),
        "g": ("gram", "grams"),
        "lbs": ("pound", "pounds"),
        "lb": ("pound", "pounds"),
        "oz": ("ounce", "ounces"),
        "ml": ("milliliter", "milliliters"),
        "l": ("liter", "liters"),
        "L": ("liter", "liters"),
        "kB": ("kilobyte", "kilobytes"),
        "KB": ("kilobyte", "kilobytes"),
        "MB": ("megabyte", "megabytes"),
        "GB": ("gigabyte", "gigabytes"),
        "TB": ("terabyte", "terabytes"),
        "ms": ("millisecond", "milliseconds"),
        "s": ("second", "seconds"),
        "sec": ("second", "seconds"),
        "min": ("minute", "minutes"),
        "h": ("hour", "hours"),
        "hrs": ("hour", "hours"),
        "kWh": ("kilowatt hour", "kilowatt hours"),
        "kW": ("kilowatt", "kilowatts"),
        "W": ("watt", "watts"),
        "V": ("volt", "volts"),
        "kHz": ("kilohertz", "kilohertz"),
        "MHz": ("megahertz", "megahertz"),
        "GHz": ("gigahertz", "gigahertz"),
        "Hz": ("hertz", "hertz"),
    },
)

DE: Final = NormalizationRules(
    groups=".",
    decimal=",",
    dot="Punkt",
    at="at",
    slash="Schrägstrich",
    percent="Prozent",
    degrees=("Grad", "Grad"),
    minus="minus",
    to="bis",
    one="ein",
    nth="Nummer",
    signs={"&": "und", "=": "gleich", "+": "plus", "\u00d7": "mal", "÷": "geteilt durch", "≈": "etwa", "→": "nach"},
    money={"$": ("Dollar", "Dollar"), "€": ("Euro", "Euro"), "£": ("Pfund", "Pfund")},
    cents={"$": ("Cent", "Cent"), "€": ("Cent", "Cent"), "£": ("Penny", "Pence")},
    money_and="",
    hour=("Uhr", "Uhr"),
    past=("Uhr", "Uhr"),
    units={
        "km/h": ("Kilometer pro Stunde", "Kilometer pro Stunde"),
        "km": ("Kilometer", "Kilometer"),
        "cm": ("Zentimeter", "Zentimeter"),
        "mm": ("Millimeter", "Millimeter"),
        "m": ("Meter", "Meter"),
        "kg": ("Kilogramm", "Kilogramm"),
        "mg": ("Milligramm", "Milligramm"),
        "g": ("Gramm", "Gramm"),
        "ml": ("Milliliter", "Milliliter"),
        "l": ("Liter", "Liter"),
        "min": ("Minute", "Minuten"),
        "h": ("Stunde", "Stunden"),
        "s": ("Sekunde", "Sekunden"),
    },
)

FR: Final = NormalizationRules(
    groups=" \u00a0\u202f",
    decimal=",",
    dot="point",
    at="arobase",
    slash="barre oblique",
    percent="pour cent",
    degrees=("degré", "degrés"),
    minus="moins",
    to="à",
    one="un",
    nth="numéro",
    signs={"&": "et", "=": "égale", "+": "plus", "\u00d7": "fois", "÷": "divisé par", "≈": "environ", "→": "vers"},
    money={"$": ("dollar", "dollars"), "€": ("euro", "euros"), "£": ("livre", "livres")},
    cents={"$": ("cent", "cents"), "€": ("centime", "centimes"), "£": ("penny", "pence")},
    money_and="",
    hour=("heure", "heures"),
    past=("heure", "heures"),
    units={
        "km/h": ("kilomètre heure", "kilomètres heure"),
        "km": ("kilomètre", "kilomètres"),
        "cm": ("centimètre", "centimètres"),
        "mm": ("millimètre", "millimètres"),
        "m": ("mètre", "mètres"),
        "kg": ("kilogramme", "kilogrammes"),
        "mg": ("milligramme", "milligrammes"),
        "g": ("gramme", "grammes"),
        "ml": ("millilitre", "millilitres"),
        "l": ("litre", "litres"),
        "min": ("minute", "minutes"),
        "h": ("heure", "heures"),
        "s": ("seconde", "secondes"),
    },
)

ES: Final = NormalizationRules(
    groups=".\u00a0\u202f",
    decimal=",",
    dot="punto",
    at="arroba",
    slash="barra",
    percent="por ciento",
    degrees=("grado", "grados"),
    minus="menos",
    to="a",
    one="un",
    nth="número",
    signs={"&": "y", "=": "igual a", "+": "más", "\u00d7": "por", "÷": "entre", "≈": "aproximadamente", "→": "a"},
    money={"$": ("dólar", "dólares"), "€": ("euro", "euros"), "£": ("libra", "libras")},
    cents={"$": ("centavo", "centavos"), "€": ("céntimo", "céntimos"), "£": ("penique", "peniques")},
    money_and="con",
    hour=("", ""),
    past=("y", "y"),
    units={
        "km/h": ("kilómetro por hora", "kilómetros por hora"),
        "km": ("kilómetro", "kilómetros"),
        "cm": ("centímetro", "centímetros"),
        "mm": ("milímetro", "milímetros"),
        "m": ("metro", "metros"),
        "kg": ("kilogramo", "kilogramos"),
        "mg": ("miligramo", "miligramos"),
        "g": ("gramo", "gramos"),
        "ml": ("mililitro", "mililitros"),
        "l": ("litro", "litros"),
        "min": ("minuto", "minutos"),
        "h": ("hora", "horas"),
        "s": ("segundo", "segundos"),
    },
)

IT: Final = NormalizationRules(
    groups=".\u00a0\u202f",
    decimal=",",
    dot="punto",
    at="chiocciola",
    slash="barra",
    percent="per cento",
    degrees=("grado", "gradi"),
    minus="meno",
    to="a",
    one="un",
    nth="numero",
    signs={"&": "e", "=": "uguale", "+": "più", "\u00d7": "per", "÷": "diviso", "≈": "circa", "→": "a"},
    money={"$": ("dollaro", "dollari"), "€": ("euro", "euro"), "£": ("sterlina", "sterline")},
    cents={"$": ("centesimo", "centesimi"), "€": ("centesimo", "centesimi"), "£": ("penny", "pence")},
    money_and="e",
    hour=("", ""),
    past=("e", "e"),
    units={
        "km/h": ("chilometro all'ora", "chilometri all'ora"),
        "km": ("chilometro", "chilometri"),
        "cm": ("centimetro", "centimetri"),
        "mm": ("millimetro", "millimetri"),
        "m": ("metro", "metri"),
        "kg": ("chilogrammo", "chilogrammi"),
        "mg": ("milligrammo", "milligrammi"),
        "g": ("grammo", "grammi"),
        "ml": ("millilitro", "millilitri"),
        "l": ("litro", "litri"),
        "min": ("minuto", "minuti"),
        "h": ("ora", "ore"),
        "s": ("secondo", "secondi"),
    },
)

PT: Final = NormalizationRules(
    groups=".\u00a0\u202f",
    decimal=",",
    dot="ponto",
    at="arroba",
    slash="barra",
    percent="por cento",
    degrees=("grau", "graus"),
    minus="menos",
    to="a",
    one="um",
    nth="número",
    signs={"&": "e", "=": "igual a", "+": "mais", "\u00d7": "vezes", "÷": "dividido por", "≈": "cerca de", "→": "para"},
    money={
        "R$": ("real", "reais"),
        "$": ("dólar", "dólares"),
        "€": ("euro", "euros"),
        "£": ("libra", "libras"),
    },
    cents={
        "R$": ("centavo", "centavos"),
        "$": ("centavo", "centavos"),
        "€": ("cêntimo", "cêntimos"),
        "£": ("péni", "pence"),
    },
    money_and="e",
    hour=("hora", "horas"),
    past=("e", "e"),
    units={
        "km/h": ("quilómetro por hora", "quilómetros por hora"),
        "km": ("quilómetro", "quilómetros"),
        "cm": ("centímetro", "centímetros"),
        "mm": ("milímetro", "milímetros"),
        "m": ("metro", "metros"),
        "kg": ("quilograma", "quilogramas"),
        "mg": ("miligrama", "miligramas"),
        "g": ("grama", "gramas"),
        "ml": ("mililitro", "mililitros"),
        "l": ("litro", "litros"),
        "min": ("minuto", "minutos"),
        "h": ("hora", "horas"),
        "s": ("segundo", "segundos"),
    },
)

NL: Final = NormalizationRules(
    groups=".",
    decimal=",",
    dot="punt",
    at="apenstaartje",
    slash="schuine streep",
    percent="procent",
    degrees=("graad", "graden"),
    minus="min",
    to="tot",
    one="één",
    nth="nummer",
    signs={"&": "en", "=": "is", "+": "plus", "\u00d7": "keer", "÷": "gedeeld door", "≈": "ongeveer", "→": "naar"},
    money={"$": ("dollar", "dollar"), "€": ("euro", "euro"), "£": ("pond", "pond")},
    cents={"$": ("cent", "cent"), "€": ("cent", "cent"), "£": ("penny", "pence")},
    money_and="",
    hour=("uur", "uur"),
    past=("uur", "uur"),
    units={
        "km/h": ("kilometer per uur", "kilometer per uur"),
        "km": ("kilometer", "kilometer"),
        "cm": ("centimeter", "centimeter"),
        "mm": ("millimeter", "millimeter"),
        "m": ("meter", "meter"),
        "kg": ("kilogram", "kilogram"),
        "mg": ("milligram", "milligram"),
        "g": ("gram", "gram"),
        "ml": ("milliliter", "milliliter"),
        "l": ("liter", "liter"),
        "min": ("minuut", "minuten"),
        "h": ("uur", "uur"),
        "s": ("seconde", "seconden"),
    },
)

RULES_BY_LANGUAGE: Final[Mapping[str, NormalizationRules]] = {
    "en": EN,
    "de": DE,
    "fr": FR,
    "es": ES,
    "it": IT,
    "pt": PT,
    "nl": NL,
}
"""By primary language subtag (BCP-47)."""
