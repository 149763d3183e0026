"""A text and the tokens an analyzer made of it become words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.cluster.analysis import MAX_UNITS, Token, plain_words, sendable, split, tokens_of


def tokens(*parts: tuple[str, int, int]) -> list[Token]:
    return [Token(text, position, start, end) for position, (text, start, end) in enumerate(parts)]


def words(text: str, *parts: tuple[str, int, int]) -> list[tuple[str, tuple[str, ...]]]:
    return [(w.text, w.tokens) for w in split(text, tokens(*parts))]


def test_each_token_is_a_word_with_the_text_at_its_offsets() -> None:
    assert words("red Foxes", ("red", 0, 3), ("fox", 4, 9)) == [("red", ("red",)), ("Foxes", ("fox",))]


def test_what_the_analyzer_leaves_out_is_in_no_word() -> None:
    assert words("the fox of it", ("fox", 4, 7)) == [("fox", ("fox",))]


def test_add_on_is_two_words_where_the_analyzer_separates_it() -> None:
    assert words("add-on", ("add", 0, 3), ("on", 4, 6)) == [("add", ("add",)), ("on", ("on",))]


def test_tokens_over_one_span_are_one_word() -> None:
    assert words("Laptop bag", ("laptop", 0, 6), ("notebook", 0, 6), ("bag", 7, 10)) == [
        ("Laptop", ("laptop", "notebook")),
        ("bag", ("bag",)),
    ]


def test_overlapping_tokens_are_one_word_as_cjk_bigrams_are() -> None:
    assert words("日本語 東京", ("日本", 0, 2), ("本語", 1, 3), ("東京", 4, 6)) == [
        ("日本語", ("日本", "本語")),
        ("東京", ("東京",)),
    ]


def test_a_whole_and_its_parts_are_one_word() -> None:
    assert words("Wi-Fi x", ("wi-fi", 0, 5), ("wi", 0, 2), ("fi", 3, 5), ("x", 6, 7)) == [
        ("Wi-Fi", ("wi-fi", "wi", "fi")),
        ("x", ("x",)),
    ]


def test_offsets_count_utf16_units() -> None:
    assert words("😀 cat🐱", ("😀", 0, 2), ("cat", 3, 6), ("🐱", 6, 8)) == [
        ("😀", ("😀",)),
        ("cat", ("cat",)),
        ("🐱", ("🐱",)),
    ]


def test_half_a_character_is_no_word() -> None:
    assert words("😀", ("x", 0, 1)) == []


def test_a_token_that_covers_nothing_belongs_to_no_word() -> None:
    assert words("fox", ("start", 0, 0), ("fox", 0, 3), ("end", 3, 3)) == [("fox", ("fox",))]


def test_another_analyzers_tokens_are_matched_by_offsets() -> None:
    text = "the Wi-Fi"
    (word,) = split(
        text, tokens(("wi-fi", 4, 9)), [tokens(("the", 0, 3), ("wi", 4, 6), ("fi", 7, 9)), tokens(("the", 0, 3))]
    )
    assert word.others == (("wi", "fi"), ())


def test_another_analyzers_token_that_sticks_out_says_nothing() -> None:
    first, second = split("wi-fi", tokens(("wi", 0, 2), ("fi", 3, 5)), [tokens(("wi-fi", 0, 5))])
    assert (first.others, second.others) == ((None,), (None,))


def test_tokens_come_in_the_order_of_the_text() -> None:
    vector = {
        "terms": {
            "fox": {"term_freq": 2, "tokens": [place(3, 8, 11), place(1, 2, 5)]},
            "a": {"term_freq": 1, "tokens": [place(0, 0, 1)]},
        }
    }
    assert [(t.text, t.position) for t in tokens_of(vector)] == [("a", 0), ("fox", 1), ("fox", 3)]


def test_the_same_token_twice_at_one_place_is_one() -> None:
    vector = {"terms": {"fox": {"tokens": [place(0, 0, 3), place(0, 0, 3)]}}}
    assert len(tokens_of(vector)) == 1


@pytest.mark.parametrize(
    "vector", [{}, {"terms": []}, {"terms": {"a": {}}}, {"terms": {"a": {"tokens": [{"position": 0}]}}}]
)
def test_an_answer_of_another_form_gives_no_tokens(vector: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        tokens_of(vector)


def test_lone_surrogates_become_spaces_and_pairs_their_character() -> None:
    assert sendable("a\ud83db") == "a b"
    assert sendable("\ud83d\ude00") == "😀"


def test_a_very_long_text_is_cut() -> None:
    assert len(sendable("x" * 20_000)) == MAX_UNITS
    assert sendable("x" * (MAX_UNITS - 1) + "😀").endswith("x ")


def test_without_an_analyzer_white_space_separates() -> None:
    assert [(w.text, w.tokens) for w in plain_words("(The AC/DC) fan++ !")] == [
        ("The", ("the",)),
        ("AC/DC", ("ac/dc",)),
        ("fan", ("fan",)),
    ]


def place(position: int, start: int, end: int) -> dict[str, int]:
    return {"position": position, "start_offset": start, "end_offset": end}


ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_can_be_sent(text: str) -> None:
    sent = sendable(text)
    assert sent.encode("utf-8") is not None
    assert sendable(sent) == sent


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_each_token_belongs_to_at_most_one_word_and_words_keep_their_order(
    text: str, spans: list[tuple[int, int]]
) -> None:
    text = sendable(text)
    made = split(text, [Token(f"t{i}", i, min(s), max(s)) for i, s in enumerate(spans)])
    seen = [t for w in made for t in w.tokens]
    assert len(seen) == len(set(seen))
    assert all(w.text and w.text in text for w in made)
    places = [min(min(spans[int(t[1:])]) for t in w.tokens) for w in made]
    assert places == sorted(places)


def test_characters_of_east_asia_that_stand_alone_are_one_word() -> None:
    tokens = [Token("図", 0, 0, 1), Token("書", 1, 1, 2), Token("館", 2, 3, 4)]
    assert [w.text for w in split("図書 館", tokens)] == ["図書", "館"]


def test_a_compound_at_one_place_has_parts() -> None:
    tokens = [Token("fussballtor", 0, 0, 11), Token("fussball", 0, 0, 11), Token("tor", 0, 0, 11)]
    (word,) = split("Fussballtor", tokens)
    assert word.parts == ("fussball", "tor")


def test_synonyms_at_one_place_are_no_parts() -> None:
    (word,) = split("bant", [Token("bant", 0, 0, 4), Token("kent", 0, 0, 4), Token("ban", 0, 0, 4)])
    assert word.parts == ()
