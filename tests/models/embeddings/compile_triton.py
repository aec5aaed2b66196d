"""Compile every kernel of Triton's for an H100, which needs none; prints how many there were."""

from itertools import product

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from distrain.models.blocks import interaction_triton
from distrain.models.embeddings.kernels import triton_programs as programs

H100 = GPUTarget("cuda", 90, 32)


def compile_one(program, types, constants):
    named = {n: types.get(n, "i32") for n in program.arg_names if n not in constants}
    signature = {n: named.get(n, "constexpr") for n in program.arg_names}
    places = {(program.arg_names.index(name),): value for name, value in constants.items()}
    # As at a launch: tensors begin at multiples of 16 bytes, and a width of 16 divides by 16.
    whole = [n for n, kind in named.items() if kind[0] == "*" or n == "dim"]
    attrs = {(program.arg_names.index(n),): [["tt.divisibility", 16]] for n in whole}
    source = ASTSource(fn=program, signature=signature, constexprs=places, attrs=attrs)
    assert triton.compile(source, target=H100).asm["cubin"]


def cases():
    for weight in ("*fp32", "*bf16"):
        types = {"weight": weight, "keys": "*i32", "places": "*i64", "out": "*fp32"}
        yield programs.lookup, types, {"ROWS": 64, "WIDTH": 16}
    sorted_places = dict.fromkeys(("order", "places", "starts", "keys"), "*i64")
    sorted_places |= dict.fromkeys(("sources", "in_order", "numbers"), "*i32")
    for program in (programs.sources_of, programs.begin_segments):
        yield program, sorted_places, {"SLOTS": 1024}
    for by_source in (False, True):
        types = {"rows": "*fp32", "sources": "*i32", "in_order": "*i32", "sums": "*fp32"}
        constants = {"SPAN": 32, "TILE": 32, "BY_SOURCE": by_source, "WIDTH": 128}
        yield programs.sum_tiles, types, constants
    pointers = dict.fromkeys(("first", "second", "grads", "tiles", "groups"), "*fp32")
    pointers["sources"] = "*i32"
    pointers |= dict.fromkeys(("starts", "keys", "rounding_keys", "seed"), "*i64")
    pointers |= dict.fromkeys(("rate", "scale"), "*fp64")
    pointers |= dict.fromkeys(("eps", "new_of_mean", "old_of_square", "new_of_square"), "fp32")
    kinds = ("sgd", "adagrad", "rowwise_adagrad", "adam")
    for kind, (rounds, summed) in [
        ("sum", (False, True)),
        *product(kinds, [(False, True), (True, True)]),
        ("adagrad", (False, False)),
        ("adam", (True, False)),
    ]:
        types = pointers | {"target": "*bf16" if rounds else "*fp32"}
        constants = {"RULE": kind, "SUMS": summed, "ROUNDS": rounds}
        yield programs.add_and_update, types, constants | {"TILE": 32, "SLOTS": 16, "WIDTH": 16}
    names = "deep", "others", "out", "grad", "deep_grad", "others_grad"
    for results, is_deep, vectors, chunk in (("fp32", False, 64, 16), ("bf16", True, 32, 16)):
        constants = {"DEEP": is_deep, "VECTORS": vectors, "CHUNK": chunk, "PRECISION": "ieee"}
        types = dict.fromkeys(names, "*fp32")
        types |= dict.fromkeys(("deep", "out", "grad", "deep_grad"), f"*{results}")
        yield interaction_triton._forward, types, constants
        yield interaction_triton._backward, types, constants


if __name__ == "__main__":
    every = list(cases())
    for case in every:
        compile_one(*case)
    print("compiled", len(every))
