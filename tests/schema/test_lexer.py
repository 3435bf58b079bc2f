"""SQL texts as tokens, by the rules of MySQL and TiDB."""

import random

import pytest

from tests.schema.test_mysql_ddl import SHOWN
from ticdc_source.schema.lexer import scan, tokens_of

BEGIN = "\nCREATE TABLE "
_LETTERS = {"word": "w", "name": "n", "text": "t", "number": "d", "sign": "s", "bad": "!"}


def shown(sql: str, *, printed: bool = False) -> list[str]:
    return [f"{_LETTERS[token.type]} {token.text}" for token in tokens_of(sql, printed=printed)]


@pytest.mark.parametrize(("sql", "tokens"), [
    # texts
    ("'it''s' , \"a \"\"b\"\"\"", ["t it's", "s ,", 't a "b"']),
    ("'a\"\"b' \n \"c''d\"", ["t a\"\"bc''d"]),
    (r"'\0\b\n\r\t\Z\\\'\"\%\_\q'", ["t \0\b\n\r\t\x1a\\'\"\\%\\_q"]),
    (r"""'a\\' , 'b\'' , "c\"" """, ["t a\\", "s ,", "t b'", "s ,", 't c"']),
    ("'a' 'b'\t\"c\" -- d\n'e'", ["t abce"]),
    ("N'a' n'b' N 'c'", ["t ab", "w N", "t c"]),
    ("_utf8mb4'a' _binary x'41'", ["w _UTF8MB4", "t a", "w _BINARY", "d x'41'"]),
    ("''", ["t "]),
    # names
    ("`a``b` `c\\`.`d 'e'`", ["n a`b", "n c\\", "s .", "n d 'e'"]),
    ("a$b _c 日本 é1 😀 \udc80", ["w A$B", "w _C", "w 日本", "w É1", "w 😀", "w \udc80"]),
    ("2024_t 1a 9e 0xg 0b2 0B1 1e3x", ["w 2024_T", "w 1A", "w 9E", "w 0XG", "w 0B2", "w 0B1", "d 1e3", "w X"]),
    ("db.2024.1e3 `t`.5 a.b'x'", ["w DB", "s .", "w 2024", "s .", "w 1E3", "n t", "s .", "w 5", "w A", "s .", "w B",
                                  "t x"]),
    ("@x @@y @'z'@`%`", ["s @", "w X", "s @", "s @", "w Y", "s @", "t z", "s @", "n %"]),
    # numbers
    ("1 1.5 .5 8. 1e3 1.5E-3 .5e+2", ["d 1", "d 1.5", "d .5", "d 8.", "d 1e3", "d 1.5E-3", "d .5e+2"]),
    ("-1 1-1 1e+x", ["s -", "d 1", "d 1", "s -", "d 1", "w 1E", "s +", "w X"]),
    ("b'101' B'' 0b101 x'1F' X'' 0x1f 0X1F", ["d b'101'", "d b''", "d b'101'", "d x'1F'", "d x''", "d x'1f'",
                                              "d x'1F'"]),
    # comments
    ("a/* b */c/**/d/* ' */e/*/ f */g", ["w A", "w C", "w D", "w E", "w G"]),
    ("a -- b\nc --\td\ne --", ["w A", "w C", "w E"]),
    ("a --b", ["w A", "s -", "s -", "w B"]),
    ("a# b\nc", ["w A", "w C"]),
    ("a/*+ b */ /*M! c */ /*T d */", ["w A"]),
    # comments that are executed
    ("a /*!b*/ /*!40101 c*/ /*!080016d*/ e", ["w A", "w B", "w C", "w D", "w E"]),
    ("/*T! a */ /*T![ttl] b */ /*T![x,y_1] c /* d */ e */ f", ["w A", "w B", "w C", "w E", "w F"]),
    ("a */ b 2*/* c */3", ["w A", "s *", "s /", "w B", "d 2", "s *", "d 3"]),
    # signs
    ("a->>'$' b->c := <=> != <> || && <= >= << >>", ["w A", "s ->>", "t $", "w B", "s ->", "w C", "s :=", "s <=>",
                                                     "s !=", "s <>", "s ||", "s &&", "s <=", "s >=", "s <<", "s >>"]),
    ("(,;)=%\x00", ["s (", "s ,", "s ;", "s )", "s =", "s %", "s \x00"]),
    ("", []),
])  # fmt: skip
def test_a_text_has_the_tokens_that_mysql_sees(sql: str, tokens: list[str]) -> None:
    """Each rule of the lexical grammar gives these tokens and no others."""
    assert shown(sql) == tokens


def test_a_word_is_compared_in_upper_case_and_kept_as_it_is_written() -> None:
    """Keywords are found in any case, and names do not lose theirs."""
    assert [(token.text, token.plain) for token in tokens_of("Alter `Tab` 0xfF")] == [
        ("ALTER", "Alter"), ("Tab", "Tab"), ("x'fF'", "x'fF'"),
    ]  # fmt: skip


def test_show_create_table_prints_backslashes_as_they_are() -> None:
    """Only in single quotes: nobody but a person writes the others."""
    assert shown(r"'c:\new\' 'it''s' " r'"\"" `a\`', printed=True) == ["t c:\\new\\it's\"", "n a\\"]


@pytest.mark.parametrize("sql", [
    "a 'b", "a 'b''", r"a 'b\'", "'\\", 'a "b', "a `b", "a `b``", "N'a", "a /* b", "/*/", "a /*! b", "a /*T![x] b",
    "b'2'", "b'1", "x'0g'", "X'",
])  # fmt: skip
def test_what_is_not_closed_is_an_error(sql: str) -> None:
    """It is no text to guess about; who only looks for words still gets those before it."""
    with pytest.raises(ValueError, match=r"not closed|not a number"):
        tokens_of(sql)
    assert [token.type for token in scan(sql)].count("bad") == 1


def test_what_is_quoted_is_read_again() -> None:
    """Texts and names of any characters have one token, whatever quotes them."""
    dice = random.Random(20)
    characters = "a'\"`\\ \n\0/*-#%_é日😀\udc80;.,(0x"
    for _ in range(1000):
        text = "".join(dice.choices(characters, k=dice.randrange(12)))
        doubled = {quote: text.replace(quote, quote * 2) for quote in "'\"`"}
        escaped = {quote: doubled[quote].replace("\\", "\\\\") for quote in "'\""}

        for quote, body in escaped.items():
            assert shown(f"a {quote}{body}{quote}, b") == ["w A", f"t {text}", "s ,", "w B"], ascii(text)
        assert shown(f"a `{doubled['`']}`, b") == ["w A", f"n {text}", "s ,", "w B"], ascii(text)
        assert shown(f"a '{doubled[chr(39)]}', b", printed=True) == ["w A", f"t {text}", "s ,", "w B"], ascii(text)


def test_any_text_has_tokens() -> None:
    """The words of a damaged statement are those that it has, in their order, up to a quote that is not closed."""
    dice = random.Random(21)
    pieces = ["'", '"', "`", "\\", "/*", "*/", "/*!", "/*T![x]", "--", "#", "\n", "b'", "0x", "1e", ".", "\udc80", "\0"]
    for _ in range(300):
        letters = list(SHOWN.removeprefix(BEGIN))
        for _ in range(dice.randrange(1, 4)):
            letters[dice.randrange(len(letters))] = dice.choice(pieces)
        damaged = BEGIN + "".join(letters)

        words = [token.plain for token in scan(damaged) if token.type in ("word", "sign")]

        assert words[:2] == ["CREATE", "TABLE"], ascii(damaged)
        position = 0
        for word in words:
            position = damaged.index(word, position) + len(word)
