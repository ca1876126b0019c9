"""The configuration keys on which GPUs containers get."""

from __future__ import annotations

from .config_kinds import COUNT, DURATION, INTEGER, LABELS, TEXT, TEXTS, Key

ALLOCATE = (
    Key(
        "allocate",
        "counts",
        TEXT,
        "exclusive",
        "What a number of GPUs asks for: that many for this container alone (exclusive), or the "
        "least used ones, shared, for a machine with fewer GPUs than containers (spread).",
        ("exclusive", "spread"),
    ),
    Key(
        "allocate",
        "real-use",
        TEXT,
        "auto",
        "Whether the driver is asked what processes without a lease use of the GPUs: when there is "
        "a choice to make and it answers in time (auto), whenever GPUs are chosen (always), never.",
        ("auto", "always", "never"),
    ),
    Key(
        "allocate",
        "max-gpus",
        COUNT,
        "",
        "The largest number of GPUs that one container may ask for.",
    ),
    Key(
        "allocate",
        "max-per-label",
        LABELS,
        {},
        "Labels of containers, and how many GPUs those may have together that share a value, such "
        'as "team" = 4; a label is whatever the asker writes, so this is for people who cooperate.',
    ),
    Key(
        "allocate",
        "keep-out",
        TEXTS,
        [],
        "GPUs that no container is given, by index or UUID.",
    ),
    Key(
        "allocate",
        "default-priority",
        INTEGER,
        "0",
        "The priority of requests that name none; higher ones come first.",
    ),
    Key(
        "allocate",
        "wait-cap",
        DURATION,
        "10m",
        "The longest that a container may wait for its GPUs while it is created, which blocks the "
        "engine's commands on it.",
    ),
    Key(
        "allocate",
        "restart-grace",
        DURATION,
        "5s",
        "How long a container that is started again waits for its former self to end.",
    ),
    Key(
        "allocate",
        "max-age",
        DURATION,
        "",
        "The age from which a lease is marked in `gpushimctl ps` and in the log; nothing is ended.",
    ),
)
