"""The colours of plots and pages."""

BLUE, RED, GREEN, YELLOW = "#3b6fb6", "#d1495b", "#66a182", "#edae49"
PURPLE, BROWN, DARK, GREY = "#8d6a9f", "#b08968", "#4d4d4d", "#9a9a9a"
BAD = "#b3261e"
"""The colour of text about failures, on white."""

TRAIN, VALID = BLUE, RED

PHASES = {
    "data_wait": RED,
    "copy": YELLOW,
    "forward_backward": BLUE,
    "exchange": GREEN,
    "optimizer": PURPLE,
    "evaluate": "#c7c7c7",
    "checkpoint": BROWN,
    "save": GREY,
    "other": "#dedede",
}
"""The colours of a step's phases, in the order of `distrain.jobs.events.PHASES`."""
