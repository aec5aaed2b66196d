"""The life of a job, drawn from `distrain.jobs.states.TRANSITIONS`."""

from markdown_pieces import code, comments_of, first_sentence_capital, table as make_table

from distrain.jobs import states as states_module
from distrain.jobs.states import TRANSITIONS, JobState

# Column and row of each state; the moves between them come from the table of transitions.
_PLACES = {
    JobState.PENDING: (0, 0),
    JobState.STARTING: (1, 0),
    JobState.RUNNING: (2, 0),
    JobState.SUCCEEDED: (3, 0),
    JobState.RESTARTING: (1, 1),
    JobState.STOPPING: (2, 1),
    JobState.FAILED: (1, 2),
    JobState.CANCELLED: (2, 2),
}
_COLUMN, _ROW, _MARGIN = 170, 90, 20
_BOX_WIDTH, _BOX_HEIGHT = 118, 40


def table() -> str:
    """Each state, what it means, and where it can go."""
    comments = comments_of(states_module)
    rows = []
    for state in JobState:
        if state.name not in comments:
            raise LookupError(f"JobState.{state.name} has no comment that says what it means")
        targets = [t for t in JobState if t in TRANSITIONS[state]]
        moves = ", ".join(code(t.value) for t in targets) or "none (final)"
        rows.append((code(state.value), first_sentence_capital(comments[state.name]), moves))
    return make_table(["state", "meaning", "moves to"], rows)


def svg() -> str:
    """The states as boxes and the moves as arrows; colours follow the reader's."""
    missing = [state.name for state in JobState if state not in _PLACES]
    if missing:
        raise LookupError(f"no place in the picture for {', '.join(missing)}")
    width = 2 * _MARGIN + 3 * _COLUMN + _BOX_WIDTH
    height = 2 * _MARGIN + 2 * _ROW + _BOX_HEIGHT
    arrows = [_arrow(a, b) for a in JobState for b in JobState if b in TRANSITIONS[a]]
    return "\n".join(
        [
            f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" '
            'font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">',
            "<title>States of a job and the moves between them</title>",
            "<style>svg { color: #222 } "
            "@media (prefers-color-scheme: dark) { svg { color: #ddd } }</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="currentColor"/>'
            "</marker></defs>",
            *arrows,
            *(_box(state) for state in JobState),
            "</svg>\n",
        ]
    )


def _centre(state: JobState) -> tuple[float, float]:
    column, row = _PLACES[state]
    return (
        _MARGIN + column * _COLUMN + _BOX_WIDTH / 2,
        _MARGIN + row * _ROW + _BOX_HEIGHT / 2,
    )


def _box(state: JobState) -> str:
    x, y = _centre(state)
    line = 2.5 if state.is_final else 1
    return (
        f'<rect x="{x - _BOX_WIDTH / 2:g}" y="{y - _BOX_HEIGHT / 2:g}" width="{_BOX_WIDTH}" '
        f'height="{_BOX_HEIGHT}" rx="6" fill="none" stroke="currentColor" stroke-width="{line}"/>'
        f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" font-size="15" '
        f'fill="currentColor">{state.value}</text>'
    )


def _arrow(start: JobState, end: JobState) -> str:
    (x1, y1), (x2, y2) = _edge(start, end), _edge(end, start)
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        'stroke="currentColor" stroke-width="1" marker-end="url(#tip)"/>'
    )


def _edge(state: JobState, other: JobState) -> tuple[float, float]:
    """The point at which the line between two boxes' centres leaves the first box."""
    (x, y), (to_x, to_y) = _centre(state), _centre(other)
    dx, dy = to_x - x, to_y - y
    share = min(
        _BOX_WIDTH / 2 / abs(dx) if dx else 1.0,
        _BOX_HEIGHT / 2 / abs(dy) if dy else 1.0,
    )
    return x + share * dx, y + share * dy
