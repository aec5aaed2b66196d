from distrain.loader.filling.fill_numpy import (
    fill as fill,
    gather_lists as gather_lists,
    measure_lists as measure_lists,
    place_lists as place_lists,
)

VERSION: int
