"""Which topics to read: the three options that choose them, and Java's patterns in Python."""

import re

import pytest

from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.options.topics import TopicChoice, TopicPartition, listed, topic_choice


def choice(**given: str) -> TopicChoice:
    return topic_choice(Options.of({"kafka.bootstrap.servers": "b:9092", **given}))


def pattern(text: str) -> re.Pattern[str]:
    chosen = choice(subscribePattern=text)
    assert chosen.pattern is not None
    return chosen.pattern


def test_thousands_of_partitions_are_a_short_text() -> None:
    every = [TopicPartition("t", number) for number in range(4_000)]

    assert listed(every[:3]) == "t-0, t-1, t-2"
    assert listed(every[:20]).endswith(", t-19")
    assert listed(every).endswith("t-18, t-19, … and 3,980 more")


def test_subscribe_is_a_list_of_names() -> None:
    assert choice(subscribe=" a , b,,a") == TopicChoice(("a", "b"))


def test_assign_is_json() -> None:
    assert choice(assign='{"b":[1,0,1],"a":[2]}') == TopicChoice(
        ("a", "b"), partitions=(TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({"assign": "{}"}, "No topicpartitions to assign as specified value for option 'assign' is"),
        ({"assign": '{"t":[]}'}, "No topicpartitions to assign as specified value for option 'assign' is"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option"),
    ],
)
def test_naming_nothing_is_refused_in_sparks_words(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        choice(**given)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("tidb-.*", "tidb-orders", True),
        ("tidb-.*", "x-tidb-orders", False),  # the whole name, as Java's matches()
        ("tidb", "tidb-orders", False),
        (r"\Qa.b\E-\d+", "a.b-12", True),
        (r"\Qa.b\E-\d+", "axb-12", False),
        (r"\Qa.b", "a.b", True),
        (r"(?<kind>\w+)-x", "orders-x", True),
        (r"(?<!y)x", "x", True),  # a look-behind is not a named group
        ("[a-z&&x]", "x", None),  # an intersection: Python has none
        ("[", "x", None),
        (r"\p{Lower}+", "x", None),
    ],
)
def test_patterns_mean_what_they_mean_in_java(text: str, name: str, matches: bool | None) -> None:
    """Java's syntax is rewritten if Python has other syntax for it, and refused if Python has none."""
    if matches is None:
        with pytest.raises(OptionError, match="not a valid Python regular expression"):
            pattern(text)
    else:
        assert (pattern(text).fullmatch(name) is not None) is matches
