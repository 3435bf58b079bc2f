"""Tables with keys of every kind, and the values of their rows."""

ROWS = 60
_LETTERS = ("a", "B", "c", "É", "ß", "ж", "Z", "😀", "''", "\\\\", "", "中", "_", "%", " x", "?")
_TEXTS = [f"'{letter}{number}'" for letter in _LETTERS for number in range(4)][:ROWS]
_GBK = [f"'{letter}{number}'" for letter in ("中", "a", "国", "B", "", "阿") for number in range(10)]
_NUMBERS = [str((-1) ** number * number**5) for number in range(ROWS)]
_UNSIGNED = [str(2**64 - 1 - number * 307445734561825860) for number in range(ROWS)]
_DECIMALS = [f"{(-1) ** number * number}.{'0' * 27}{number:03d}" for number in range(1, ROWS + 1)]
_DAYS = [f"'20{number:02d}-{number % 12 + 1:02d}-{number % 28 + 1:02d}'" for number in range(ROWS)]
_MOMENTS = [f"'2024-03-31 {number % 24:02d}:59:59.{number:06d}'" for number in range(ROWS)]
_BYTES = ["x''", "x'00'", "x'0000'", "x'27'", "x'5C'", "x'FF'", *(f"x'80{number:02X}27'" for number in range(ROWS - 6))]
_LABELS = ", ".join(f"'l{99 - number}'" for number in range(ROWS))
_MEMBERS = ", ".join(f"'m{9 - number}'" for number in range(6))
_MANY = ", ".join(f"'m{number}'" for number in range(60))
_GENERAL = "VARCHAR(20) COLLATE utf8mb4_general_ci"

# Kind of key: the columns and the key, and the values of the first columns in each row.
KINDS: dict[str, tuple[str, list[str]]] = {
    "int": ("a INT, PRIMARY KEY (a)", [str(number - 30) for number in range(ROWS)]),
    "bigint": ("a BIGINT, PRIMARY KEY (a)", _NUMBERS),
    "bigint unsigned": ("a BIGINT UNSIGNED, PRIMARY KEY (a)", _UNSIGNED),
    "auto random": ("a BIGINT AUTO_RANDOM(5), PRIMARY KEY (a)", [str(number << 50) for number in range(1, ROWS)]),
    "decimal": ("a DECIMAL(65,30), PRIMARY KEY (a) CLUSTERED", _DECIMALS),
    "fractions": ("a DECIMAL(5,5), PRIMARY KEY (a) CLUSTERED", [f"-0.{number:05d}" for number in range(ROWS)]),
    "double": ("a DOUBLE, PRIMARY KEY (a) CLUSTERED", [f"{(-1) ** one}.1e{one * 5 - 150}" for one in range(ROWS)]),
    "small doubles": ("a DOUBLE, PRIMARY KEY (a) CLUSTERED", [f"{(-1) ** one * one}.5e-99" for one in range(ROWS)]),
    "float": ("a FLOAT, PRIMARY KEY (a) CLUSTERED", [f"{one - 30}.1" for one in range(ROWS)]),
    "text": ("a VARCHAR(20) COLLATE utf8mb4_bin, PRIMARY KEY (a) CLUSTERED", _TEXTS),
    "text of general_ci": (f"a {_GENERAL}, PRIMARY KEY (a) CLUSTERED", _TEXTS),
    "text of unicode_ci": ("a CHAR(20) COLLATE utf8mb4_unicode_ci, PRIMARY KEY (a) CLUSTERED", _TEXTS),
    "text of 0900_ai_ci": ("a VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, PRIMARY KEY (a) CLUSTERED", _TEXTS),
    "text of gbk": ("a VARCHAR(20) CHARSET gbk, PRIMARY KEY (a) CLUSTERED", _GBK),
    "text of latin1": ("a VARCHAR(20) CHARSET latin1, PRIMARY KEY (a) CLUSTERED", [f"'{n}é'" for n in range(ROWS)]),
    "prefix of a text": (f"a {_GENERAL}, PRIMARY KEY (a(3)) CLUSTERED", [f"'{number}'" for number in range(ROWS)]),
    "varbinary": ("a VARBINARY(9), PRIMARY KEY (a) CLUSTERED", _BYTES),
    "binary": ("a BINARY(3), PRIMARY KEY (a) CLUSTERED", [f"x'{number * 4:02X}0027'" for number in range(ROWS)]),
    "date": ("a DATE, PRIMARY KEY (a) CLUSTERED", _DAYS),
    "zero dates": (
        "a DATE, b INT, PRIMARY KEY (a, b) CLUSTERED",
        [f"{day}, {one}" for one in range(20) for day in ("'0000-00-00'", "'2024-02-31'", "'2024-03-01'")],
    ),
    "datetime": ("a DATETIME(6), PRIMARY KEY (a) CLUSTERED", _MOMENTS),
    "timestamp": ("a TIMESTAMP(6), PRIMARY KEY (a) CLUSTERED", _MOMENTS),
    "time": ("a TIME(3), PRIMARY KEY (a) CLUSTERED", [f"'{one * 27 - 810}:10:10.125'" for one in range(ROWS)]),
    "year": ("a YEAR, PRIMARY KEY (a) CLUSTERED", [str(1950 + number) for number in range(ROWS)]),
    "enum": (f"a ENUM({_LABELS}), PRIMARY KEY (a) CLUSTERED", [str(number + 1) for number in range(ROWS)]),
    "set": (f"a SET({_MEMBERS}), PRIMARY KEY (a) CLUSTERED", [str(number) for number in range(ROWS)]),
    "set of 60": (f"a SET({_MANY}), PRIMARY KEY (a) CLUSTERED", [str((1 << 48) * one + one) for one in range(ROWS)]),
    "bit": ("a BIT(64), PRIMARY KEY (a) CLUSTERED", _UNSIGNED),
    "tenant and number": (
        "a INT, b BIGINT UNSIGNED, PRIMARY KEY (a, b)",
        [f"{number % 3}, {unsigned}" for number, unsigned in enumerate(_UNSIGNED)],
    ),
    "text, number, bytes": (
        f"a {_GENERAL}, b DECIMAL(10,2), c VARBINARY(9), PRIMARY KEY (a, b, c) CLUSTERED",
        [f"'{'aAbB'[one % 4]}', {one % 5}.5, {bytes_}" for one, bytes_ in enumerate(_BYTES)],
    ),
    "key in another order": (
        "a VARCHAR(9), b TIMESTAMP, PRIMARY KEY (b, a) CLUSTERED",
        [f"'{one}', '2024-03-31 02:30:0{one % 3}'" for one in range(ROWS)],
    ),
    "not clustered": ("a VARCHAR(9), PRIMARY KEY (a) NONCLUSTERED", [f"'{one}'" for one in range(ROWS)]),
    "only a unique key": ("a INT NOT NULL, UNIQUE KEY (a)", [str(one) for one in range(ROWS)]),
    "no key, NULLs and equal rows": ("a INT", ["NULL", "1", "1", "2"] * 15),
    "row ids that are spread": ("a INT", [str(one % 7) for one in range(ROWS)]),
    "partitioned by {a}": ("a INT, PRIMARY KEY (a)", [str(one) for one in range(ROWS)]),
}
AFTER = {"row ids that are spread": "SHARD_ROW_ID_BITS = 4", "partitioned by {a}": "PARTITION BY HASH (a) PARTITIONS 4"}
