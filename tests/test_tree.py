"""Pytrees: round trips, paths, errors, and the fast matcher."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from funcgrad import tree
from funcgrad.errors import TreeError


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Layer:
    w: Any
    b: Any
    name: str = dataclasses.field(default="layer", metadata={"static": True})


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1, 2),
    [1, [2, None], (3,)],
    {"b": 1, "a": {"c": (2, 3)}},
    Pair(1, Pair(2, None)),
    Layer(1, [2, 3]),
    OrderedDict([("z", 1), ("a", 2)]),
    defaultdict(list, {"x": 1}),
    {"layers": [Layer(1, 2), Layer(3, None)], "n": (4, {5: 6})},
]


@pytest.mark.parametrize("t", TREES, ids=str)
def test_round_trip(t: Any) -> None:
    leaves, treedef = tree.flatten(t)
    again = tree.unflatten(treedef, leaves)
    assert again == t and type(again) is type(t)
    assert treedef == tree.structure(again) and hash(treedef) == hash(tree.structure(again))
    assert treedef.num_leaves == len(leaves)


@pytest.mark.parametrize("t", TREES, ids=str)
def test_the_matcher_takes_apart_what_flatten_does(t: Any) -> None:
    leaves, treedef = tree.flatten(t)
    assert tree.matcher(treedef)(t) == leaves


@pytest.mark.parametrize("t", TREES, ids=str)
def test_the_builder_builds_what_unflatten_does(t: Any) -> None:
    leaves, treedef = tree.flatten(t)
    build = tree.builder(treedef)
    for _ in range(2):  # containers are new each time
        built = build(leaves)
        assert built == t and type(built) is type(t)
        assert built is not t or not isinstance(t, (list, dict))


def test_builders_of_wide_and_deep_trees() -> None:
    wide = {f"k{i}": (i, [i]) for i in range(500)}
    leaves, treedef = tree.flatten(wide)
    assert tree.builder(treedef)(leaves) == wide
    deep: Any = 1
    for _ in range(300):  # deeper than Python's parser takes nested brackets
        deep = (deep,)
    leaves, treedef = tree.flatten(deep)
    assert tree.builder(treedef)(leaves) == deep and tree.matcher(treedef)(deep) == leaves


@pytest.mark.parametrize("t", TREES, ids=str)
@pytest.mark.parametrize("other", TREES, ids=str)
def test_the_matcher_refuses_every_other_structure(t: Any, other: Any) -> None:
    match = tree.matcher(tree.structure(t))
    if tree.structure(t) == tree.structure(other):
        assert match(other) == tree.leaves(other)
    elif t != 1:  # one leaf: the matcher takes any leaf, and the caller looks at its type
        assert match(other) is None


def test_dict_entries_come_in_key_order() -> None:
    assert tree.leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree.structure({"b": 1, "a": 2}) == tree.structure({"a": 0, "b": 0})


def test_static_fields_are_part_of_the_structure() -> None:
    assert tree.structure(Layer(1, 2, "x")) != tree.structure(Layer(1, 2, "y"))
    assert tree.matcher(tree.structure(Layer(1, 2, "x")))(Layer(1, 2, "y")) is None


def test_paths() -> None:
    t = {"m": [Layer(1, Pair(2, 3))]}
    shown = [tree.keystr(p) for p, _ in tree.flatten_with_path(t)[0]]
    assert shown == ["['m'][0].w", "['m'][0].b.a", "['m'][0].b.b"]


def test_map_over_several_trees_and_prefixes() -> None:
    assert tree.map(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert tree.map(lambda x, y: (x, y), [1, 2], [(3, 4), 5]) == [(1, (3, 4)), (2, 5)]


def test_errors_name_the_path() -> None:
    with pytest.raises(TreeError, match=r"\['a'\]: tuple there"):
        tree.map(lambda x, y: x, {"a": (1, 2)}, {"a": [1, 2]})
    with pytest.raises(TreeError, match=r"2 children"):
        tree.map(lambda x, y: x, (1, 2), (1, 2, 3))
    with pytest.raises(TreeError, match="3 leaves, got 2"):
        tree.unflatten(tree.structure((1, 2, 3)), [1, 2])
    with pytest.raises(TreeError, match="sortable"):
        tree.leaves({1: 0, "a": 0})
    with pytest.raises(TreeError, match="initializer"):
        tree.reduce(lambda a, b: a, [])


def test_reduce_all_transpose() -> None:
    assert tree.reduce(lambda a, b: a * b, {"a": 2, "b": (3, 4)}) == 24
    assert tree.all([True, (True,)]) and not tree.all([True, (0,)])
    turned = tree.transpose(tree.structure((0, 0)), tree.structure([0, 0]), ([1, 2], [3, 4]))
    assert turned == [(1, 3), (2, 4)]


def test_custom_nodes() -> None:
    @tree.register_pytree_node_class
    class Box:
        def __init__(self, x: Any, tag: str):
            self.x, self.tag = x, tag

        def tree_flatten(self) -> tuple[Any, Any]:
            return (self.x,), self.tag

        @classmethod
        def tree_unflatten(cls, tag: str, children: Any) -> Box:
            return cls(*children, tag)

    leaves, treedef = tree.flatten([Box((1, 2), "t")])
    assert leaves == [1, 2]
    again = tree.unflatten(treedef, [3, 4])[0]
    assert again.x == (3, 4) and again.tag == "t"
    assert tree.matcher(treedef)([Box((5, 6), "t")]) == [5, 6]
    assert tree.matcher(treedef)([Box((5, 6), "other")]) is None


nested = st.recursive(
    st.integers() | st.none(),
    lambda c: st.lists(c, max_size=3) | st.tuples(c, c) | st.dictionaries(st.text(max_size=2), c, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(nested)
def test_any_nesting_round_trips(t: Any) -> None:
    leaves, treedef = tree.flatten(t)
    assert tree.unflatten(treedef, leaves) == t
    assert tree.matcher(treedef)(t) == leaves
    assert tree.map(lambda x: x, t) == t
    assert [x for _, x in tree.leaves_with_path(t)] == leaves
